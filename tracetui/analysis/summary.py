"""The first screen of a run, or of many: what ran, how fast, and where the time went."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import polars as pl
from msgspec import structs

from capture.clean_text import clean
from capture.run import Run
from tracetui import units
from tracetui.analysis.energy import describe_energy
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.line_fit import MAD_TO_SD
from tracetui.analysis.kernels import compute_total_tables, with_shares
from tracetui.analysis.key_facts import find_key_facts
from tracetui.analysis.merged.partial_results import MEMBERS, FrameShape, PartialResult
from tracetui.analysis.time import device_time
from tracetui.analysis.time.device_time import compute_usages, describe_stray_kernels, find_stray_kernels
from tracetui.analysis.time.steady import find_steady_state
from tracetui.analysis.time.step_sampling import (
    UnprofiledStep,
    compare_profiled_steps,
    compute_scaled_total,
    estimate_unprofiled_step,
    estimate_unwatched_step,
    note_lens_and_sampling,
)
from tracetui.analysis.time.step_table import compute_decode_rate, compute_step_durations, note_device_rates
from tracetui.look import Look, Price

_RATES: Final = ("decode_tokens_per_s", "prefill_tokens_per_s", "tokens_per_s")
METADATA_KEYS: Final = (
    "model", "device", "dtype", "quant", "weights", "batch", "ranks", "prompt_tokens", "tokens", "context",
    "ttft_ms", "prefill_ms", "decode_ms", "total_ms", *_RATES, "driver", "detail", "producer", "argv",
    "profiled", "truncated", "stated_shares",
)  # fmt: skip
COUNT_KEYS: Final = ("batch", "ranks", "prompt_tokens", "tokens", "context", "profiled", "truncated", *_RATES)
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})  # metadata that says nothing
MAX_LISTED_DEVICES: Final = 4  # devices listed one by one
GROUPINGS: Final = ("phase", "category", "op", "name")
SCHEMA: Final = dict.fromkeys(("part", "name", "text"), pl.String()) | {
    "count": pl.Int64(), "total_ns": pl.Int64(), "share": pl.Float64(),
}  # fmt: skip
SHAPES: Final = {
    "where": FrameShape(("part", "name"), {"count": "sum", "total_ns": "sum"}),
    "phases": FrameShape(("phase",), {"fewest": "low", "most": "high"}),
    "lacking": FrameShape(("view", "needs"), {"runs": "sum"}),
}
MAX_ROWS: Final = 10  # of each grouping, and of outliers
OUTLIER_SD: Final = 5.0  # SDs from the median at which a file is an outlier
MIN_OUTLIER_SHARE: Final = 0.02  # of the median: a file that is nearer to it is no outlier
MIN_FILES: Final = 4  # fewer are not searched for outliers


def compute_summary_table(run: Run, look: Look) -> pl.DataFrame:
    """Return key facts as part `verdict`, metadata as part `run`, and where the time went by grouping."""
    key_facts = [{"part": "verdict", **asdict(fact)} for fact in find_key_facts(run)]
    tables = [pl.DataFrame(key_facts, schema=SCHEMA), build_run_facts(run, look.price)]
    tables += [table.head(MAX_ROWS) for table in _sum_by_grouping(run, look)]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *tables], how="diagonal")


def _sum_by_grouping(run: Run, look: Look) -> list[pl.DataFrame]:
    """Return for each grouping the totals and shares of its values, largest first."""
    groupings = [c for c in GROUPINGS if run.has(c)] if run.has("dur") else []
    tables = compute_total_tables(run, replace(look, group=None, per="total"), groupings) if groupings else []
    return [
        table.select(
            pl.lit(by).alias("part"),
            pl.col(by).cast(pl.String).fill_null(units.ABSENT).alias("name"),
            pl.col("count").cast(pl.Int64),
            "total_ns",
            "share",
        )
        for table, by in zip(tables, groupings, strict=True)
    ]


def build_run_facts(run: Run, price: Price | None = None) -> pl.DataFrame:
    """Return facts of the unfiltered run: metadata, then figures computed from steps, devices and power."""
    facts = describe_metadata(run.meta) | _describe_steps(run) | _describe_devices(run)
    return _build_run_rows(facts | describe_energy(run, price))


def describe_metadata(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of METADATA_KEYS by heading."""
    values = {k: meta[k] for k in METADATA_KEYS if meta.get(k) not in _EMPTY}
    return {units.format_heading(k).removesuffix(" ms"): _format_value(k, v) for k, v in values.items()}


