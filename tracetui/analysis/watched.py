"""What a run that is watched from beside says of itself now: health and figures of a server, its windows."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select

WATCHED: Final = "watched"  # key of a run's meta: whether a folder or a server
SERVER: Final = "server"
OVER: Final = "over"  # the alarm that takes the last one back
_REQUESTS: Final = (("requests running", "running"), ("requests waiting", "waiting"))
_RATES: Final = (("generated tokens/s", "tok/s"), ("prompt tokens/s", "prompt tok/s"))
_LATENCIES: Final = ("TTFT", "ITL")
_STALE_NS: Final = 15 * 10**9
_ESTIMATED: Final = "estimated from the server's histograms"


def sentences(run: Run) -> dict[str, str]:
    """Return what is known at the last moment by its kind: `server`, `latency`, `windows`; empty for a run
    that was not watched so.
    """
    if WATCHED not in run.meta:
        return {}
    figures, words = _newest(run, "counter", "name", "value"), _newest(run, "mark", "path", "name")
    alarm = words.get("alarm", OVER)
    now = {"server": _server(run, figures, words), "latency": _latency(figures)}
    said = {**(now if alarm == OVER else {"server": alarm}), "windows": _windows(run, words)}
    return {kind: text for kind, text in said.items() if text}


def _server(run: Run, figures: Mapping[str, float], words: Mapping[str, str]) -> str:
    if run.meta.get(WATCHED) != SERVER:
        return ""
    name = f"{run.meta.get('producer', 'the server')} at {run.meta.get('server', 'an unknown address')}"
    parts = [f"{figures[key]:,.0f} {word}" for key, word in _REQUESTS if key in figures]
    if "KV cache usage" in figures:
        parts.append(f"KV cache {figures['KV cache usage']:.0f}% full")
    parts += [f"{figures[key]:,.4g} {word}" for key, word in _RATES if key in figures]
    health = f" is {words['health']}" if "health" in words else ""
    return f"{name}{health}{': ' if parts else ''}{', '.join(parts)}"


def _latency(figures: Mapping[str, float]) -> str:
    """Return the latencies of the last seconds; none where no request came through."""
    parts = [
        f"{name} p50 ~{figures[f'{name} p50']:,.3g} ms, p95 ~{figures[f'{name} p95']:,.3g} ms"
        for name in _LATENCIES
        if {f"{name} p50", f"{name} p95"} <= figures.keys()
    ]
    return f"{'; '.join(parts)} ({_ESTIMATED})" if parts else ""


def _windows(run: Run, words: Mapping[str, str]) -> str:
    plan = run.meta.get("windows")
    planned = f"windows of {plan}: " if isinstance(plan, str) and plan[:1].isdecimal() else ""
    return f"{planned}{words['windows']}" if "windows" in words else ""


def _newest(run: Run, kind: str, key: str, value: str) -> dict[str, Any]:
    """Return the last value of each key among the rows of a kind; a figure that comes no more is left out."""
    if not (run.has(key) and run.has(value) and run.has("t")):
        return {}
    rows = select.of_kind(run, kind, ("t", key, value)).drop_nulls(["t", key, value]).sort("t")
    last = rows.with_columns(pl.col(key).cast(pl.String)).unique(key, keep="last", maintain_order=True)
    if value == "value":
        last = last.filter(pl.col("t") >= pl.col("t").max() - _STALE_NS)
    return {str(k): v for k, v in last.select(key, value).iter_rows()}
