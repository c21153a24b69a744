"""Search the version at which a time changed: measurements in, the version to measure next or a verdict out.

There is no process, clock or file here, so that a search can be simulated, and resumed from its measurements.

1. The ends are measured in turn until their sequential comparison, that of `diff --record`, is decided.
2. The version in the middle is measured, in turn with one whose side is known, until it is far likelier that
   it belongs to one side; the other half is left out. The known ones also show that the machine changed:
   then earlier times no longer count.
3. The two neighbours that remain are compared with fresh runs. Only that comparison names a version; if it
   contradicts, the search begins again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tracetui.analysis.frames.statistics import (
    ALPHA,
    Floats,
    RowEvidence,
    compute_interval_from_a,
    judge_evidence,
)
from tracetui.compare import params
from tracetui.compare.evidence.repeat_test import compare_means
from tracetui.compare.evidence.sample_size import AlphaSpending, compute_required_runs

CHANGED: Final = "found"
SAME: Final = "no change"
UNSEEN: Final = "no change found"
UNDECIDED: Final = "cannot tell"
BROKEN: Final = "broken"

# How many times likelier one side is when a version is taken for it: of 1, 3, 9, 19 and 99 the one that found
# most in 240 simulated searches, of changes that are 2 to 4 times as large as the run-to-run spread.
SIDE_ODDS: Final = 19.0
MACHINE_ALPHA: Final = 0.003  # of a test whether the last runs of known versions are like those before
LAST_RUNS: Final = (2, 3, 4)  # so many are tested
FAILURES_IN_A_ROW: Final = 3  # of a version that ran before, until the search ends
FUTILE_RUNS: Final = 4  # runs of each end before the search may end because the budget cannot suffice


@dataclass(frozen=True)
class Measurement:
    """One run of a version: its time, or None if it failed, and the share of the budget spent after it."""

    version: int
    time_ns: float | None
    spent: float = 0.0


@dataclass(frozen=True)
class VersionChange:
    """The time of two versions, and the 95 % interval of its change in ns of the first."""

    a_ns: float
    b_ns: float
    low_ns: float
    high_ns: float
    spread: float  # run-to-run SD as a share
    runs: int  # of the side that has fewer

    @property
    def share(self) -> float:
        """The change as a share of the first."""
        return self.b_ns / self.a_ns - 1

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval as shares of the first."""
        return self.low_ns / self.a_ns, self.high_ns / self.a_ns


@dataclass(frozen=True)
class SearchResult:
    """The end of a search: after version `last_before`, and up to `first_after`, the time changed.

    What is broken lies between the two. For other words than CHANGED they are what is left to search.
    """

    word: str
    last_before: int
    first_after: int
    change: VersionChange | None = None  # between the two if found, else between the ends
    more_runs: int | None = None  # per side, that would tell; None: unknown, or too many


