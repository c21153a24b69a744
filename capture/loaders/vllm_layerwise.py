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
from capture.loaders._json_document import parse_document, read_dict, read_dicts, to_finite_float, to_integer
from capture.loaders._typed_cells import build_frame
from capture.native.schema import PATH_SEPARATOR
from capture.run import Run, build_run, list_column_types
from capture.source import Head, Source

FORMAT: Final = "vllm-layerwise"
PRODUCER: Final = "vLLM layerwise_profile"
HOWTO: Final = "python examples/offline_inference/profiling.py --json run.json run_num_steps -n 8"

_PHASE: Final = re.compile(r"(prefill|decode)(?:_(\d+))?")
_ROUNDING_US: Final = 0.0005
_ROW_SCHEMA: Final = list_column_types(
    "kind", "name", "dur", "count", "step", "phase", "lens", "path", "tokens", "batch"
)
_SUMMARY_SCHEMA: Final = {
    "phase": pl.String, "name": pl.String, "cuda_time_us": pl.Float64, "pct_cuda_time": pl.Float64,
    "invocations": pl.Int64,
}  # fmt: skip


def sniff(head: Head) -> bool:
    keys = ('"context"', '"prefill"', '"summary_stats"')
    return head.stripped_text.startswith("{") and all(key in head.text for key in keys)


def load(source: Source) -> list[Run]:
    parsed = parse_document(source)
    members = parsed.items() if isinstance(parsed, dict) else ()
    phases = [(match, phase) for key, phase in members if (match := _PHASE.fullmatch(key))]
    if not phases:
        raise UnreadableError("contains neither a prefill nor a decode step", where=source.label)
    rows = [row for key, phase in phases for row in _iter_phase_rows(key, phase)]
    source.log.read = len(rows)
    events = build_frame(rows, _ROW_SCHEMA, source.log)
    summary = [row for key, phase in phases for row in _iter_summary(key[0], phase)]
    tables = {"summary": build_frame(summary, _SUMMARY_SCHEMA, source.log)}
    name, meta = Path(source.label).name, _build_meta(read_dict(parsed, "context"))
    return [build_run(name, meta, events, source.log, tables)]


def _iter_phase_rows(key: re.Match[str], phase: Any) -> Iterator[dict[str, Any]]:
    name = key[1]
    step = to_integer(key[2] or "1") if name == "decode" else 0  # decode steps count from 1
    sequences = to_finite_float(read_dict(phase, "metadata").get("num_running_seqs"))
    batch = None if sequences is None else round(sequences)
    yield {
        "kind": "step", "name": key[0], "step": step, "phase": name, "batch": batch,
        "tokens": batch if name == "decode" else None,
    }  # fmt: skip
    for tree in read_dicts(phase, "model_stats"):
        for row in _iter_kernels(tree):
            yield row | {"step": step, "phase": name}


def _iter_kernels(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the self time of each node: its time minus that of its children. Depth costs no stack."""
    stack: list[tuple[dict[str, Any], tuple[str, ...]]] = [(tree, ())]
    while stack:
        node, parents = stack.pop()
        name, children = str(read_dict(node, "entry").get("name", "")), read_dicts(node, "children")
        self_us = _read_time_us(node) - sum(_read_time_us(child) for child in children)
        if self_us > _ROUNDING_US or not children:
            yield {
                "kind": "kernel", "name": name, "dur": round(self_us * 1000), "count": 1, "lens": "gpu",
                "path": PATH_SEPARATOR.join(parents) or None,
            }  # fmt: skip
        stack += [(child, (*parents, name)) for child in reversed(children)]


def _read_time_us(node: dict[str, Any]) -> float:
    return to_finite_float(read_dict(node, "entry").get("cuda_time_us")) or 0.0


def _iter_summary(key: str, phase: Any) -> Iterator[dict[str, Any]]:
    """Yield the summary as printed: every kernel with its invocations."""
    stack = read_dicts(phase, "summary_stats")[::-1]
    while stack:
        node = stack.pop()
        entry = read_dict(node, "entry")
        yield {
            "phase": key,
            "name": str(entry.get("name", "")),
            "cuda_time_us": to_finite_float(entry.get("cuda_time_us")),
            "pct_cuda_time": to_finite_float(entry.get("pct_cuda_time")),
            "invocations": round(to_finite_float(entry.get("invocations")) or 0),
        }
        stack += read_dicts(node, "children")[::-1]


def _build_meta(context: dict[str, Any]) -> dict[str, Any]:
    engine = read_dict(context, "engine_args")
    devices = context.get("cuda_devices")
    listed = devices if isinstance(devices, list) else [str(devices)] if devices else []
    names = [str(d.get("name", d)) if isinstance(d, dict) else str(d) for d in listed]
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
    return {key: value for key, value in meta.items() if value not in (None, "")}
