"""Newest state of a run: its machine's figures for a header line, and the health of a watched server."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl
from msgspec import Struct, field

from capture.run import Run
from tracetui.analysis.frames.run_memo import map_chunks
from tracetui.analysis.frames.selection import select_kind, select_timed
from tracetui.analysis.roofline import find_roof
from tracetui.analysis.time.step_sampling import compute_coverage
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

WATCHED: Final = "watched"  # meta key: whether a folder or a server was watched
SERVER: Final = "server"
ALERT_OVER: Final = "over"  # the alarm text that ends the last alarm
_REQUESTS: Final = (("requests running", "running"), ("requests waiting", "waiting"))
_RATES: Final = (("generated tokens/s", "tok/s"), ("prompt tokens/s", "prompt tok/s"))
_LATENCIES: Final = ("TTFT", "ITL")
_REQUEST_PARTS: Final = {
    "queue time": "queued", "prefill time": "prefill", "decode time": "decode", "request time": "in all",
}  # fmt: skip
STALE_NS: Final = 15 * 10**9  # without a sample, after which a counter is unknown
_ESTIMATED: Final = "quantiles from the server's buckets"
_QUANTILES: Final = ("p50", "p95")

AVERAGED_SAMPLES: Final = 5  # newest samples of a counter that are averaged: one second
GAUGES: Final = {
    "running": (("requests running", "requests"),),
    "waiting": (("requests waiting", "requests"),),
    "kv": (("KV cache usage", "%"),),
    "ttft": (("TTFT p50", "ms"),),
    "itl": (("ITL p50", "ms"),),
    "cpu": (("host_cpu_usage", "%"), ("cpu_frequency", "MHz")),
    "gpu": (("gpu_usage", "%"), ("gpu_sm_frequency", "MHz"), ("gpu_power", "W"), ("gpu_temperature", "°C")),
}
_MEMORY: Final = (("gpu_mem_used", "B"), ("process_mem_used", "B"))
_COST: Final = ("capture cost", "%")
_SPEED: Final = ("generated tokens/s", "tok/s")  # by a server's own count
_UNITS: Final = dict(
    [*(figure for figures in GAUGES.values() for figure in figures), *_MEMORY, _COST, _SPEED]
)


def describe_server_status(run: Run) -> dict[str, str]:
    """Describe the newest state: `server`, `latency`, `requests`, `windows`; empty if nothing was watched."""
    if WATCHED not in run.meta:
        return {}
    figures = _find_latest_values(run, "counter", "name", "value")
    texts = _find_latest_values(run, "mark", "path", "name")
    alarm = texts.get("alarm", ALERT_OVER)
    latency = _describe_latency(figures) or _describe_silence(run, figures)
    current = {"server": _describe_load(run, figures, texts), "latency": latency}
    current["requests"] = _describe_request_parts(figures)
    server = current if alarm == ALERT_OVER else {"server": alarm}
    sentences = {**server, "windows": _describe_profiles(run, texts)}
    return {kind: text for kind, text in sentences.items() if text}


def _describe_load(run: Run, figures: Mapping[str, float], texts: Mapping[str, str]) -> str:
    if run.meta.get(WATCHED) != SERVER:
        return ""
    name = f"{run.meta.get('producer', 'the server')} at {run.meta.get('server', 'an unknown address')}"
    parts = [f"{figures[key]:,.0f} {word}" for key, word in _REQUESTS if key in figures]
    if "KV cache usage" in figures:
        parts.append(f"KV cache {figures['KV cache usage']:.0f}% full")
    if "prefix cache hits" in figures:
        parts.append(f"{figures['prefix cache hits']:.0f}% of prompt tokens from its prefix cache")
    parts += [f"{figures[key]:,.4g} {word}" for key, word in _RATES if key in figures]
    if figures.get("preemptions/s"):
        parts.append(f"{figures['preemptions/s']:,.2g} preemptions/s")
    health = f" is {texts['health']}" if "health" in texts else ""
    return f"{name}{health}{': ' if parts else ''}{', '.join(parts)}"


def _describe_latency(figures: Mapping[str, float]) -> str:
    """Describe the latencies of the last seconds; empty if no request completed."""
    parts = [
        f"{name} {_describe_mean(figures, name)}"
        + ", ".join(_describe_quantile(figures, name, quantile) for quantile in _QUANTILES)
        for name in _LATENCIES
        if {f"{name} {p}" for p in _QUANTILES} <= figures.keys()
    ]
    return f"{'; '.join(parts)} ({_ESTIMATED})" if parts else ""


def _describe_mean(figures: Mapping[str, float], name: str) -> str:
    mean = figures.get(f"{name} mean")
    return "" if mean is None else f"mean {mean:,.3g} ms, "


def _describe_quantile(figures: Mapping[str, float], name: str, quantile: str) -> str:
    """Describe a quantile by the bounds of its bucket; by an estimate where they were not recorded."""
    key = f"{name} {quantile}"
    if f"{key} from" in figures and f"{key} to" in figures:
        return f"{quantile} {figures[f'{key} from']:,.3g}–{figures[f'{key} to']:,.3g} ms"
    if f"{key} from" in figures:
        return f"{quantile} > {figures[f'{key} from']:,.3g} ms"
    return f"{quantile} ~{figures[key]:,.3g} ms"


def _describe_request_parts(figures: Mapping[str, float]) -> str:
    parts = [
        f"{word} {figures[f'{name} mean']:,.3g} ms"
        for name, word in _REQUEST_PARTS.items()
        if f"{name} mean" in figures
    ]
    return f"finished requests, mean: {', '.join(parts)}" if parts else ""


def _describe_silence(run: Run, figures: Mapping[str, float]) -> str:
    """Describe since when no latency came; empty if none came before."""
    if not figures or not (run.has("name") and run.has("t") and run.has("value")):
        return ""
    rows = select_kind(run, "counter", ("t", "name"))
    is_latency = pl.col("name").cast(pl.String).str.starts_with("ITL p50")
    last, newest = rows.select(pl.col("t").filter(is_latency).max(), pl.col("t").max().alias("newest")).row(0)
    return "" if last is None else f"no token for {(newest - last) / 1e9:,.0f} s: no latencies"


def _describe_profiles(run: Run, texts: Mapping[str, str]) -> str:
    plan = run.meta.get("windows")
    planned = f"windows of {plan}: " if isinstance(plan, str) and plan[:1].isdecimal() else ""
    return f"{planned}{texts['windows']}" if "windows" in texts else ""


def _find_latest_values(run: Run, kind: str, key: str, value: str) -> dict[str, Any]:
    """Return the last value of each key among rows of a kind, without figures that stopped arriving."""
    if not (run.has(key) and run.has(value) and run.has("t")):
        return {}
    rows = select_kind(run, kind, ("t", key, value)).drop_nulls(["t", key, value]).sort("t")
    last = rows.with_columns(pl.col(key).cast(pl.String)).unique(key, keep="last", maintain_order=True)
    if value == "value":
        last = last.filter(pl.col("t") >= pl.col("t").max() - STALE_NS)
    return {str(k): v for k, v in last.select(key, value).iter_rows()}


class Vitals(Struct, frozen=True):
    """Newest figures; None if unknown, no gauge of a device that was not sampled."""

    context: int | None = None
    memory: float | None = None  # bytes in use: of the GPU if there is one, else of the process
    read_share: float | None = None  # of the memory bandwidth, in decode
    read_roof: float | None = None  # bytes per second
    capture_pct: float | None = None
    tokens_per_s: float | None = None  # of a server, by its own count
    gauges: dict[str, tuple[tuple[float | None, str], ...]] = field(default_factory=dict)


def compute_vitals(run: Run) -> Vitals:
    """Return the newest state of a run."""
    newest, roof = _find_newest_counters(run), find_roof(run)
    read_roof = roof.memory_bytes_per_s or None if roof else None
    contexts = build_step_facts(run)["context"].drop_nulls()
    has_context = contexts.len() and run.meta.get(WATCHED) != SERVER  # of one request
    gauges = {
        device: tuple((newest.get(figure), figure[1]) for figure in figures)
        for device, figures in GAUGES.items()
        if any(figure in newest for figure in figures)
    }
    return Vitals(
        context=int(contexts[-1]) if has_context else None,
        memory=next((newest[figure] for figure in _MEMORY if figure in newest), None),
        read_share=_compute_read_share(run, read_roof) if read_roof else None,
        read_roof=read_roof,
        capture_pct=newest.get(_COST),
        tokens_per_s=newest.get(_SPEED),
        gauges=gauges,
    )


def _find_newest_counters(run: Run) -> dict[tuple[str, str], float]:
    """Return each counter's last second by name and unit, of several devices the first."""
    if not run.has("value"):
        return {}
    samples = [rows for rows in map_chunks(run, "gauges", _select_gauges) if rows is not None]
    if not samples:
        return {}
    name, no_text = pl.col("name").cast(pl.String), pl.lit(None, pl.String)
    track, unit = (pl.col(c).cast(pl.String) if run.has(c) else no_text for c in ("track", "unit"))
    order = pl.col("t") if run.has("t") else pl.int_range(pl.len())
    expected = name.replace_strict(_UNITS, return_dtype=pl.String)
    columns = {"track": track, "unit": unit, "at": order, "expected": expected}
    rows = pl.concat(samples).lazy().select(name, "value", **columns)
    rows = rows.filter(pl.col("unit").fill_null(pl.col("expected")) == pl.col("expected")).sort("at")
    means = rows.group_by("name", "expected", "track").agg(pl.col("value").tail(AVERAGED_SAMPLES).mean())
    means = means.sort(pl.col("track").str.len_chars(), "track", nulls_last=False)
    first = means.unique("name", keep="first", maintain_order=True).select("name", "expected", "value")
    return {(name, unit): value for name, unit, value in first.collect().iter_rows()}


