"""vLLM's layerwise profile: a tree of modules and kernels for the prefill and for each decode step.

Read: the tree as kernels with paths, the summary as a table. Not read: CPU times.
vLLM: https://github.com/vllm-project/vllm
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.loaders._json_document import dict_in, dicts_in, document, number, whole
from capture.loaders._rows import frame_of
from capture.native.schema import PATH_SEPARATOR
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "vllm-layerwise"
PRODUCER: Final = "vLLM layerwise_profile"
HOWTO: Final = "python examples/offline_inference/profiling.py --json run.json run_num_steps -n 8"

_PHASE: Final = re.compile(r"(prefill|decode)(?:_(\d+))?")
_ROUNDING_US: Final = 0.0005
_ROW: Final = {
    "kind": pl.String, "name": pl.String, "dur": pl.Int64, "count": pl.Int64, "step": pl.Int64,
    "phase": pl.String, "lens": pl.String, "path": pl.String, "tokens": pl.Int64, "batch": pl.Int64,
}  # fmt: skip
_SUMMARY: Final = {
    "phase": pl.String, "name": pl.String, "cuda_time_us": pl.Float64, "pct_cuda_time": pl.Float64,
    "invocations": pl.Int64,
}  # fmt: skip


def sniff(head: Head) -> bool:
    keys = ('"context"', '"prefill"', '"summary_stats"')
    return head.start.startswith("{") and all(key in head.text for key in keys)


def load(source: Source) -> list[Run]:
    parsed = document(source)
    phases = {k: v for k, v in parsed.items() if _PHASE.fullmatch(k)} if isinstance(parsed, dict) else {}
    if not phases:
        raise UnreadableError("holds neither a prefill nor a decode step", where=source.label)
    rows = [row for name, phase in phases.items() for row in _phase_rows(name, phase)]
    source.log.read = len(rows)
    events = frame_of(rows, _ROW, source.log)
    summary = [row for name, phase in phases.items() for row in _summary(name, phase)]
    tables = {"summary": frame_of(summary, _SUMMARY, source.log)}
    return [build(Path(source.label).name, _meta(dict_in(parsed, "context")), events, source.log, tables)]


def _phase_rows(key: str, phase: Any) -> Iterator[dict[str, Any]]:
    name, step = _named(key)
    sequences = number(dict_in(phase, "metadata").get("num_running_seqs"))
    batch = None if sequences is None else round(sequences)
    yield {
        "kind": "step", "name": key, "step": step, "phase": name, "batch": batch,
        "tokens": batch if name == "decode" else None,
    }  # fmt: skip
    for tree in dicts_in(phase, "model_stats"):
        for row in _kernels(tree):
            yield row | {"step": step, "phase": name}


def _named(key: str) -> tuple[str, int | None]:
    """Return phase and step of a key: prefill is step 0, decode steps count from 1."""
    match = _PHASE.fullmatch(key)
    name, number_ = (match[1], match[2]) if match else (key, None)
    return name, whole(number_ or "1") if name == "decode" else 0


def _kernels(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each node's own time: what is left of it when its children have theirs; depth costs no stack."""
    waiting: list[tuple[dict[str, Any], tuple[str, ...]]] = [(tree, ())]
    while waiting:
        node, above = waiting.pop()
        name, children = str(dict_in(node, "entry").get("name", "")), dicts_in(node, "children")
        own = _time(node) - sum(_time(child) for child in children)
        if own > _ROUNDING_US or not children:
            yield {
                "kind": "kernel", "name": name, "dur": round(own * 1000), "count": 1, "lens": "gpu",
                "path": PATH_SEPARATOR.join(above) or None,
            }  # fmt: skip
        waiting += [(child, (*above, name)) for child in reversed(children)]


def _time(node: dict[str, Any]) -> float:
    return number(dict_in(node, "entry").get("cuda_time_us")) or 0.0


def _summary(key: str, phase: Any) -> Iterator[dict[str, Any]]:
    """Yield the summary as it is printed: every kernel with its invocations."""
    waiting = dicts_in(phase, "summary_stats")[::-1]
    while waiting:
        node = waiting.pop()
        entry = dict_in(node, "entry")
        yield {
            "phase": key,
            "name": str(entry.get("name", "")),
            **{k: number(entry.get(k)) for k in ("cuda_time_us", "pct_cuda_time")},
            "invocations": round(number(entry.get("invocations")) or 0),
        }
        waiting += dicts_in(node, "children")[::-1]


def _meta(context: dict[str, Any]) -> dict[str, Any]:
    engine = dict_in(context, "engine_args")
    devices = context.get("cuda_devices")
    names = [_device(d) for d in devices] if isinstance(devices, list) else [str(devices)] if devices else []
    meta = {
        "producer": "vLLM layerwise profile",
        "model": engine.get("model"),
        "dtype": engine.get("dtype"),
        "quant": engine.get("quantization"),
        "device": ", ".join(names),
        "prompt_tokens": context.get("prompt_len"),
        "batch": context.get("batch_size"),
        "torch": context.get("torch_version"),
        "profiled": True,
    }
    return {k: v for k, v in meta.items() if v not in (None, "")}


def _device(device: Any) -> str:
    return str(device.get("name", device)) if isinstance(device, dict) else str(device)