def _describe_steps(run: Run) -> dict[str, str]:
    """Return the number of steps per phase, and the decode rate if the source does not report it."""
    table = compute_step_durations(run)
    texts = {_name_steps(phase): f"{steps:,}" for phase, steps in _count_steps(run).rows()}
    state = find_steady_state(run)
    if state and not state.is_complete:
        texts["steady steps"] = state.numbers
    texts |= _describe_cost(run) | _describe_profiled(run)
    decode = table.filter(pl.col("phase") == "decode").drop_nulls(["tokens", "took_ns"])
    took_ns = int(decode["took_ns"].sum())
    if took_ns and run.meta.get("decode_tokens_per_s") in _EMPTY:
        basis = f" (device: {units.format_duration(took_ns)})" if decode["on_device"].all() else ""
        texts["decode tokens/s"] = f"{units.format_speed(compute_decode_rate(run) or 0)}{basis}"
    return texts


def _describe_cost(run: Run) -> dict[str, str]:
    """Describe the time of a step without the rows of its modules; empty without such steps."""
    step = estimate_unwatched_step(run)
    if step is None:
        return {}
    unwatched, low, high, watched = map(units.format_duration, step)
    cost = units.format_change(100 * (step.watched_ns / step.unwatched_ns - 1))
    return {"unwatched": f"{unwatched} a step ({low} to {high}); watched {watched}, {cost}"}


def _describe_profiled(run: Run) -> dict[str, str]:
    """Describe the steps under the program's own profiler, and the time of the others; empty without such."""
    steps, estimate = compare_profiled_steps(run), estimate_unprofiled_step(run)
    if estimate is not None:
        return {"unprofiled": _describe_estimate(estimate)}
    if steps is None:
        return {}
    count = " ".join(filter(None, (f"{steps.profiled:,} of {steps.steps:,}", steps.phase, "steps")))
    times = "" if steps.profiled_ns is None else f", {units.format_duration(steps.profiled_ns)} a step"
    unprofiled = "unsure, too few steps"
    if steps.unprofiled_ns is not None:
        middle, low, high = map(units.format_duration, steps.unprofiled_ns)
        unprofiled = f"{middle} a step ({low} to {high})"
    return {"profiled by the program": f"{count}{times}", "unprofiled": unprofiled}


def _describe_estimate(step: UnprofiledStep) -> str:
    """Describe what a step of a trace takes without the profiler, and whose cost of it is assumed."""
    if step.unprofiled_ns is None:
        return "unsure: the profiler's part is too large, or its steps differ too much"
    middle, low, high = map(units.format_duration, step.unprofiled_ns)
    profiled = units.format_duration(step.profiled_ns)
    return f"{middle} a step ({low} to {high}); profiled {profiled}, cost measured on {clean(step.host, 40)}"


def _count_steps(run: Run) -> pl.DataFrame:
    """Return the number of steps of each phase."""
    steps = compute_step_durations(run).group_by("phase", maintain_order=True)
    return steps.agg(pl.col("steps").sum().cast(pl.Int64))


def _name_steps(phase: str | None) -> str:
    return f"{phase} steps" if phase else "steps"


def _describe_devices(run: Run) -> dict[str, str]:
    """Return the busy and idle time of each device; many devices are added up."""
    usages = compute_usages(run)
    if len(usages) > MAX_LISTED_DEVICES:
        sums = {f: sum(getattr(u, f) for u in usages) for f in device_time.SUMMED_FIELDS}
        usages = (structs.replace(usages[0], device=f"{len(usages)} devices", **sums),)
    texts = {}
    for usage in usages:
        name = usage.device if len(usages) > 1 or " " in usage.device else "GPU"
        basis = "in steps" if usage.steps else "in all"
        busy = units.format_share(usage.busy_ns / usage.span_ns)
        texts[f"{name} busy"] = f"{busy} of {units.format_duration(usage.span_ns)} {basis}"
        if usage.idle_ns:
            is_all = usage.in_gaps_ns == usage.idle_ns
            named = "" if is_all else f", {units.format_duration(usage.in_gaps_ns)}"
            gaps = f"in {usage.gaps:,} gap{'s' * (usage.gaps > 1)}"
            texts[f"{name} idle"] = f"{units.format_duration(usage.idle_ns)}{named} {gaps}"
        copies, comm = (usage.transfer_ns, usage.transfer_exposed_ns), (usage.comm_ns, usage.comm_exposed_ns)
        for what, times in (("copies", copies), ("comm", comm)):
            if times[0]:
                total, exposed = map(units.format_duration, times)
                texts[f"{name} {what}"] = f"{total}, {exposed} exposed"
    return texts