@dataclass
class VersionSearch:
    """The search among `count` versions, of which the first and the last are known to run."""

    count: int
    threshold: float = 0.01  # smallest change that matters, as a share
    result: SearchResult | None = None
    low: int = 0  # the last version known to be like the first
    high: int = field(init=False)
    broken: set[int] = field(default_factory=set)
    log: list[Measurement] = field(default_factory=list)
    machine_changes: int = 0

    def __post_init__(self) -> None:
        """Begin with the ends."""
        self._middle: int | None = None
        self._begin_pair(0, self.count - 1, is_final=False)
        self._ends: VersionChange | None = None

    @property
    def stage(self) -> str:
        """Whether the ends are compared, the middle is searched, or the neighbours are compared."""
        if self._middle is not None:
            return "middle"
        return "neighbours" if self._is_final else "ends"

    @property
    def compared_since(self) -> int:
        """The place in the log where the comparison of two versions begins; its end while there is none."""
        return len(self.log) if self.stage == "middle" else self._begun

    def choose_next(self) -> int | None:
        """Return the version to measure next; None if there is a result."""
        if self.result is not None:
            return None
        if self._middle is None:
            n, m = (len(self._select_times({v}, self._begun)) for v in (self.low, self.high))
            return self.low if n < m or (n == m and n % 2 == 0) else self.high
        pools = self._low_pool, self._high_pool
        sizes = [len(self._select_times(pool, self._epoch)) for pool in pools]
        if min(sizes) < params.MIN_RUNS_PER_SIDE:
            return self._represent(pools[sizes[1] < sizes[0]])
        if len(self._select_times({self._middle}, self._begun)) <= self._count_known_runs():
            return self._middle
        return self._represent(pools[sizes[1] < sizes[0]])

    def add(self, measurement: Measurement) -> None:
        """Take a measurement into account."""
        if self.result is not None:
            return
        self.log.append(measurement)
        version, is_over = measurement.version, measurement.spent >= 1
        if measurement.time_ns is None:
            self._note_failure(version)
        elif self._middle is None:
            self._look_at_pair(measurement.spent)
        else:
            self._look_at_middle()
        if self.result is None and is_over:
            self.give_up()

    def _begin_pair(self, low: int, high: int, *, is_final: bool) -> None:
        self.low, self.high, self._is_final = low, high, is_final
        self._begun = len(self.log)
        self._middle = None
        self._looks = AlphaSpending()
        self._spent_before = self.log[-1].spent if self.log else 0.0

    def _begin_middle(self) -> None:
        """Choose the version nearest to the middle that is not broken; without one, compare neighbours."""
        candidates = [v for v in range(self.low + 1, self.high) if v not in self.broken]
        if not candidates:
            self._begin_pair(self.low, self.high, is_final=True)
            return
        self._middle = min(candidates, key=lambda v: (abs(2 * v - self.low - self.high), v))
        self._begun = len(self.log)

    def _note_failure(self, version: int) -> None:
        times = [m.time_ns for m in self.log if m.version == version]
        if not any(times):
            self.broken.add(version)
            if version in (0, self.count - 1):
                self.result = SearchResult(BROKEN, version, version)
            elif version == self._middle:
                self._begin_middle()
        elif not any(times[-FAILURES_IN_A_ROW:]) and len(times) >= FAILURES_IN_A_ROW:
            self.result = SearchResult(BROKEN, version, version)

    def _look_at_pair(self, spent: float) -> None:
        """Compare two versions after each pair of runs; go on, name the later one, or begin again."""
        a, b = (self._select_times({v}, self._begun) for v in (self.low, self.high))
        if len(a) != len(b) or len(a) < params.MIN_RUNS_PER_SIDE:
            return
        passed = (spent - self._spent_before) / max(1 - self._spent_before, 1e-9)
        share = self._looks.spend(passed)
        evidence = compare_means(*self._arrange(a, b), ALPHA * share)[0]
        verdict = _judge(evidence, self.threshold, ALPHA * share)
        change = self._measure_change(a, b)
        if not self._is_final:
            self._decide_ends(verdict, change, spent)
        elif verdict in ("slower", "faster") and self._ends and change.share * self._ends.share > 0:
            self.result = SearchResult(CHANGED, self.low, self.high, change)
        elif verdict != "~" or self._is_wrong_place(change):
            self._begin_pair(0, self.count - 1, is_final=False)

    def _is_wrong_place(self, change: VersionChange) -> bool:
        """Return whether neighbours hardly differ: less than by half of what the ends do."""
        if self._ends is None or change.runs < FUTILE_RUNS:
            return False
        largest = max(abs(change.low_ns), abs(change.high_ns)) / change.a_ns
        return change.low_ns <= 0 <= change.high_ns and largest < abs(self._ends.share) / 2

    def _decide_ends(self, verdict: str, change: VersionChange, spent: float) -> None:
        self._ends = change
        if verdict == "same":
            self.result = SearchResult(SAME, 0, self.count - 1, change)
        elif verdict != "~":
            self._epoch, self._low_pool, self._high_pool = self._begun, {0}, {self.count - 1}
            self._begin_middle()
        elif change.runs >= FUTILE_RUNS and spent > 0:
            left = len(self.log) * (1 / spent - 1) / 2
            largest = max(*map(abs, change.interval), self.threshold)  # of the changes that may be there
            required = compute_required_runs(largest, change.spread, ALPHA) or params.MAX_RUNS_PER_SIDE
            if required - change.runs > left:
                self.give_up()

    def _look_at_middle(self) -> None:
        """Take the middle version for one side, once that is far likelier than the other."""
        self._notice_machine()
        assert self._middle is not None  # noqa: S101
        low, high = (self._select_times(pool, self._epoch) for pool in (self._low_pool, self._high_pool))
        middle = self._select_times({self._middle}, self._begun)
        if (
            not (len(middle) and self._count_known_runs())
            or min(len(low), len(high)) < params.MIN_RUNS_PER_SIDE
        ):
            return
        is_like_low = self._choose_side(low, high, middle)
        if is_like_low is None:
            if len(middle) > FUTILE_RUNS and not self._has_change(low, high):
                self._begin_pair(0, self.count - 1, is_final=False)  # a version was taken for the wrong side
            return
        side = low if is_like_low else high
        evidence = compare_means(*self._arrange(side, middle), ALPHA)[0]
        is_other = _judge(evidence, self.threshold) in ("slower", "faster")  # one of several changes
        if is_like_low:
            self.low = self._middle
            self._low_pool = {self.low} if is_other else self._low_pool | {self.low}
        else:
            self.high = self._middle
            self._high_pool = {self.high} if is_other else self._high_pool | {self.high}
        self._begin_middle()

    def _has_change(self, low: Floats, high: Floats) -> bool:
        """Return whether the sides differ, in the direction of the ends."""
        verdict = _judge(compare_means(*self._arrange(low, high), ALPHA)[0], self.threshold)
        return self._ends is not None and verdict == ("slower" if self._ends.share > 0 else "faster")

    def _choose_side(self, low: Floats, high: Floats, middle: Floats) -> bool | None:
        """Return whether the middle version belongs to the lower side; None while that is open.

        The likelihood is that of normal times with one unknown spread. One that evidently differs from both
        sides goes to the nearer one.
        """
        errors = [
            _sum_squares(low, middle) + _sum_squares(high),
            _sum_squares(low) + _sum_squares(high, middle),
        ]
        freedom = len(low) + len(high) + len(middle) - 2
        ratio = freedom / 2 * math.log((errors[1] + 1e-15) / (errors[0] + 1e-15))
        if abs(ratio) >= math.log(SIDE_ODDS):
            return ratio > 0
        if len(middle) <= params.MIN_RUNS_PER_SIDE:
            return None
        verdicts = [
            _judge(compare_means(*self._arrange(s, middle), ALPHA)[0], self.threshold) for s in (low, high)
        ]
        return ratio >= 0 if all(v in ("slower", "faster") for v in verdicts) else None

    def _notice_machine(self) -> None:
        """Forget earlier times if the last runs of known versions are unlike those before."""
        runs = self._list_known_runs()
        if self.log[-1].version == self._middle:
            return
        sides, levels = np.array([side for _, side, _ in runs]), np.array([level for _, _, level in runs])
        for last in LAST_RUNS:
            earlier = [levels[:-last][sides[:-last] == side] for side in (0, 1)]
            if min(map(len, earlier)) < params.MIN_RUNS_PER_SIDE:
                return
            offsets = levels - np.array([side.mean() for side in earlier])[sides]
            evidence = compare_means(*self._arrange(offsets[:-last], offsets[-last:]), ALPHA)[0]
            if evidence.p[0] < MACHINE_ALPHA and abs(evidence.delta[0]) > self.threshold:
                self._epoch = self._begun = runs[-last][0]
                self.machine_changes += 1
                return

    def _list_known_runs(self) -> list[tuple[int, int, float]]:
        """Return place, side and log time of the runs that count, of versions whose side is known."""
        known_sides = dict.fromkeys(self._low_pool, 0) | dict.fromkeys(self._high_pool, 1)
        return [
            (place, known_sides[m.version], math.log(m.time_ns))
            for place, m in enumerate(self.log[self._epoch :], self._epoch)
            if m.time_ns and m.version in known_sides
        ]

    def give_up(self) -> None:
        """End without a version: no change is seen, or more runs are needed."""
        change, more, word = self._ends, None, UNDECIDED
        if self.stage == "ends" and change is not None:
            required = compute_required_runs(max(abs(change.share), self.threshold), change.spread, ALPHA)
            more = None if required is None else max(1, required - change.runs)
            word = UNSEEN if change.low_ns <= 0 <= change.high_ns else UNDECIDED
        self.result = SearchResult(word, self.low, self.high, change, more)

    def _measure_change(self, a: Floats, b: Floats) -> VersionChange:
        evidence, spread = compare_means(*self._arrange(a, b), ALPHA)
        low, high = compute_interval_from_a(evidence)
        sides = float(evidence.median_a[0]), float(evidence.median_b[0])
        return VersionChange(*sides, float(low[0]), float(high[0]), float(spread[0]), min(len(a), len(b)))

    def _arrange(self, a: Floats, b: Floats) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Return log times and their groups for `compare_means`.

        When neighbours are compared, earlier runs of each version are one more group: they show the noise.
        """
        since = self._epoch if self.stage == "neighbours" else len(self.log)
        earlier = self.log[since : self._begun]
        others = [(2 + m.version, math.log(m.time_ns)) for m in earlier if m.time_ns]
        values = np.concatenate([a, b, [level for _, level in others]])
        groups = np.concatenate([np.repeat([0, 1], [len(a), len(b)]), [group for group, _ in others]])
        return values[None, :], groups.astype(np.int64)

    def _select_times(self, versions: Iterable[int], since: int) -> Floats:
        """Return the log times of some versions, measured since a place in the log."""
        members = {*versions}
        times = [m.time_ns for m in self.log[since:] if m.version in members and m.time_ns]
        return np.log(np.array(times, dtype=np.float64))

    def _count_known_runs(self) -> int:
        """Return the runs of versions whose side is known since the middle version was chosen."""
        return len(self._select_times(self._low_pool | self._high_pool, self._begun))

    def _represent(self, pool: set[int]) -> int:
        """Return the version of a side that was measured most, which is ready to run."""
        runs = [m.version for m in self.log]
        return max(pool, key=lambda v: (runs.count(v), -v))


def _sum_squares(*parts: Sequence[float] | Floats) -> float:
    """Return the sum of squares around the mean of the values of all parts."""
    values = np.concatenate([np.asarray(part) for part in parts])
    return float(((values - values.mean()) ** 2).sum())


def _judge(evidence: RowEvidence, threshold: float, alpha: float = ALPHA) -> str:
    """Judge one row against the smallest change that matters, as a share."""
    floor = threshold * (np.abs(evidence.median_a) + np.abs(evidence.median_b)) / 2
    return judge_evidence(evidence, floor, alpha=alpha)[0]
