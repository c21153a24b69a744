"""What a person asks first: what ran, how fast, and where the time went."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, steps, windows
from tracetui.analysis.kernels import total_tables
from tracetui.analysis.steady import steady_state
from tracetui.analysis.verdict import Verdict, verdicts
from tracetui.look import Look

_RATES: Final = ("decode_tokens_per_s", "prefill_tokens_per_s", "tokens_per_s")
ASKED_FIRST: Final = (
    "model",
    "device",
    "dtype",
    "quant",
    "weights",
    "batch",
    "ranks",
    "prompt_tokens",
    "tokens",
    "context",
    "ttft_ms",
    "prefill_ms",
    "decode_ms",
    "total_ms",
    *_RATES,
    "driver",
    "producer",
    "argv",
    "profiled",
    "truncated",
    "stated_shares",
)
COUNTED: Final = ("batch", "ranks", "prompt_tokens", "tokens", "context", "profiled", "truncated", *_RATES)
MOST_DEVICES: Final = 4  # that are shown one by one
BY: Final = ("phase", "category", "op", "name")
SCHEMA: Final = {
    "part": pl.String(),
    "name": pl.String(),
    "text": pl.String(),
    "count": pl.Int64(),
    "total_ns": pl.Int64(),
    "share": pl.Float64(),
}


def summary_table(run: Run, look: Look, top: int = 10) -> pl.DataFrame:
    """Return what to know first in part `verdict`, facts as text in part `run`, and where the time went by
    phase, category, op and name.
    """
    parts = [pl.DataFrame([_verdict(v) for v in verdicts(run)], schema=SCHEMA), facts(run)]
    if run.has("dur"):
        by = [column for column in BY if run.has(column)]
        tables = total_tables(run, replace(look, group=None, per="total"), by)
        parts += [_where(table, column, top) for table, column in zip(tables, by, strict=True)]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts], how="diagonal")


def _verdict(one: Verdict) -> dict[str, Any]:
    return {"part": "verdict", **asdict(one)}


def facts(run: Run) -> pl.DataFrame:
    """Return what is known of the run as a whole: what it says itself, then what its steps add up to."""
    words = {**stated(run.meta), **_of_steps(run, run.meta)}
    words |= _of_devices(run)
    return _rows("run", list(words), list(words.values()))


def stated(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return what metadata says of what is asked first, by the name that a person reads."""
    told = {k: meta[k] for k in ASKED_FIRST if meta.get(k) not in (None, "", [], {})}
    return {_named(k): _written(k, v) for k, v in told.items()}


def _of_steps(run: Run, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return how many steps each phase has, and the decode rate where the source does not state it."""
    table = steps.paced(run)
    words = {}
    for (phase,), part in table.group_by("phase", maintain_order=True):
        words[f"{phase or 'other'} steps" if phase else "steps"] = f"{int(part['steps'].sum()):,}"
    state = steady_state(run)
    if state and not state.whole:
        words["steady steps"] = f"{state.first}–{state.last} of {state.steps}"
    decode = table.filter(pl.col("phase") == "decode").drop_nulls(["tokens", "took_ns"])
    took = int(decode["took_ns"].sum())
    if took and meta.get("decode_tokens_per_s") in (None, "", [], {}):
        whose = f" (device: {units.duration(took)})" if decode["on_device"].all() else ""
        words["decode tokens/s"] = f"{units.speed(steps.decode_rate(run) or 0)}{whose}"
    return words


def _of_devices(run: Run) -> dict[str, str]:
    """Return how busy each device was and where it idled; of many devices, which are alike, all in one."""
    usages = device_time.usages(run)
    if len(usages) > MOST_DEVICES:
        sums = {f: sum(getattr(u, f) for u in usages) for f in device_time.SUMMED}
        usages = (replace(usages[0], device=f"{len(usages)} devices", **sums),)
    words = {}
    for use in usages:
        name = use.device if len(usages) > 1 or " " in use.device else "GPU"
        within = "in steps" if use.steps else "in all"
        words[f"{name} busy"] = (
            f"{units.share(use.busy_ns / use.span_ns)} of {units.duration(use.span_ns)} {within}"
        )
        if use.idle_ns:
            mostly = "" if use.in_gaps_ns == use.idle_ns else f", {units.duration(use.in_gaps_ns)}"
            where = f"in {use.gaps:,} gap{'s' * (use.gaps > 1)}"
            words[f"{name} idle"] = f"{units.duration(use.idle_ns)}{mostly} {where}"
        for what, whole, exposed in (("copies", use.transfer_ns, use.transfer_exposed_ns),
                                     ("comm", use.comm_ns, use.comm_exposed_ns)):  # fmt: skip
            if whole:
                words[f"{name} {what}"] = f"{units.duration(whole)}, {units.duration(exposed)} exposed"
    return words


def _named(key: str) -> str:
    return units.heading(key).removesuffix(" ms")


def _written(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if not isinstance(value, int | float):
        return str(value)
    if key.endswith("_ms"):
        return units.duration(value * 1e6)
    return units.cell(key, value) if key in COUNTED else str(value)


def _where(table: pl.DataFrame, by: str, top: int) -> pl.DataFrame:
    return table.head(top).select(
        pl.lit(by).alias("part"),
        pl.col(by).cast(pl.String).fill_null("other").alias("name"),
        pl.col("count").cast(pl.Int64),
        "total_ns",
        "share",
    )


def _rows(part: str, names: list[str], texts: list[str]) -> pl.DataFrame:
    frame = pl.DataFrame({"name": names, "text": texts}, schema={"name": pl.String, "text": pl.String})
    return frame.with_columns(part=pl.lit(part))


def scope(run: Run, look: Look) -> list[str]:
    """Return the notes without which the numbers of the summary would mislead."""
    notes = [*windows.scope(run, look, scaled=True), *steps.beside_the_wall(run)]
    if device_time.usages(run):
        notes += map(device_time.sentence, device_time.strays(run))
    if run.meta.get("profiled"):
        notes.append("numbers were taken while profiling: the unprofiled run is faster")
    if run.meta.get("truncated"):
        notes.append("the source was cut short")
    return notes + [f"a guess: {text}" for text in run.meta.get("guess", [])]