def _select_gauges(events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the samples of these counters among some events; None without any."""
    counters = (events["kind"] == "counter").arg_true()
    if counters.is_empty():
        return None
    columns = [c for c in ("name", "value", "track", "t", "unit") if c in events.columns]
    is_gauge = pl.col("name").cast(pl.String).is_in(list(_UNITS)) & pl.col("value").is_not_null()
    rows = events[counters, columns].filter(is_gauge)
    return rows if rows.height else None


def _compute_read_share(run: Run, roof: float) -> float | None:
    """Return the memory traffic of decode steps per wall time, as a share of the roof; None if unknown.

    If the kernels do not report all traffic, that of the weights alone.
    """
    walls = build_step_facts(run).filter((pl.col("phase") == "decode") & (pl.col("wall_ns") > 0))
    traffic = _sum_traffic(run, walls) or _estimate_weight_traffic(run, walls)
    if traffic is None:
        return None
    moved, wall = traffic
    return moved / (wall / 1e9) / roof if moved and wall else None


def _sum_traffic(run: Run, walls: pl.DataFrame) -> tuple[float, int] | None:
    """Return the bytes moved by the kernels of these steps, and their wall time; None if unknown."""
    is_sampled = compute_coverage(run, Look()) is not None
    if is_sampled or not (run.has("bytes") and run.has("step") and run.has("dur")):
        return None
    rows = select_timed(run, Look()).group_by("step")
    moved = rows.agg(pl.col("bytes").sum(), gaps=pl.col("bytes").null_count()).collect()
    sums = walls.join(moved, on="step").select(pl.col("bytes", "wall_ns", "gaps").sum())
    total, wall, unknown = sums.row(0)
    return (total, wall) if total and not unknown else None


def _estimate_weight_traffic(run: Run, walls: pl.DataFrame) -> tuple[float, int] | None:
    """Return the bytes of weights read, once per pass, and the wall time; None if unknown."""
    size = run.meta.get("bytes_per_token")
    if isinstance(size, bool) or not isinstance(size, int | float) or size <= 0:
        return None
    timed = walls.filter(pl.col("tokens").is_not_null())
    passes = timed.select((pl.col("tokens") / pl.col("batch").fill_null(1).clip(1)).sum()).item()
    return size * passes, int(timed["wall_ns"].sum())
