"""Triton Proton: a tree of scopes and kernels with their own times, and the devices they ran on.

Read: trees with times, as JSON (`hatchet`) and as MessagePack (`hatchet_msgpack`); scopes become paths. Not
read: counters of instruction samples, and literals of other writers of the hatchet format. Proton's traces
are Chrome traces or Perfetto's, and are read as such.
Proton: https://github.com/triton-lang/triton/tree/main/third_party/proton
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.loaders._json_document import dict_in, document, number, whole
from capture.loaders._rows import frame_of
from capture.native.schema import PATH_SEPARATOR
from capture.run import LONGEST_NS, Run, build
from capture.source import Head, Source

FORMAT: Final = "proton"
PRODUCER: Final = "Triton Proton"
HOWTO: Final = "proton.start('run') … proton.finalize(), which writes run.hatchet"

_TIME: Final = "time (ns)"
_NODE: Final = re.compile(r'\[\s*\{\s*"(?:children|frame|metrics)"')
_OWN: Final = re.compile(r'"(?:time \(ns\)|device_type|device_id)"')
# a list that begins with a map whose first key is one of a node's
_PACKED: Final = re.compile(rb"[\x91-\x9f][\x81-\x8f](?:\xa5frame|\xa7metrics|\xa8children)")
_PACKED_KEYS: Final = (b"\xa9time (ns)", b"\xabdevice_type", b"\xa9device_id")
_FLOPS: Final = re.compile(r"flops\d*")
_HIDDEN: Final = "__proton_launch_metadata"
_ROOT: Final = "ROOT"
_ROW: Final = {
    "name": pl.String, "dur": pl.Int64, "count": pl.Int64, "path": pl.String,
    "track": pl.String, "flops": pl.Float64, "bytes": pl.Float64,
}  # fmt: skip


def sniff(head: Head) -> bool:
    if _PACKED.match(head.raw):
        return any(key in head.raw for key in _PACKED_KEYS)
    return _NODE.match(head.start) is not None and _OWN.search(head.text) is not None


def load(source: Source) -> list[Run]:
    parts = _packed(source) if _PACKED.match(source.head.raw) else document(source)
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UnreadableError("is no list of Proton trees", where=source.label)
    rows, devices = _rows_and_devices(parts)
    source.log.read = len(rows)
    timed = frame_of(rows, _ROW, source.log).filter(pl.col("dur").is_not_null())
    source.log.drop("bad_time", "times that are no number", count=len(rows) - timed.height)
    events = timed.with_columns(kind=pl.lit("kernel"), lens=pl.lit("gpu"), t=pl.lit(None, pl.Int64))
    meta: dict[str, Any] = {"producer": "Triton Proton", "profiled": True}
    if devices:
        meta["device"] = ", ".join(f"{d['type']} arch {d['arch']}" for d in devices)
    tables = {"devices": pl.DataFrame(devices, strict=False)} if devices else {}
    return [build(Path(source.label).name, meta, events, source.log, tables)]


def _packed(source: Source) -> Any:
    """Return the document that stands as MessagePack; raise UnreadableError where it is damaged."""
    try:
        return msgspec.msgpack.decode(source.read())
    except (msgspec.MsgspecError, ValueError, TypeError) as e:
        raise UnreadableError(
            "is damaged or cut short",
            where=source.label,
            why=str(e)[:200],
            todo="write or copy the file again",
        ) from None


def _rows_and_devices(parts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of all trees, and what the other parts of the document say of devices."""
    rows: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for part in parts:
        if "children" in part or "metrics" in part:
            rows += _rows(part)
        else:
            devices += _devices(part)
    return rows, devices


def _rows(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each node that took time of its own, with the scopes above it; depth costs no stack."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while waiting:
        node, above = waiting.pop()
        frame, metrics = dict_in(node, "frame"), dict_in(node, "metrics")
        name = str(frame.get("name", ""))
        if name == _HIDDEN:
            continue
        if metrics.get(_TIME, 0) not in (0, None):
            yield _row(name, above, metrics)
        below = above if name == _ROOT and not above else (*above, name)
        children = node.get("children") if isinstance(node, dict) else None
        waiting += [(child, below) for child in reversed(children if isinstance(children, list) else [])]


def _row(name: str, above: tuple[str, ...], metrics: dict[str, Any]) -> dict[str, Any]:
    flops = [number(v) or 0.0 for k, v in metrics.items() if _FLOPS.fullmatch(str(k))]
    device = metrics.get("device_id")
    return {
        "name": name,
        "dur": _whole(metrics[_TIME]),
        "count": _whole(metrics.get("count")) or 1,
        "path": PATH_SEPARATOR.join(above) or None,
        "track": None if device is None else f"gpu{device}",
        "flops": sum(flops) if flops else None,
        "bytes": number(metrics.get("bytes")),
    }


def _whole(value: Any) -> int | None:
    """Return a number, rounded; None for what is none, or too large for a time."""
    real = number(value)
    return None if real is None or abs(real) > LONGEST_NS else round(real)


def _devices(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, devices in part.items():
        for id, properties in devices.items() if isinstance(devices, dict) else ():
            if isinstance(properties, dict):
                yield {
                    "type": str(kind),
                    "id": str(id),
                    "arch": str(properties.get("arch", "?")),
                    "sms": whole(properties.get("num_sms")),
                    "bus_width": whole(properties.get("bus_width")),
                    "clock_khz": whole(properties.get("clock_rate")),
                    "memory_clock_khz": whole(properties.get("memory_clock_rate")),
                }