def _format_value(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if not isinstance(value, int | float):
        return str(value)
    if key.endswith("_ms"):
        return units.format_duration(value * 1e6)
    return units.format_cell(key, value) if key in COUNT_KEYS else str(value)


def _build_run_rows(texts: Mapping[str, str]) -> pl.DataFrame:
    rows = [("run", name, text) for name, text in texts.items()]
    return pl.DataFrame(rows, schema=dict.fromkeys(("part", "name", "text"), pl.String), orient="row")


def note_summary(run: Run, look: Look) -> list[str]:
    """Return the notes without which the summary would mislead."""
    notes = [*note_lens_and_sampling(run, look, scaled=True), *note_device_rates(run)]
    if compute_usages(run):
        notes += map(describe_stray_kernels, find_stray_kernels(run))
    if run.meta.get("profiled") and estimate_unprofiled_step(run) is None:
        notes.append("recorded while profiling: the unprofiled run is faster, by an unknown time")
    if run.meta.get("truncated"):
        notes.append("the source is truncated")
    return notes + [f"a guess: {text}" for text in run.meta.get("guess", [])]


def sum_summary(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the contribution of a run to the summary of many: times by label, steps by phase, total time."""
    where = pl.concat([pl.DataFrame(schema=SCHEMA), *_sum_by_grouping(run, look)], how="diagonal")
    phase = pl.col("phase").cast(pl.String).fill_null("")
    phases = _count_steps(run).select(phase, fewest="steps", most="steps")
    total_ns = None
    if run.has("dur"):
        unfiltered = replace(look, group=None, per="total", filter="")
        total_ns = compute_scaled_total(run, unfiltered, selection.select_in_steps(run, unfiltered))
    facts = {"total_ns": pl.Series([total_ns], dtype=pl.Int64), "listed": [bool(run.meta.get("listed"))]}
    return {
        "where": where.select("part", "name", "count", "total_ns"),
        "phases": phases,
        MEMBERS: pl.DataFrame(facts),
    }


def build_merged_summary(merged: PartialResult) -> pl.DataFrame:
    """Return facts in part `run`, outliers, and where the time of all files went."""
    members = merged.members
    total_ns = 0 if members["listed"].any() else int(members["total_ns"].sum())
    where = with_shares(merged.frames["where"], "name", total_ns)
    largest = where.group_by("part", maintain_order=True).head(MAX_ROWS)
    by_part = [largest.filter(part=column) for column in GROUPINGS]
    outliers = pl.DataFrame(find_outliers(members), schema=SCHEMA)
    tables = [_build_run_rows(_describe_files(merged)), outliers]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *tables, *by_part], how="diagonal").select(list(SCHEMA))


def _describe_files(merged: PartialResult) -> dict[str, str]:
    """Return the metadata that all runs share, their number, their steps and their total times."""
    members = merged.members
    files = members["member"].n_unique()
    facts = {"files": f"{files:,}"} | ({"runs": f"{members.height:,}"} if members.height != files else {})
    facts |= describe_metadata(merged.meta)
    for phase, fewest, most in merged.frames["phases"].select("phase", "fewest", "most").rows():
        facts[_name_steps(phase)] = f"{fewest:,}–{most:,}" if most != fewest else f"{fewest:,}"
    times = members["total_ns"].drop_nulls()
    if times.len():
        extremes = times.median(), times.min(), times.max()
        median, least, most = (units.format_duration(_to_number(x)) for x in extremes)
        facts |= {"time of a run": f"{median} at the median", "least, most": f"{least}, {most}"}
    return facts


def find_outliers(members: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the files whose total time is far from the median of all, farthest first."""
    timed = members.drop_nulls("total_ns")
    median = _to_number(timed["total_ns"].median())
    if timed.height < MIN_FILES or not median:
        return []
    timed = timed.with_columns(distance=(pl.col("total_ns") - median).abs())
    sd = MAD_TO_SD * _to_number(timed["distance"].median())
    outliers = timed.filter(pl.col("distance") > max(OUTLIER_SD * sd, MIN_OUTLIER_SHARE * median))
    outliers = outliers.sort("distance", "source", descending=[True, False]).head(MAX_ROWS)
    times = [
        (source.rpartition("/")[2], f"{units.format_duration(ns)}, {ns / median:.2f} times the median")
        for source, ns in outliers.select("source", "total_ns").rows()
    ]
    return [{"part": "outlier", "name": name, "text": text} for name, text in times]


def _to_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
