"""Doppler's JSON reports: metrics of the run, and profile steps if the profiler was on.

Read: single reports and comparisons; every metric is kept in a table. Not read: texts of the model.
Doppler: https://github.com/clocksmith/doppler
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import parse_document, read_dict, read_list
from capture.loaders._typed_cells import MILLISECOND, build_frame, parse_decimal, scale_to_integer
from capture.loaders.doppler.profile_blocks import (
    EVENT_SCHEMA,
    ProfileBlock,
    RunTotals,
    build_events,
    has_all_tokens,
    sum_totals_by_phase,
)
from capture.run import Run, build_run, with_log
from capture.source import Head, Source

FORMAT: Final = "doppler-json"
PRODUCER: Final = "the Doppler WebGPU engine's reports and benchmark results"
HOWTO: Final = "run a Doppler suite with its profiler on; it saves the report"

_KEYS: Final = tuple(re.compile(rf'"(?:{key})"\s*:') for key in ("suite", "modelId", "timing|metrics"))
_MAX_DEPTH: Final = 12
_SIZE_KEY: Final = re.compile(r"bytes|used|allocated|reserved|peak|limit|total", re.IGNORECASE)
_STEP_KEYS: Final = (("prefill", "prefillProfileSteps"), ("decode", "decodeProfileSteps"))
_META_BY_KEY: Final = {
    "firstTokenMs": "ttft_ms", "prefillMs": "prefill_ms", "decodeMs": "decode_ms", "modelLoadMs": "load_ms",
    "totalRunMs": "total_ms", "decodeTokensPerSec": "decode_tokens_per_s",
    "prefillTokensPerSec": "prefill_tokens_per_s", "prefillTokens": "prompt_tokens",
    "avgPrefillTokens": "prompt_tokens", "decodeTokens": "tokens", "avgDecodeTokens": "tokens",
    "maxTokens": "max_tokens", "prompt": "prompt", "kernelPathId": "kernel_path",
}  # fmt: skip
_IDENTITY: Final = {"suite": "suite", "modelId": "model", "cacheMode": "cache", "timestamp": "timestamp"}


def sniff(head: Head) -> bool:
    return head.stripped_text.startswith(("{", "[")) and all(key.search(head.text) for key in _KEYS)


def load(source: Source) -> list[Run]:
    reports = _iter_reports(parse_document(source, parse_float=Decimal), _MAX_DEPTH)
    runs = [_build_run(report, source.log) for report in reports]
    return [with_log(run, source.log) for run in runs]


def _iter_reports(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield every report in the document; a comparison contains several."""
    keys = value.keys() if isinstance(value, dict) else set()
    if {"suite", "modelId"} <= keys and keys & {"timing", "metrics"}:
        yield value
    elif depth and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_reports(item, depth - 1)


def _build_run(report: dict[str, Any], log: Log) -> Run:
    metrics, timing = read_dict(report, "metrics"), read_dict(report, "timing")
    meta = _build_meta(report, metrics, timing)
    blocks = [b for phase, key in _STEP_KEYS for b in _iter_blocks(read_list(metrics, key), phase, log)]
    run_totals = _build_run_totals(meta, blocks)
    rows, guesses = build_events(blocks, run_totals)
    if not blocks:
        message = "no profile steps: the profiler was off, so only the run's metrics are kept"
        log.note("no_kernel_times", message)
    elif not has_all_tokens(blocks, run_totals):
        log.note("steps_missing", "decoded tokens without a profile step", severity="data_loss")
    meta |= {**sum_totals_by_phase(blocks), "profiled": bool(blocks)}
    if guesses:
        meta["guess"] = guesses
    sizes = [s for s in _iter_numbers(report.get("memory"), "", _MAX_DEPTH) if _SIZE_KEY.search(s[0])]
    log.read += len(sizes)
    rows += [{"kind": "memory", "name": name, "bytes": size} for name, size in sizes]
    frame = build_frame(rows, EVENT_SCHEMA, log)
    numbers = list(_iter_numbers({"timing": timing, "metrics": metrics}, "", _MAX_DEPTH + 1))
    figures = pl.DataFrame(numbers, {"name": pl.String, "value": pl.Float64}, orient="row")
    tables = {"figures": figures} if numbers else {}
    return build_run(str(meta.get("model", "doppler")), meta, frame, log, tables)


def _build_meta(report: dict[str, Any], metrics: dict[str, Any], timing: dict[str, Any]) -> dict[str, Any]:
    meta = {name: report.get(key) for key, name in _IDENTITY.items()}
    meta["device"] = read_dict(report, "env").get("device")
    for section in (metrics, timing):
        meta |= {name: section[key] for key, name in _META_BY_KEY.items() if section.get(key) is not None}
    meta = {k: v for k, v in meta.items() if isinstance(v, str | int | Decimal)}
    return {k: float(v) if isinstance(v, Decimal) else v for k, v in meta.items()}


def _iter_blocks(steps: list[Any], phase: str, log: Log) -> Iterator[ProfileBlock]:
    for i, step in enumerate(steps):
        if timings := read_dict(step, "timings"):
            yield _build_block(step, timings, phase, i, log)
        else:
            log.read += 1
            log.drop("bad_step", "profile steps without timings")


def _build_block(step: dict[str, Any], timings: Any, phase: str, index: int, log: Log) -> ProfileBlock:
    batch, position_printed = _to_count(step.get("stepCount")), _to_count(step.get("step"))
    default_title = f"Batch decode (N={batch})" if batch else f"{phase} step {position_printed}"
    title = str(step.get("label") or default_title)
    tokens = (batch or 1) if phase == "decode" else None
    position = position_printed if phase == "decode" and not batch else None
    total = _to_nanoseconds(step.get("totalMs"))
    block = ProfileBlock(title, phase, tokens, position, total=total, is_continuation=index > 0)
    calls = read_dict(read_dict(step, "recorderStats"), "opLabelCounts")
    for label, value in timings.items():
        log.read += 1
        dur = _to_nanoseconds(value)
        if dur is None:
            log.drop("bad_time", "timings that are not a number")
        else:
            block.rows.append((label, dur))
            block.counts.append(_to_count(calls.get(label)))
    return block


def _to_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _to_nanoseconds(ms: Any) -> int | None:
    return scale_to_integer(Decimal(ms), MILLISECOND) if type(ms) in (int, Decimal) else None


def _build_run_totals(meta: dict[str, Any], blocks: list[ProfileBlock]) -> RunTotals:
    """Collect the run's own totals; the report counts the first token among the decoded ones."""
    printed_tokens = _to_count(meta.get("tokens"))
    profiled = sum(b.tokens or 0 for b in blocks if b.phase == "decode")
    decoded = profiled if printed_tokens in (profiled, profiled + 1) else printed_tokens
    prefill_ms = parse_decimal(str(meta.get("prefill_ms")))
    prompt_tokens = _to_count(meta.get("prompt_tokens"))
    return RunTotals(prompt_tokens, decoded, prefill=scale_to_integer(prefill_ms, MILLISECOND))


def _iter_numbers(value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield dotted path and value of every number in nested objects."""
    if type(value) in (int, Decimal):
        if abs(Decimal(value)) < 10**300:
            yield path, float(value)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            yield from _iter_numbers(item, f"{path}.{key}" if path else str(key), depth - 1)
