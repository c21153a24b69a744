"""The steps of a run with their starts, one by one; of a growing run for longer than it keeps them itself."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import facts, steps

KEPT: Final = 1 << 16  # newest steps of a growing run: more than ten minutes at a hundred a second

SCHEMA: Final = pl.Schema({
    "step": pl.Int64(), "phase": pl.String(), "t": pl.Int64(), "took_ns": pl.Int64(), "tokens": pl.Int64(),
    "context": pl.Int64(),
})  # fmt: skip


@facts.once
def paces(run: Run) -> pl.DataFrame:
    """Return the columns of SCHEMA of every step whose start and length are known, in order."""
    known = pl.col("t").is_not_null() & pl.col("took_ns").is_not_null()
    table = steps.paced(run).filter((pl.col("steps") == 1) & known)
    return table.select_seq(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


class Memory:
    """The steps that a growing run has had, also those that it has folded since."""

    def __init__(self) -> None:
        self._run: object = None
        self._frame = pl.DataFrame(schema=SCHEMA)

    def add(self, run: Run) -> None:
        """Take in a newer snapshot of the run, and let it know of the steps it has folded."""
        own, which = paces(run), (run.name, str(run.meta.get("clock")))
        if which != self._run:
            self._run, self._frame = which, self._frame.clear()
        known = self._frame["step"]
        older = self._frame.head(known.search_sorted(int(own["step"][0]))) if own.height else self._frame
        self._frame = pl.concat([older, own]).tail(KEPT)
        facts.tell(paces, run, self._frame)
