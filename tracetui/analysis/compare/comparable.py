"""Decide whether two runs may be compared at all, with every reason against it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import windows
from tracetui.analysis.compare.align import steps
from tracetui.analysis.compare.match import Match
from tracetui.analysis.select import lenses, phases, rank_tracks
from tracetui.look import Look, Terms

ENOUGH: Final = 0.5


@dataclass(frozen=True)
class Comparable:
    """A score between 0 and 1, and the reasons that lowered it."""

    score: float
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether the score is high enough to compare."""
        return self.score >= ENOUGH

    def as_dict(self) -> dict[str, Any]:
        """Return the score, the decision and the reasons for JSON."""
        return {"score": round(self.score, 4), "ok": self.ok, "reasons": list(self.reasons)}


def comparable(
    a: Run,
    b: Run,
    matches: Sequence[Match],
    totals: tuple[Sequence[int], Sequence[int]],
    terms: Terms,
) -> Comparable:
    """Return the product of the factors of all checks, and the reasons of those below 1."""
    score, reasons = 1.0, []
    for factor, reason in chain(_checks(a, b, matches, totals), _repeats(a, b, terms)):
        if factor < 1:
            score *= factor
            reasons.append(reason)
    return Comparable(score, tuple(reasons))


Finding = tuple[float, str]


def _checks(
    a: Run, b: Run, matches: Sequence[Match], totals: tuple[Sequence[int], Sequence[int]]
) -> Iterator[Finding]:
    yield from _stated(a, b)
    yield from _metadata(a, b)
    yield _overlap(matches, totals)
    yield from (
        check(a, b)
        for check in (_lens, _phases, _steps, _losses, _cut, _profiled, _ranks, _watched, _emptiness)
    )


def _stated(a: Run, b: Run) -> Iterator[Finding]:
    """Yield what the source itself says against the pair."""
    for reason in dict.fromkeys(
        r for run in (a, b) for r in run.meta.get("comparable", {}).get("reasons", ())
    ):
        yield 0.2, reason


# how much a different value lowers the score: little where it is what a comparison is about
_WEIGHTS: Final = {
    "model": 0.4,
    "batch": 0.6,
    "tokens_per_report": 0.9,
    "mode": 0.4,
    "anchor": 0.2,
    "device": 0.9,
    "dtype": 0.9,
    "quant": 0.9,
    "prompt_tokens": 0.8,
    "weights": 0.95,
    "driver": 0.98,
}


def _metadata(a: Run, b: Run) -> Iterator[Finding]:
    for key, factor in _WEIGHTS.items():
        x, y = a.meta.get(key), b.meta.get(key)
        if x is not None and y is not None and x != y:
            yield factor, f"{key} differs: {x} against {y}"


def _overlap(matches: Sequence[Match], totals: tuple[Sequence[int], Sequence[int]]) -> Finding:
    """Return the share of both runs' time that stands in matched rows, as a factor."""
    matched_rows = [m for m in matches if m.a and m.b]
    matched = sum(totals[0][i] for m in matched_rows for i in m.a) + sum(
        totals[1][j] for m in matched_rows for j in m.b
    )
    whole = sum(totals[0]) + sum(totals[1])
    share = matched / whole if whole else 0.0
    if share >= 0.8:
        return 1.0, ""
    return max(0.1, share), f"only {100 * share:.0f}% of the time stands in rows that both runs have"


def _repeats(a: Run, b: Run, terms: Terms) -> Iterator[Finding]:
    """Yield repeats without kernel time, and those whose metadata differs from the side they repeat."""
    for these, repeats in (((a,), terms.more_a), ((b,), terms.more_b), ((a, b), terms.same)):
        for run in repeats:
            if not _work(run):
                yield 0.0, f"no kernel time in a repeat, {run.log.source or run.name}"
            differences = [list(_metadata(run, this)) for this in these]
            if all(differences):
                yield (
                    min((f for f, _ in differences[0]), default=1.0),
                    f"no repeat of the same: {differences[0][0][1]}",
                )


def _lens(a: Run, b: Run) -> Finding:
    x, y = lenses(a)[:1], lenses(b)[:1]
    differ = bool(x and y and x != y)
    return (0.3 if differ else 1.0), f"different stopwatches: {_listed(x)} against {_listed(y)}"


def _phases(a: Run, b: Run) -> Finding:
    x, y = set(phases(a)), set(phases(b))
    apart = bool(x and y and not x & y)
    return (0.2 if apart else 1.0), f"no phase in common: {_listed(sorted(x))} against {_listed(sorted(y))}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def _steps(a: Run, b: Run) -> Finding:
    x, y = steps(a, None).height, steps(b, None).height
    few, many = sorted((x, y))
    factor = 0.3 if few and many >= 5 * few else 1.0
    return factor, f"{x} steps or cycles against {y}: the two may have been cut by different marks"


def _losses(a: Run, b: Run) -> Finding:
    lost = [r.name for r in (a, b) if r.log.lost_data]
    return (0.9 if lost else 1.0), f"data was lost on reading {' and '.join(lost)}"


def _cut(a: Run, b: Run) -> Finding:
    cut = [r.name for r in (a, b) if r.meta.get("truncated")]
    return (0.9 if cut else 1.0), f"cut short: {' and '.join(cut)}"


def _ranks(a: Run, b: Run) -> Finding:
    """Compare the numbers of ranks: times are added over the ranks of a run."""
    x, y = (max(1, len(set(rank_tracks(run).values()))) for run in (a, b))
    return (1.0 if x == y else 0.7), f"ranks differ: {x} against {y}, and times of ranks are added"


def _profiled(a: Run, b: Run) -> Finding:
    x, y = a.meta.get("profiled"), b.meta.get("profiled")
    differ = x is not None and y is not None and bool(x) != bool(y)
    return (0.3 if differ else 1.0), "one run was measured with profiling on, the other without"


def _watched(a: Run, b: Run) -> Finding:
    """Compare how much of each run was watched: rows scaled from a few steps are estimates."""
    x, y = windows.share(a, Look()), windows.share(b, Look())
    words = f"kernels were seen in {100 * x:.0f}% of the steps against {100 * y:.0f}%: one side is scaled"
    return (0.9 if (x < 1) != (y < 1) else 1.0), words


def _emptiness(a: Run, b: Run) -> Finding:
    """Return 0 where a run has no kernel time: an empty capture is never an improvement."""
    empty = [r.name for r in (a, b) if not _work(r)]
    return (0.0 if empty else 1.0), f"no kernel time in {' and '.join(empty)}"


def _work(run: Run) -> int:
    if not run.has("dur"):
        return 0
    return int(run.events.filter(pl.col("kind") == "kernel")["dur"].sum())
