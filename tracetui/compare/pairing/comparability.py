"""Score whether two runs may be compared, list every reason against it, and describe counts of both."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.selection import list_lenses, list_phases, list_ranks
from tracetui.analysis.time import step_sampling
from tracetui.compare import params
from tracetui.compare.pairing.equal_work import WorkDifference
from tracetui.compare.pairing.row_matching import RowMatch
from tracetui.compare.pairing.run_work import XLA, count_program_inputs, read_rows, sum_counts
from tracetui.compare.pairing.step_times import STEP_SIZES, compute_step_times
from tracetui.compare.run_sides import Sides
from tracetui.look import Look

_UNKNOWN_SIZES: Final = "sizes of the work are unknown"
ScoredReason = tuple[float, str]  # factor of the score, why
# Metadata that make runs incomparable if they differ, and others worth saying, in the order of the reasons
_DECISIVE_METADATA: Final = ("model", "mode", "anchor")
_METADATA: Final = (
    "model", "batch", "tokens_per_report", "mode", "anchor", "device", "dtype", "quant", "prompt_tokens",
    "weights", "driver",
)  # fmt: skip


@dataclass(frozen=True)
class Comparability:
    """A score between 0 and 1, and the reasons that lowered it."""

    score: float
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if the score is high enough to compare."""
        return self.score >= params.MIN_COMPARABILITY

    def as_dict(self) -> dict[str, Any]:
        """Convert to a JSON object."""
        return {"score": round(self.score, 4), "ok": self.ok, "reasons": list(self.reasons)}


def judge_comparability(
    sides: Sides,
    matches: Sequence[RowMatch],
    totals: tuple[Sequence[int], Sequence[int]],
    works: Sequence[WorkDifference] = (),
) -> Comparability:
    """Multiply the factors of all checks; keep the reasons of those below 1.

    `totals` has the ns of each row of a and of b, which `matches` refers to by index; `works` is what the
    steps of the longest phase compute differently.
    """
    a, b = sides
    reasons = [
        *_check_source(a, b),
        *((params.INCOMPARABLE_FACTOR, f"not the same work: {work}") for work in works),
        *_check_metadata(a, b, {work.what for work in works}),
        *_adjust_for_compiled(sides, _check_matched_share(matches, totals)),
        *_check_lens(a, b),
        *_check_phases(a, b),
        *_check_step_counts(a, b),
        *_check_losses(a, b),
        *_check_profiler(a, b),
        *_check_ranks(a, b),
        *_check_sampling(a, b),
        *_check_kernel_time(a, b),
        *_check_repeats(sides),
    ]
    below = [(factor, reason) for factor, reason in reasons if factor < 1]
    score = math.prod((factor for factor, _ in below), start=1.0)
    return Comparability(score, tuple(reason for _, reason in below))


def _check_source(a: Run, b: Run) -> Iterator[ScoredReason]:
    reasons = [r for run in (a, b) for r in run.meta.get("comparable", {}).get("reasons", ())]
    for reason in dict.fromkeys(reasons):
        yield params.INCOMPARABLE_FACTOR, reason


def _check_metadata(a: Run, b: Run, named: Collection[str] = ()) -> Iterator[ScoredReason]:
    for key in _METADATA:
        x, y = a.meta.get(key), b.meta.get(key)
        if key not in named and x is not None and y is not None and x != y:
            factor = params.INCOMPARABLE_FACTOR if key in _DECISIVE_METADATA else params.DOUBT_FACTOR
            yield factor, f"{key} differs: {x} against {y}"


def _check_matched_share(
    matches: Sequence[RowMatch], totals: tuple[Sequence[int], Sequence[int]]
) -> Iterator[ScoredReason]:
    """Yield the share of the time in matched rows, of the run of which it is larger, if that is small.

    New rows beside all of those of the other run are a change of the code, not of what is compared.
    """
    matched = [m for m in matches if m.a and m.b]
    sides = ([m.a for m in matched], totals[0]), ([m.b for m in matched], totals[1])
    shares = [
        sum(times[row] for rows in groups for row in rows) / max(1, sum(times)) for groups, times in sides
    ]
    if max(shares) < params.MOST:
        x, y = (f"{100 * share:.0f}%" for share in shares)
        yield max(shares), f"only {x} and {y} of the time is in rows that both runs have"


def _adjust_for_compiled(sides: Sides, reasons: Iterator[ScoredReason]) -> Iterator[ScoredReason]:
    """Take reasons that rows are others as doubts where only one run is compiled, which replaces its rows."""
    compiled = {run.meta.get("compiled", read_rows(run).get("compiled")) for run in sides}
    for factor, reason in reasons:
        yield (params.DOUBT_FACTOR if {True, False} <= compiled else factor), reason


