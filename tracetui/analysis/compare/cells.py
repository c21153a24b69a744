"""The times of a pair of runs, rows × steps, without the many cells in which neither has any.

A run of thousands of kernels has few of them in one step, so that nearly all of such a table is zeros.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis import ragged
from tracetui.analysis.ragged import Floats, Ints


@dataclass(frozen=True, eq=False)
class Cells:
    """Those cells in which either side has time, by row, then by step. NaN is a step left out of that side;
    one that is left out of both is no cell.
    """

    row: Ints
    step: Ints
    a: Floats
    b: Floats
    steps: int
    size: Ints  # of each row: its steps that are not left out of both sides

    @classmethod
    def of(cls, a: Floats, b: Floats) -> "Cells":
        """Return the cells of whole tables, rows × steps."""
        out = np.isnan(a) & np.isnan(b)
        row, step = np.nonzero(((a != 0) | (b != 0)) & ~out)
        return cls(row, step, a[row, step], b[row, step], a.shape[1], a.shape[1] - out.sum(axis=1))

    @property
    def rows(self) -> int:
        """Return how many rows there are, with or without cells."""
        return len(self.size)

    def only(self, steps: NDArray[np.bool_]) -> "Cells":
        """Return the cells with all other steps left out."""
        if steps.all():
            return self
        kept = steps[self.step]
        columns = {c: getattr(self, c)[kept] for c in ("row", "step", "a", "b")}
        return replace(self, **columns, size=self.size - int((~steps).sum()))

    def cliffs_delta(self) -> Floats:
        """Return P(b > a) − P(b < a) over all pairs of steps, −1 to 1; a step that is left out counts as
        one without time.
        """
        n, rows = self.steps, self.rows
        if not n:
            return np.full(rows, np.nan)
        a, b = np.nan_to_num(self.a), np.nan_to_num(self.b)
        counts = np.bincount(self.row, minlength=rows)
        none = n - counts  # on either side
        no_a, no_b = (np.bincount(self.row[side == 0], minlength=rows) for side in (a, b))
        beside = none * (counts - no_b / 2) + none * no_a / 2 + none * none / 2
        return np.asarray(2 * (ragged.above(a, b, counts) + beside) / (n * n) - 1)
