"""The rows of each report of `nsys stats` as events: sums, traces, ranges."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from capture.classify.names import phase_of
from capture.loaders._nsight_text import number_cut_names
from capture.loaders.nsys.reports import Section
from capture.native.schema import PATH_SEPARATOR

Row = dict[str, Any]

_COPY: Final = re.compile(r"^\[?(?:CUDA )?mem(?:cpy|set)", re.IGNORECASE)
_DEVICE_NUMBER: Final = re.compile(r"\((\d+)\)\s*$")


def _sums(table: Section, **fixed: Any) -> Iterator[Row]:
    """Yield the rows of a summary: count, total and the spread that it prints."""
    names = number_cut_names([table.text(row, "name") for row in table.rows])
    for name, row in zip(names, table.rows, strict=True):
        yield {
            "name": name,
            "count": table.whole(row, "count"),
            "dur": table.ns(row, "total time"),
            "min": table.ns(row, "min"),
            "max": table.ns(row, "max"),
            "p50": table.ns(row, "med"),
            "std": table.ns(row, "stddev"),
            **fixed,
        }


def _kernels(table: Section) -> Iterator[Row]:
    for row in _sums(table, kind="kernel", lens="gpu"):
        yield row | ({"category": "copy"} if _COPY.match(row["name"]) else {})


def _sizes(table: Section) -> Iterator[Row]:
    for row in table.rows:
        yield {
            "kind": "memory",
            "name": table.text(row, "name"),
            "count": table.whole(row, "count"),
            "bytes": table.bytes(row, "total"),
        }


def _calls(table: Section) -> Iterator[Row]:
    return _sums(table, kind="span", lens="host", category="host")


def _ranges(table: Section) -> Iterator[Row]:
    for row in _sums(table, kind="span", lens="wall"):
        name = row["name"].removeprefix(":")
        yield row | {"name": name, "phase": phase_of(name)}


def _range_kernels(table: Section) -> Iterator[Row]:
    """Yield kernels under every range that encloses them: with more than one range they must not be added
    up.
    """
    ranges = [table.text(row, "nvtx range").removeprefix(":") for row in table.rows]
    kind = "span" if len(set(ranges)) > 1 else "kernel"
    for row, path in zip(_sums(table, kind=kind, lens="gpu"), ranges, strict=True):
        yield row | {"path": path}


def _device_trace(table: Section) -> Iterator[Row]:
    for row in table.rows:
        name = table.text(row, "name")
        yield {
            "kind": "kernel",
            "lens": "gpu",
            "name": name,
            "category": "copy" if _COPY.match(name) else None,
            "t": table.ns(row, "start"),
            "dur": table.ns(row, "duration"),
            "bytes": table.bytes(row, "bytes"),
            "track": _gpu_track(table.text(row, "device"), table.text(row, "strm")),
        }


def _gpu_track(device: str, stream: str) -> str:
    match = _DEVICE_NUMBER.search(device)
    gpu = f"gpu{match[1]}" if match else device or "gpu?"
    return f"{gpu}/stream{stream}" if stream else gpu


def _call_trace(table: Section) -> Iterator[Row]:
    for row in table.rows:
        yield {
            "kind": "span",
            "lens": "host",
            "category": "host",
            "name": table.text(row, "name"),
            "t": table.ns(row, "start"),
            "dur": table.ns(row, "duration"),
            "track": _thread(table, row),
        }


def _range_trace(table: Section) -> Iterator[Row]:
    return _traced_ranges(table, "wall", "start", "duration")


def _projection(table: Section) -> Iterator[Row]:
    """Yield NVTX ranges laid over the device time of what they launched."""
    return _traced_ranges(table, "gpu", "projected start", "projected duration")


def _traced_ranges(table: Section, lens: str, start: str, duration: str) -> Iterator[Row]:
    names = {table.text(row, "rangeid"): table.text(row, "name").removeprefix(":") for row in table.rows}
    for row in table.rows:
        *above, _ = table.text(row, "rangestack").strip(":").split(":")
        parents = [names[i] for i in above if i in names]
        name = table.text(row, "name").removeprefix(":")
        yield {
            "kind": "span",
            "lens": lens,
            "name": name,
            "t": table.ns(row, start),
            "dur": table.ns(row, duration),
            "path": PATH_SEPARATOR.join(parents) or None,
            "phase": phase_of(PATH_SEPARATOR.join([*parents, name])),
            "track": _thread(table, row),
        }


def _thread(table: Section, row: Sequence[str]) -> str | None:
    pid, tid = table.text(row, "pid"), table.text(row, "tid")
    return f"pid{pid}/tid{tid}" if tid else None


READERS: Final[Mapping[str, Callable[[Section], Iterator[Row]]]] = {
    "kernels": _kernels,
    "copies": _kernels,
    "device": _kernels,
    "sizes": _sizes,
    "calls": _calls,
    "ranges": _ranges,
    "range_kernels": _range_kernels,
    "device_trace": _device_trace,
    "call_trace": _call_trace,
    "range_trace": _range_trace,
    "projection": _projection,
}