def _check_repeats(sides: Sides) -> Iterator[ScoredReason]:
    """Check that repeats have kernel time and their side's metadata; `sides.same` may repeat either side."""
    a, b = sides
    for repeated, repeats in (((a,), sides.more_a), ((b,), sides.more_b), ((a, b), sides.same)):
        for run in repeats:
            if not _sum_kernel_ns(run):
                yield 0.0, f"no kernel time in a repeat, {run.log.source or run.name}"
            differences = [list(_check_metadata(run, each)) for each in repeated]
            if all(differences):
                factor = min(f for f, _ in differences[0])
                yield factor, f"a repeat is of another kind: {differences[0][0][1]}"


def _check_lens(a: Run, b: Run) -> Iterator[ScoredReason]:
    x, y = list_lenses(a)[:1], list_lenses(b)[:1]
    if x and y and x != y:
        yield params.INCOMPARABLE_FACTOR, f"different lenses: {x[0]} against {y[0]}"


def _check_phases(a: Run, b: Run) -> Iterator[ScoredReason]:
    x, y = set(list_phases(a)), set(list_phases(b))
    if x and y and not x & y:
        words = " against ".join(", ".join(sorted(phases)) for phases in (x, y))
        yield params.INCOMPARABLE_FACTOR, f"no phase in common: {words}"


def _check_step_counts(a: Run, b: Run) -> Iterator[ScoredReason]:
    x, y = compute_step_times(a, None).height, compute_step_times(b, None).height
    if min(x, y) and max(x, y) >= params.STEP_COUNT_RATIO * min(x, y):
        reason = f"{x} steps or cycles against {y}: the two may have been split into steps differently"
        yield params.INCOMPARABLE_FACTOR, reason


def _check_losses(a: Run, b: Run) -> Iterator[ScoredReason]:
    """Yield data lost when reading, and recordings that end early."""
    if lost := [r.name for r in (a, b) if r.log.lost_data]:
        yield params.DOUBT_FACTOR, f"data was lost when reading {' and '.join(lost)}"
    if truncated := [r.name for r in (a, b) if r.meta.get("truncated")]:
        yield params.DOUBT_FACTOR, f"cut short: {' and '.join(truncated)}"


def _check_ranks(a: Run, b: Run) -> Iterator[ScoredReason]:
    """Compare the numbers of ranks, because times are summed over the ranks of a run."""
    x, y = (max(1, len(list_ranks(run))) for run in (a, b))
    if x != y:
        yield params.DOUBT_FACTOR, f"ranks differ: {x} against {y}, and times are summed over ranks"


def _check_profiler(a: Run, b: Run) -> Iterator[ScoredReason]:
    x, y = a.meta.get("profiled"), b.meta.get("profiled")
    if x is not None and y is not None and bool(x) != bool(y):
        yield params.INCOMPARABLE_FACTOR, "one run was recorded with a profiler, the other without"


def _check_sampling(a: Run, b: Run) -> Iterator[ScoredReason]:
    """Compare sampled shares: rows scaled up from a few steps are estimates."""
    x, y = (step_sampling.compute_sampled_share(run, Look()) for run in (a, b))
    if (x < 1) != (y < 1):
        reason = f"kernels were sampled in {x:.0%} of the steps against {y:.0%}: one side is scaled"
        yield params.DOUBT_FACTOR, reason


def _check_kernel_time(a: Run, b: Run) -> Iterator[ScoredReason]:
    """Yield runs without kernel time, with factor 0: an empty capture is never an improvement."""
    if empty := [r.name for r in (a, b) if not _sum_kernel_ns(r)]:
        yield 0.0, f"no kernel time in {' and '.join(empty)}"


def _sum_kernel_ns(run: Run) -> int:
    if not run.has("dur"):
        return 0
    return int(run.events.filter(pl.col("kind") == "kernel")["dur"].sum())


def describe_unknown_sizes(runs: Sequence[Run]) -> str:
    """Describe that a run does not state how much its steps compute, and what would; empty if all do."""
    for run in runs:
        if any(run.has(column) for column in (*STEP_SIZES, "shape")) or count_program_inputs(run):
            continue
        if run.meta.get("work") == "operators":
            return f"{_UNKNOWN_SIZES}: record_shapes=True states them"
        if run.meta.get("producer") in XLA:
            return f"{_UNKNOWN_SIZES}: *.xplane.pb states them"
    return ""


def describe_counts(runs: Sequence[Run], phase: str | None) -> str:
    """Describe launches, bytes and FLOPs of a phase on both sides, as far as both report them."""
    facts = []
    sums = [sum_counts(run, phase) for run in runs]
    for column, what, form in (
        ("count", " launches", "{:,.0f}".format),
        ("bytes", " moved", units.format_size),
        ("flops", "FLOP", units.format_rate),
    ):
        a, b = (side.get(column, 0.0) for side in sums)
        if a and b:
            is_same = abs(b / a - 1) < params.NEGLIGIBLE
            facts.append(f"{form(a)}{what}" if is_same else f"{form(a)} → {form(b)}{what}")
    return f"{', '.join(facts)}; " if facts else ""
