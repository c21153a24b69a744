"""Sentences about a comparison, each with its numbers and its row; the last state what is not concluded."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import polars as pl

from capture.run import Run
from capture.tasks import run_parallel
from tracetui import units
from tracetui.analysis.frames.display_names import map_names_in
from tracetui.analysis.frames.statistics import ALPHA
from tracetui.analysis.growth import compute_growth_lines
from tracetui.compare import params
from tracetui.compare.causes import Finding, compute_role_traffic, iter_causes
from tracetui.compare.diff import Diff
from tracetui.compare.evidence.sample_size import compute_required_runs
from tracetui.compare.words.decision import select_decided_rows
from tracetui.look import Look

SAMPLES: Final = {"token": "steps", "step": "steps", "launch": "launches"}
_ONE_SIDED: Final = (("new", "total_b_ns", "b"), ("gone", "total_a_ns", "a"))  # verdict, time, side
_SCHEMA: Final = {"kind": pl.String, "finding": pl.String, "row": pl.String}


def list_findings(compared: Diff, look: Look) -> pl.DataFrame:
    """List kind, finding and row, most important first."""
    a, b = compared.sides
    names = map_names_in(compared.rows, compared.sides)
    findings = [
        *_iter_comparability(compared),
        *_iter_total(compared),
        *iter_causes(a, b, look, compares_steps=compared.comparability.ok),
        *_iter_common_change(compared),
        *_iter_changes(compared, names),
        *_iter_same_work(a, b, compared, look, names),
        *_iter_lost_records(a, b, compared),
        *_iter_averages(a, b, compared, names),
        *_iter_one_sided(compared, names),
        *_iter_growth_changes(a, b, look),
        *_iter_limits(compared, look, names),
    ]
    return pl.DataFrame(findings, schema=_SCHEMA, orient="row")


def _iter_comparability(compared: Diff) -> Iterator[Finding]:
    if not compared.comparability.ok:
        reasons = "; ".join(compared.comparability.reasons)
        yield "not comparable", f"these runs should not be compared: {reasons}", None


def _iter_total(compared: Diff) -> Iterator[Finding]:
    before, after = int(compared.rows["total_a_ns"].sum()), int(compared.rows["total_b_ns"].sum())
    if before and after:
        change = units.with_plus(f"{100 * (after / before - 1):.1f}%", after - before)
        times = f"{units.format_duration(before)} → {units.format_duration(after)}"
        yield "total", f"kernel time {times} ({change})", None


def _iter_common_change(compared: Diff) -> Iterator[Finding]:
    """Yield that most large rows changed the same way: the machine, its clock or a setting."""
    total_ns = int(compared.rows["total_a_ns"].sum()) + int(compared.rows["total_b_ns"].sum())
    is_large = pl.col("total_a_ns") + pl.col("total_b_ns") >= params.NEGLIGIBLE * total_ns
    has_medians = (pl.col("n_a") > 0) & (pl.col("median_a_ns") > 0) & (pl.col("median_b_ns") > 0)
    rows = compared.rows.filter(has_medians & is_large)
    if rows.height < params.MIN_ROWS:
        return
    for verdict in ("slower", "faster"):
        changed = rows.filter(pl.col("verdict") == verdict)
        if changed.height >= params.MOST * rows.height:
            change = changed.select((pl.col("median_b_ns") / pl.col("median_a_ns") - 1).median()).item()
            sentence = (
                f"{changed.height} of the {rows.height} rows of 1% or more are {verdict}, by a median of "
                f"{change:+.0%}: look for a cause that they share before any single kernel"
            )
            yield "together", sentence, None


def _iter_changes(compared: Diff, names: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the largest changes that have a verdict."""
    for row in select_decided_rows(compared).head(params.MAX_NAMED).iter_rows(named=True):
        low, high = (units.format_duration(row[c]) for c in ("low_ns", "high_ns"))
        change = 100 * row["median_delta_ns"] / row["median_a_ns"] if row["median_a_ns"] else float("inf")
        samples = "runs" if row["spread"] is not None else SAMPLES[row["per"]]
        where = f" in {row['phase']}" if row["phase"] else ""
        relative = ", relative to the others of its step" if row["is_relative"] else ""
        before, after = (units.format_duration(row[c]) for c in ("median_a_ns", "median_b_ns"))
        lead = f"{names.get(row['name'], row['name'])} is {row['verdict']}{where}{relative}"
        side = "count" if samples == SAMPLES["launch"] else "n"  # launches give one value per run
        counts = f"{row[f'{side}_a']:,} and {row[f'{side}_b']:,} {samples}"
        basis = f"95% interval {low} to {high}, {counts}"
        times = f"{before} → {after} per {row['per']} ({change:+.1f}%, {basis})"
        yield row["verdict"], f"{lead}: {times}", row["name"]


