"""Put a comparison into sentences, each with its numbers and the row that it is about."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.compare.at_once import of_each
from tracetui.analysis.compare.causes import Finding, causes
from tracetui.analysis.compare.diff import Diff
from tracetui.analysis.compare.headline import decided
from tracetui.analysis.compare.repeats import needed
from tracetui.analysis.compare.traffic import Traffic, roles
from tracetui.analysis.growth import lines
from tracetui.analysis.statistics import ALPHA
from tracetui.look import Look
from tracetui.shown_names import shown_names

STEEPER: Final = 4.0  # standard errors, wide because steps are autocorrelated
SAME_WORK: Final = 0.01  # by which bytes may differ
SAMPLES: Final = {"token": "steps", "step": "steps", "launch": "launches"}
MOST_TOLD: Final = 5  # rows of a kind
_ALONE: Final = (("new", "total_b_ns", "b"), ("gone", "total_a_ns", "a"))  # verdict, time, side
_SCHEMA: Final = {"kind": pl.String, "finding": pl.String, "row": pl.String}


def findings(a: Run, b: Run, compared: Diff, look: Look) -> pl.DataFrame:
    """Return kind, finding and row: the most important first, and at the end what cannot be concluded."""
    shown = _shown(compared)
    sentences = [
        *_doubts(compared),
        *_total(compared),
        *causes(a, b, look, weighed=compared.comparable.ok),
        *_together(compared),
        *_changes(compared, shown),
        *_same_work(a, b, compared, look, shown),
        *_averages(a, b, compared, shown),
        *_appeared(compared, shown),
        *_laws(a, b, look),
        *_limits(compared, look, shown),
    ]
    return pl.DataFrame(sentences, schema=_SCHEMA, orient="row")


def _shown(compared: Diff) -> Mapping[str, str]:
    """Return how the names are shown that may be told; `row` has them whole."""
    told = [decided(compared), _bare(compared), _unsure(compared), *(_alone(compared, *a) for a in _ALONE)]
    names = [name for rows in told for name in rows["name"].head(MOST_TOLD)]
    return dict(zip(names, names, strict=True)) | shown_names(names)


def _doubts(compared: Diff) -> Iterator[Finding]:
    if not compared.comparable.ok:
        reasons = "; ".join(compared.comparable.reasons)
        yield "not comparable", f"these runs should not be compared: {reasons}", None


def _total(compared: Diff) -> Iterator[Finding]:
    before, after = int(compared.rows["total_a_ns"].sum()), int(compared.rows["total_b_ns"].sum())
    if not before or not after:
        return
    change = units.signed(f"{100 * (after / before - 1):.1f}%", after - before)
    yield "total", f"kernel time {units.duration(before)} → {units.duration(after)} ({change})", None


def _together(compared: Diff) -> Iterator[Finding]:
    """Yield a sentence where most rows that matter moved the same way: machine, clock or setting."""
    rows = compared.rows.filter(
        (pl.col("n_a") > 0) & (pl.col("median_a_ns") > 0) & (pl.col("median_b_ns") > 0)
    )
    rows = rows.filter(pl.col("total_a_ns") + pl.col("total_b_ns") >= 0.01 * _whole(compared))
    for word in ("slower", "faster"):
        moved = rows.filter(pl.col("verdict") == word)
        if rows.height >= 4 and moved.height >= 0.75 * rows.height:
            change = moved.select((pl.col("median_b_ns") / pl.col("median_a_ns") - 1).median()).item()
            yield (
                "together",
                f"{moved.height} of the {rows.height} rows of 1% or more are {word}, by {change:+.0%} in the "
                "middle: something that all of them share, before any one kernel",
                None,
            )


def _whole(compared: Diff) -> int:
    return int(compared.rows["total_a_ns"].sum()) + int(compared.rows["total_b_ns"].sum())


def _changes(compared: Diff, shown: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the largest changes that the evidence supports."""
    for row in decided(compared).head(MOST_TOLD).iter_rows(named=True):
        low, high = (units.duration(row[c]) for c in ("low_ns", "high_ns"))
        change = 100 * row["median_delta_ns"] / row["median_a_ns"] if row["median_a_ns"] else float("inf")
        samples = "runs" if row["spread"] is not None else SAMPLES[row["per"]]
        where = f" in {row['phase']}" if row["phase"] else ""
        beside = " beside the others of its step" if row["freed"] else ""
        before, after = (units.duration(row[c]) for c in ("median_a_ns", "median_b_ns"))
        yield (
            row["verdict"],
            f"{shown[row['name']]} is {row['verdict']}{where}{beside}: {before} → {after} a {row['per']} "
            f"({change:+.1f}%, 95% interval {low} to {high}, {row['n_a']} and {row['n_b']} {samples})",
            row["name"],
        )


