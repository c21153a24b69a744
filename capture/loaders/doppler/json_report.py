"""Doppler's JSON reports: the run's figures, and profile steps where the profiler was on.

Read: single reports and comparisons; every figure is kept in a table. Not read: texts of the model.
Doppler: https://github.com/clocksmith/doppler
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._json_document import document
from capture.loaders._numbers import MILLISECOND, exact, number
from capture.loaders._rows import frame_of
from capture.loaders.doppler.profile_blocks import SCHEMA, Block, Clock, events, is_whole, totals
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "doppler-json"
PRODUCER: Final = "the Doppler WebGPU engine's reports and benchmark results"
HOWTO: Final = "run a Doppler suite with its profiler on and take the report that it saves"

_KEYS: Final = tuple(re.compile(rf'"(?:{key})"\s*:') for key in ("suite", "modelId", "timing|metrics"))
_DEEPEST: Final = 12
_SIZE: Final = re.compile(r"bytes|used|allocated|reserved|peak|limit|total", re.IGNORECASE)
_STEPS: Final = (("prefill", "prefillProfileSteps"), ("decode", "decodeProfileSteps"))
_META: Final = {
    "firstTokenMs": "ttft_ms", "prefillMs": "prefill_ms", "decodeMs": "decode_ms", "modelLoadMs": "load_ms",
    "totalRunMs": "total_ms", "decodeTokensPerSec": "decode_tokens_per_s",
    "prefillTokensPerSec": "prefill_tokens_per_s", "prefillTokens": "prompt_tokens",
    "avgPrefillTokens": "prompt_tokens", "decodeTokens": "tokens", "avgDecodeTokens": "tokens",
    "maxTokens": "max_tokens", "prompt": "prompt", "kernelPathId": "kernel_path",
}  # fmt: skip
_IDENTITY: Final = {"suite": "suite", "modelId": "model", "cacheMode": "cache", "timestamp": "timestamp"}


def sniff(head: Head) -> bool:
    return head.start.startswith(("{", "[")) and all(key.search(head.text) for key in _KEYS)


def load(source: Source) -> list[Run]:
    found = _reports(document(source, parse_float=Decimal), _DEEPEST)
    runs = [_run(report, source.log) for report in found]
    return [with_log(run, source.log) for run in runs]


def _reports(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield every report in the document; a comparison wraps several."""
    if (
        isinstance(value, dict)
        and {"suite", "modelId"} <= value.keys()
        and value.keys() & {"timing", "metrics"}
    ):
        yield value
    elif depth and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _reports(inner, depth - 1)


def _run(report: dict[str, Any], log: Log) -> Run:
    metrics, timing = _object(report.get("metrics")), _object(report.get("timing"))
    meta = _meta(report, metrics, timing)
    blocks = [b for phase, key in _STEPS for b in _blocks(metrics.get(key), phase, log)]
    clock = _clock(meta, blocks)
    rows, guesses = events(blocks, clock)
    if not blocks:
        log.note(
            "no_kernel_times",
            "no profile steps inside: the profiler was off, only the run's figures are kept",
        )
    elif not is_whole(blocks, clock):
        log.note("steps_missing", "decoded tokens without a profile step", severity="data_loss")
    meta |= {**totals(blocks), "profiled": bool(blocks)}
    if guesses:
        meta["guess"] = guesses
    sizes = list(_sizes(report.get("memory")))
    log.read += len(sizes)
    counts = [n for b in blocks for n in b.counts]
    frame = _frame(rows, counts, sizes, log)
    return build(str(meta.get("model", "doppler")), meta, frame, log, _tables(timing, metrics))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _meta(report: dict[str, Any], metrics: dict[str, Any], timing: dict[str, Any]) -> dict[str, Any]:
    env = _object(report.get("env"))
    meta = {name: report.get(key) for key, name in _IDENTITY.items()}
    meta["device"] = env.get("device")
    for part in (metrics, timing):
        meta |= {name: part[key] for key, name in _META.items() if part.get(key) is not None}
    return {k: _plain(v) for k, v in meta.items() if isinstance(v, str | int | Decimal)}


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _blocks(steps: Any, phase: str, log: Log) -> Iterator[Block]:
    for i, step in enumerate(steps if isinstance(steps, list) else ()):
        timings = _object(_object(step).get("timings"))
        if not timings:
            log.read += 1
            log.drop("bad_step", "profile steps without timings")
            continue
        yield _block(step, timings, phase, i, log)


def _block(step: dict[str, Any], timings: dict[str, Any], phase: str, index: int, log: Log) -> Block:
    batch, at = _whole(step.get("stepCount")), _whole(step.get("step"))
    title = str(step.get("label") or (f"Batch decode (N={batch})" if batch else f"{phase} step {at}"))
    tokens = (batch or 1) if phase == "decode" else None
    position = at if phase == "decode" and not batch else None
    block = Block(title, phase, tokens, position, total=_ns(step.get("totalMs")), part_of_last=index > 0)
    calls = _object(_object(step.get("recorderStats")).get("opLabelCounts"))
    for label, value in timings.items():
        log.read += 1
        dur = _ns(value)
        if dur is None:
            log.drop("bad_time", "timings that are no number")
            continue
        block.rows.append((label, dur))
        block.counts.append(_whole(calls.get(label)))
    return block


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _ns(ms: Any) -> int | None:
    known = isinstance(ms, int | Decimal) and not isinstance(ms, bool)
    return exact(Decimal(ms), MILLISECOND) if known else None


def _clock(meta: dict[str, Any], blocks: list[Block]) -> Clock:
    """Return the run's own figures; the report counts the first token among the decoded ones."""
    stated = _whole(meta.get("tokens"))
    profiled = sum(b.tokens or 0 for b in blocks if b.phase == "decode")
    decoded = profiled if stated in (profiled, profiled + 1) else stated
    return Clock(
        prompt_tokens=_whole(meta.get("prompt_tokens")),
        decoded=decoded,
        prefill=exact(number(str(meta.get("prefill_ms"))), MILLISECOND),
    )


def _sizes(memory: Any) -> Iterator[tuple[str, float]]:
    for name, value in _leaves(memory, "", _DEEPEST):
        if _SIZE.search(name):
            yield name, value


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield dotted path and value of every number inside objects."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if abs(Decimal(value)) < 10**300:
            yield path, float(value)
    elif depth and isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth - 1)


def _frame(
    rows: list[dict[str, Any]], counts: list[int | None], sizes: list[tuple[str, float]], log: Log
) -> pl.DataFrame:
    launches = iter(counts)
    for row in rows:
        row["count"] = next(launches) if row["kind"] == "kernel" else None
    rows += [{"kind": "memory", "name": name, "bytes": size} for name, size in sizes]
    return frame_of(rows, {**SCHEMA, "count": pl.Int64}, log)


def _tables(timing: dict[str, Any], metrics: dict[str, Any]) -> dict[str, pl.DataFrame]:
    figures = [(f"{part}.{name}", value) for part, found in (("timing", timing), ("metrics", metrics))
               for name, value in _leaves(found, "", _DEEPEST)]  # fmt: skip
    if not figures:
        return {}
    return {"figures": pl.DataFrame(figures, {"name": pl.String, "value": pl.Float64}, orient="row")}
