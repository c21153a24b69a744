"""Triton Proton: a tree of scopes and kernels with their own times, and the devices they ran on.

Read: trees with times, as JSON (`hatchet`) and as MessagePack (`hatchet_msgpack`); scopes become paths. Not
read: counters of instruction samples, literals of other writers of the hatchet format. Proton's traces are
Chrome or Perfetto traces, and are read as such.
Proton: https://github.com/triton-lang/triton/tree/main/third_party/proton
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._json_document import parse_document, read_dict, read_list, to_finite_float, to_integer
from capture.loaders._typed_cells import build_frame
from capture.native.schema import MAX_PATH_DEPTH, PATH_SEPARATOR
from capture.run import MAX_DURATION_NS, Run, build_run, list_column_types
from capture.source import Head, Source

FORMAT: Final = "proton"
PRODUCER: Final = "Triton Proton"
HOWTO: Final = "proton.start('run') … proton.finalize(), which writes run.hatchet"

_TIME_METRIC: Final = "time (ns)"
_NODE_START: Final = re.compile(r'\[\s*\{\s*"(?:children|frame|metrics)"')
_OWN_KEY: Final = re.compile(r'"(?:time \(ns\)|device_type|device_id)"')
# a list that begins with a map whose first key belongs to a node
_MSGPACK_START: Final = re.compile(rb"[\x91-\x9f][\x81-\x8f](?:\xa5frame|\xa7metrics|\xa8children)")
_MSGPACK_KEYS: Final = (b"\xa9time (ns)", b"\xabdevice_type", b"\xa9device_id")
_FLOPS_METRIC: Final = re.compile(r"flops\d*")
_HIDDEN_SCOPE: Final = "__proton_launch_metadata"
_ROOT: Final = "ROOT"
_ROW_SCHEMA: Final = list_column_types("name", "dur", "count", "path", "track", "flops", "bytes")

_DEVICE_NUMBERS: Final = {
    "sms": "num_sms", "bus_width": "bus_width", "clock_khz": "clock_rate",
    "memory_clock_khz": "memory_clock_rate",
}  # fmt: skip


def sniff(head: Head) -> bool:
    if _MSGPACK_START.match(head.raw):
        return any(key in head.raw for key in _MSGPACK_KEYS)
    return _NODE_START.match(head.stripped_text) is not None and _OWN_KEY.search(head.text) is not None


def load(source: Source) -> list[Run]:
    parts = _decode_msgpack(source) if _MSGPACK_START.match(source.head.raw) else parse_document(source)
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UnreadableError("is not a list of Proton trees", where=source.label)
    rows: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for part in parts:
        if "children" in part or "metrics" in part:
            rows += _iter_rows(part, source.log)
        else:
            devices += _iter_devices(part)
    source.log.read = len(rows)
    valid_rows = build_frame(rows, _ROW_SCHEMA, source.log).filter(pl.col("dur").is_not_null())
    source.log.drop("bad_time", "times that are not a number", count=len(rows) - valid_rows.height)
    events = valid_rows.with_columns(kind=pl.lit("kernel"), lens=pl.lit("gpu"), t=pl.lit(None, pl.Int64))
    meta: dict[str, Any] = {"producer": "Triton Proton", "profiled": True}
    if devices:
        meta["device"] = ", ".join(f"{device['type']} arch {device['arch']}" for device in devices)
    tables = {"devices": pl.DataFrame(devices, strict=False)} if devices else {}
    return [build_run(Path(source.label).name, meta, events, source.log, tables)]


def _decode_msgpack(source: Source) -> Any:
    """Decode a MessagePack document; raise UnreadableError if it is damaged."""
    try:
        return msgspec.msgpack.decode(source.read())
    except (ValueError, TypeError) as e:
        what, todo = "is damaged or cut short", "write or copy the file again"
        raise UnreadableError(what, where=source.label, why=str(e)[:200], todo=todo) from None


def _iter_rows(tree: dict[str, Any], log: Log) -> Iterator[dict[str, Any]]:
    """Yield each node with time of its own, with the scopes above it, at most MAX_PATH_DEPTH."""
    deep_count = 0
    stack: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while stack:
        node, parents = stack.pop()
        frame, metrics = read_dict(node, "frame"), read_dict(node, "metrics")
        name = str(frame.get("name", ""))
        if name == _HIDDEN_SCOPE:
            continue
        if metrics.get(_TIME_METRIC, 0) not in (0, None):
            yield _build_row(name, parents, metrics)
        children = read_list(node, "children")
        path = parents if name == _ROOT and not parents else (*parents, name)
        if len(path) > MAX_PATH_DEPTH:
            path = parents
            deep_count += bool(children)
        stack += [(child, path) for child in reversed(children)]
    if deep_count:
        message = f"scopes nested deeper than {MAX_PATH_DEPTH}, left out of paths"
        log.note("deep_scopes", message, count=deep_count)


def _build_row(name: str, parents: tuple[str, ...], metrics: dict[str, Any]) -> dict[str, Any]:
    flops = [to_finite_float(v) or 0.0 for k, v in metrics.items() if _FLOPS_METRIC.fullmatch(str(k))]
    device = metrics.get("device_id")
    return {
        "name": name,
        "dur": _round_ns(metrics[_TIME_METRIC]),
        "count": _round_ns(metrics.get("count")) or 1,
        "path": PATH_SEPARATOR.join(parents) or None,
        "track": None if device is None else f"gpu{device}",
        "flops": sum(flops) if flops else None,
        "bytes": to_finite_float(metrics.get("bytes")),
    }


def _round_ns(value: Any) -> int | None:
    """Round a number; None if it is not one, or too large for a time."""
    number = to_finite_float(value)
    return None if number is None or abs(number) > MAX_DURATION_NS else round(number)


def _iter_devices(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, devices in part.items():
        for index, properties in devices.items() if isinstance(devices, dict) else ():
            if isinstance(properties, dict):
                numbers = {name: to_integer(properties.get(key)) for name, key in _DEVICE_NUMBERS.items()}
                arch = str(properties.get("arch", "?"))
                yield {"type": str(kind), "id": str(index), "arch": arch, **numbers}