def _same_work(a: Run, b: Run, compared: Diff, look: Look, shown: Mapping[str, str]) -> Iterator[Finding]:
    """Yield roles that changed their time and not their bytes, with the rates before and after."""
    rows = decided(compared).filter(pl.col("op").is_not_null(), pl.col("phase") == "decode").head(2)
    by_op = {t.op: t for t in roles(a, b, look)} if rows.height else {}
    for name, op in rows.select("name", "op").iter_rows():
        t, alone = (
            by_op.get(op),
            compared.rows.filter(pl.col("op") == op, pl.col("phase") == "decode").height == 1,
        )
        if t is not None and alone and abs(t.bytes_ratio - 1) < SAME_WORK:
            yield (
                "same work",
                f"{shown.get(name, name)} moves the same {units.size(t.bytes_a)} a decode step in both runs, "
                f"at {_rates(t)}: the work did not change, its speed did",
                name,
            )


def _rates(t: Traffic) -> str:
    return f"{t.bytes_a / t.ns_a:.1f} → {t.bytes_b / t.ns_b:.1f} GB/s"


def _averages(a: Run, b: Run, compared: Diff, shown: Mapping[str, str]) -> Iterator[Finding]:
    """Yield means per launch where a source prints sums alone, or lost records."""
    lost = [(run.name, phase, low, high) for run in (a, b) for phase, low, high in _lost(run)]
    if lost:
        ranges = "; ".join(f"{phase} of {name}: {low} to {high}" for name, phase, low, high in lost)
        most = max(high - low for *_, low, high in lost)
        few = (pl.col("count_a") - pl.col("count_b")).abs() <= most
        calls = int(compared.rows.filter(few)["calls_ns"].abs().sum())
        yield (
            "lost records",
            f"kernels that run equally often were recorded unequally often ({ranges}): records are missing, "
            f"which makes {units.duration(calls)} of the differences of totals; averages are compared",
            None,
        )
    for row in _bare(compared).head(MOST_TOLD if lost else 3).iter_rows(named=True):
        mean_a, mean_b = row["total_a_ns"] / row["count_a"], row["total_b_ns"] / row["count_b"]
        if mean_a > 0:
            yield (
                "average",
                f"{shown[row['name']]}: {units.duration(mean_a)} → {units.duration(mean_b)} a launch "
                f"({mean_b / mean_a - 1:+.1%}, {row['count_a']:,} and {row['count_b']:,} launches); "
                "without a spread this is no verdict",
                row["name"],
            )


def _bare(compared: Diff) -> pl.DataFrame:
    """Return the rows of both sides, of several launches, that no sample decides."""
    rows = compared.rows.filter((pl.col("p").is_null()) & (pl.col("count_a") > 0) & (pl.col("count_b") > 0))
    return rows.filter((pl.col("count_a") > 1) | (pl.col("count_b") > 1))


def _lost(run: Run) -> Iterator[tuple[str, int, int]]:
    for phase, (low, high) in dict(run.meta.get("lost_records", {})).items():
        yield str(phase), int(low), int(high)


def _alone(compared: Diff, word: str, column: str, _side: str) -> pl.DataFrame:
    """Return the rows of one side alone, the longest first."""
    return compared.rows.filter(pl.col("verdict") == word).sort(column, "name", descending=[True, False])