def _iter_same_work(
    a: Run, b: Run, compared: Diff, look: Look, names: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield ops whose time changed but not their bytes, with the rates before and after."""
    in_decode = pl.col("op").is_not_null(), pl.col("phase") == "decode"
    rows = select_decided_rows(compared).filter(*in_decode).head(2)
    traffic = {t.op: t for t in compute_role_traffic(a, b, look)} if rows.height else {}
    for name, op in rows.select("name", "op").iter_rows():
        t = traffic.get(op)
        is_only_row = compared.rows.filter(pl.col("op") == op, pl.col("phase") == "decode").height == 1
        if t is not None and is_only_row and abs(t.bytes_ratio - 1) < params.NEGLIGIBLE:
            size = f"the same {units.format_size(t.bytes_a)} per decode step in both runs"
            sentence = f"{names.get(name, name)} moves {size}, at {t.rates}"
            yield "same work", f"{sentence}: its speed changed, not its work", name


def _iter_lost_records(a: Run, b: Run, compared: Diff) -> Iterator[Finding]:
    """Yield that records are missing, if kernels that run equally often were not recorded equally often."""
    losses = [(run.name, *loss) for run in (a, b) for loss in _list_lost_records(run)]
    if losses:
        ranges = "; ".join(f"{phase} of {name}: {low} to {high}" for name, phase, low, high in losses)
        max_lost = max(high - low for *_, low, high in losses)
        may_be_lost = (pl.col("count_a") - pl.col("count_b")).abs() <= max_lost
        calls_ns = int(compared.rows.filter(may_be_lost)["calls_ns"].abs().sum())
        lost = f"kernels that run equally often have unequal numbers of records ({ranges})"
        explained = f"the missing ones explain {units.format_duration(calls_ns)} of the differences of totals"
        yield "lost records", f"{lost}: {explained}; averages are compared", None


def _list_lost_records(run: Run) -> list[tuple[str, int, int]]:
    """List phase, fewest and most records of kernels that run equally often."""
    lost = dict(run.meta.get("lost_records", {}))
    return [(str(phase), int(low), int(high)) for phase, (low, high) in lost.items()]


def _iter_averages(a: Run, b: Run, compared: Diff, names: Mapping[str, str]) -> Iterator[Finding]:
    """Yield means per launch if a source prints only sums, or lost records."""
    has_losses = any(_list_lost_records(run) for run in (a, b))
    limit = params.MAX_NAMED if has_losses else params.MAX_EXAMPLES
    for row in _select_unsampled(compared).head(limit).iter_rows(named=True):
        mean_a, mean_b = row["total_a_ns"] / row["count_a"], row["total_b_ns"] / row["count_b"]
        if mean_a > 0:
            means = f"{units.format_duration(mean_a)} → {units.format_duration(mean_b)} per launch"
            counts = f"{row['count_a']:,} and {row['count_b']:,} launches"
            sentence = (
                f"{names.get(row['name'], row['name'])}: {means} ({mean_b / mean_a - 1:+.1%}, {counts})"
            )
            yield "average", f"{sentence}; no verdict without a spread", row["name"]


def _select_unsampled(compared: Diff) -> pl.DataFrame:
    """Select the rows of both sides, of several launches, that have no samples."""
    is_on_both = (pl.col("count_a") > 0) & (pl.col("count_b") > 0)
    has_several = (pl.col("count_a") > 1) | (pl.col("count_b") > 1)
    return compared.rows.filter(pl.col("p").is_null() & is_on_both & has_several)


def _select_one_sided(compared: Diff, verdict: str, column: str) -> pl.DataFrame:
    """Select the rows of one side only, longest first."""
    return compared.rows.filter(pl.col("verdict") == verdict).sort(column, "name", descending=[True, False])


def _iter_one_sided(compared: Diff, names: Mapping[str, str]) -> Iterator[Finding]:
    limit = params.MAX_EXAMPLES
    for verdict, column, side in _ONE_SIDED:
        rows = _select_one_sided(compared, verdict, column)
        if rows.height:
            time, total = int(rows[column].sum()), max(1, int(compared.rows[column].sum()))
            first = rows.select("name", column).head(limit).rows()
            largest = [f"{names.get(name, name)} ({units.format_duration(t)})" for name, t in first]
            more = f" and {rows.height - limit} more" if rows.height > limit else ""
            kernels = "kernel is" if rows.height == 1 else "kernels are"
            share = f"{units.format_duration(time)} or {time / total:.1%} of its time"
            sentence = f"{rows.height} {kernels} only in {side}, {share}: {', '.join(largest)}{more}"
            yield verdict, sentence, rows["name"][0]


def _iter_growth_changes(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Yield ops whose time grows by another law, or with another slope, than before."""
    if not all(run.has("step") and run.has("op") for run in (a, b)):
        return
    left, right = run_parallel([partial(compute_growth_lines, run, look, "op") for run in (a, b)])
    if left.is_empty() or right.is_empty():
        return
    both = left.join(right, on="op", suffix="_b").filter(
        *(pl.col(c).is_in(["flat", "linear", "step"]) for c in ("law", "law_b")),
        pl.col("axis") == pl.col("axis_b"),
    )
    difference = (pl.col("slope_ns_per_1k_b") - pl.col("slope_ns_per_1k")).abs()
    error = (pl.col("slope_se_ns_per_1k") ** 2 + pl.col("slope_se_ns_per_1k_b") ** 2).sqrt()
    is_large = difference > params.MIN_CHANGE * pl.col("slope_ns_per_1k").abs()
    are_linear = (pl.col("law") == "linear") & (pl.col("law_b") == "linear")
    has_new_slope = are_linear & (difference > params.SLOPE_CHANGE_SE * error) & is_large
    changed = both.filter((pl.col("law") != pl.col("law_b")) | has_new_slope)
    changed = changed.sort("total_ns", "op", descending=[True, False])
    for row in changed.head(params.MAX_NAMED).iter_rows(named=True):
        sentence = f"{row['op']} grew {_format_law(row, '')} and now grows {_format_law(row, '_b')}"
        yield "growth", sentence, row["op"]


def _format_law(row: dict[str, Any], side: str) -> str:
    slope, r2 = row[f"slope_ns_per_1k{side}"], row[f"r2{side}"]
    if row[f"law{side}"] != "linear":
        return str(row[f"law{side}"])
    line = f"{units.format_duration(slope)} per token per 1,000 {row['axis']}"
    return f"{row[f'law{side}']} ({line}, R² {r2:.2f})"


def _select_undecided(compared: Diff) -> pl.DataFrame:
    """Select the rows that repeats leave undecided."""
    return compared.rows.filter(pl.col("verdict") == "~", pl.col("spread").is_not_null())


def _iter_limits(compared: Diff, look: Look, names: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what cannot be concluded, why, and what would change that."""
    undecided = compared.rows.filter(pl.col("verdict") == "~")
    if undecided.height:
        share = int(undecided["total_b_ns"].sum()) / max(1, int(compared.rows["total_b_ns"].sum()))
        count = f"{undecided.height} rows ({100 * share:.0f}% of the time) are undecided"
        yield "not concluded", f"{count}; {'; '.join(compared.notes)}", None
    if compared.rows["p"].is_not_null().any() and not compared.sides.has_repeats:
        yield (
            "not concluded",
            "one run per side shows how two runs differ, not how two versions differ, because the run-to-run "
            "spread is unknown; 3 repeats per side would be needed (--a F… --b F…), or identical runs (--aa)",
            None,
        )
    for row in _select_undecided(compared).head(params.MAX_EXAMPLES).iter_rows(named=True):
        yield from _iter_required_repeats(row, look.terms.threshold, names)


def _iter_required_repeats(
    row: dict[str, Any], threshold: float, names: Mapping[str, str]
) -> Iterator[Finding]:
    change = row["median_delta_ns"] / row["median_a_ns"] if row["median_a_ns"] else 0.0
    if abs(change) < threshold or row["p"] <= 0 or change <= -1:
        return
    runs = compute_required_runs(change, row["spread"], ALPHA * row["p"] / row["p_adjusted"])
    too_many = f"more than {params.MAX_RUNS_PER_SIDE} repeats per side, or a quieter machine,"
    needed = f"{runs} repeats per side" if runs else too_many
    spread = f"the run-to-run spread is {row['spread']:.1%} (one standard deviation)"
    name = names.get(row["name"], row["name"])
    sentence = f"{name}: {change:+.1%} is undecided, because {spread}; {needed} would be needed"
    yield "not concluded", sentence, row["name"]
