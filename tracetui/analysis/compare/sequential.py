"""Looks at recordings that grow: what each may use of the chance of error, and when a comparison is decided.

Whoever looks after each pair and stops at the first difference errs more often than in one look. So the looks
share the chance of error: what may be used up to a moment is a function of the part of the budget that has
passed (Pocock's by Lan and DeMets, Biometrika 70, 1983), and a look has what was added since the one before.
That the looks agree much with each other is not made use of, which leaves the whole below the stated chance.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from tracetui.analysis.compare.decision import decision
from tracetui.analysis.compare.diff import Diff

FEWEST_RUNS: Final = 2  # a side, below which nothing is known of what runs of the same differ by
DECIDED: Final = ("slower", "faster", "same")


def usable(passed: float) -> float:
    """Return the share of the chance of error that may be used once this part of the budget has passed."""
    return math.log1p((math.e - 1) * min(1.0, max(0.0, passed)))


@dataclass
class Looks:
    """The looks so far, by what they used of the chance of error."""

    used: float = 0.0

    def next(self, passed: float) -> float:
        """Return the share for a look at this part of the budget; a last look (1.0) has all that is left."""
        share = usable(passed) - self.used
        self.used += share
        return share


def main_phase(compared: Diff) -> dict[str, Any] | None:
    """Return the totals of the phase that takes longest: its steps, else its kernels; None without any."""
    phases = decision(compared).phases
    return phases.row(0, named=True) if phases.height else None


def decided(compared: Diff) -> bool:
    """Tell whether it is known what became of the phase that takes longest."""
    row = main_phase(compared)
    return row is not None and row["verdict"] in DECIDED