def _appeared(compared: Diff, shown: Mapping[str, str]) -> Iterator[Finding]:
    for word, column, side in _ALONE:
        rows = _alone(compared, word, column, side)
        if rows.height:
            total, whole = int(rows[column].sum()), max(1, int(compared.rows[column].sum()))
            largest = [
                f"{shown[name]} ({units.duration(t)})"
                for name, t in rows.select("name", column).head(3).rows()
            ]
            more = f" and {rows.height - 3} more" if rows.height > 3 else ""
            kernels = "kernel stands" if rows.height == 1 else "kernels stand"
            yield (
                word,
                f"{rows.height} {kernels} in {side} alone, {units.duration(total)} or {total / whole:.1%} of "
                f"its time: {', '.join(largest)}{more}",
                rows["name"][0],
            )


def _laws(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Yield rows whose time grows by another law, or at another slope, than before."""
    if not all(run.has("step") and run.has("op") for run in (a, b)):
        return
    left, right = of_each(lambda run: lines(run, look, "op"), (a, b))
    if left.is_empty() or right.is_empty():
        return
    both = left.join(right, on="op", suffix="_b").filter(
        *(pl.col(c).is_in(["flat", "linear", "step"]) for c in ("law", "law_b")),
        pl.col("axis") == pl.col("axis_b"),
    )
    apart = pl.col("slope_ns_per_1k_b") - pl.col("slope_ns_per_1k")
    error = (pl.col("slope_se_ns_per_1k") ** 2 + pl.col("slope_se_ns_per_1k_b") ** 2).sqrt()
    steeper = (apart.abs() > STEEPER * error) & (apart.abs() > 0.1 * pl.col("slope_ns_per_1k").abs())
    linear = (pl.col("law") == "linear") & (pl.col("law_b") == "linear") & steeper
    changed = both.filter((pl.col("law") != pl.col("law_b")) | linear)
    for row in changed.sort("total_ns", "op", descending=[True, False]).head(5).iter_rows(named=True):
        yield "growth", f"{row['op']} grew {_law(row, '')} and now grows {_law(row, '_b')}", row["op"]


def _law(row: dict[str, Any], side: str) -> str:
    slope, r2 = row[f"slope_ns_per_1k{side}"], row[f"r2{side}"]
    is_line = slope is not None and r2 is not None and row[f"law{side}"] != "step"
    figures = f" ({units.duration(slope)} a token per 1,000 {row['axis']}, R² {r2:.2f})" if is_line else ""
    return f"{row[f'law{side}']}{figures}"


def _unsure(compared: Diff) -> pl.DataFrame:
    """Return the rows that repeats leave undecided."""
    return compared.rows.filter(pl.col("verdict") == "~", pl.col("spread").is_not_null())


def _limits(compared: Diff, look: Look, shown: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what cannot be concluded, why, and what would change that."""
    undecided = compared.rows.filter(pl.col("verdict") == "~")
    if undecided.height:
        how = "; ".join(compared.how)
        share = int(undecided["total_b_ns"].sum()) / max(1, int(compared.rows["total_b_ns"].sum()))
        yield (
            "not concluded",
            f"{undecided.height} rows ({100 * share:.0f}% of the time) are undecided; {how}",
            None,
        )
    sampled = compared.rows.filter(pl.col("p").is_not_null())
    if sampled.height and not look.terms.repeated:
        yield (
            "not concluded",
            "one run a side shows how two runs differ, not how two versions do: what one more run would "
            "differ by is not known; 3 repeats a side would be needed (--a F… --b F…), or identical runs "
            "behind --aa",
            None,
        )
    for row in _unsure(compared).head(3).iter_rows(named=True):
        yield from _repeats(row, look.terms.threshold, shown)


def _repeats(row: dict[str, Any], threshold: float, shown: Mapping[str, str]) -> Iterator[Finding]:
    change = row["median_delta_ns"] / row["median_a_ns"] if row["median_a_ns"] else 0.0
    if abs(change) < threshold or row["p"] <= 0 or change <= -1:
        return
    enough = needed(change, row["spread"], ALPHA * row["p"] / row["p_adjusted"])
    word = f"{enough} repeats a side" if enough else "more than 50 repeats a side, or a quieter machine,"
    yield (
        "not concluded",
        f"{shown[row['name']]}: {change:+.1%} is not decided, since runs of the same differ by "
        f"{row['spread']:.1%} (one standard deviation); {word} would be needed",
        row["name"],
    )
