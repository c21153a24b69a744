"""Interpret the header of a Chrome trace, and name its processes, threads, streams and lanes."""

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import polars as pl

from capture.clean_text import clean
from capture.dense_lookup import put_columns
from capture.device_roofs import find_gpu_name
from capture.import_log import Log
from capture.loaders._json_document import parse_object, read_dict, read_dicts, to_integer
from capture.loaders.chrome.trace_model import (
    THREAD_SEPARATOR,
    CompleteEvents,
    Trace,
    TraceEvent,
    decode_raw,
)
from capture.native.schema import COMPILED_PATTERN, TIME_COLUMNS

_DEVICE_NUMBERS: Final = {
    "memory_bytes": "totalGlobalMem", "sms": "numSms", "major": "computeMajor", "minor": "computeMinor",
}  # fmt: skip
JAX_DEVICE_PREFIX: Final = "/device:"  # of the process that stands for a device
_XLA_HOST: Final = "/host:CPU"  # the process that XLA's profiler names so
_NAMED_STREAM: Final = re.compile(r"GPU Stream (\d+)")  # thread name of a stream in Proton's traces
# names of a process (multiprocessor or block) and a thread (warps) of in-kernel profilers
_PROTON: Final = (re.compile(r"(.+) Core(\d+) CTA(\d+)$"), re.compile(r"warp (\d+)(?: \(line \d+\))?$"))
_FLASHINFER: Final = (re.compile(r"SM_(\d+)$"), re.compile(r"blk(\d+)_g(\d+)$"))
_BLOCKS: Final = (re.compile(r"block_(\d+)$"), re.compile(r"group_(\d+)(?:/.*)?$"))  # mirage, old flashinfer

_PRODUCTS: Final = r"^aten::(linear|addmm|mm|bmm|baddbmm|convolution)$"
_CONVOLUTION: Final = r"^aten::convolution$"
_SEQUENCE: Final = '"Sequence number"'
_CPU_ATTENTION: Final = "_flash_attention_for_cpu"
_ALLOCATION: Final = "aten::empty"
_MATRIX: Final = r'"Concrete Inputs":\s*\["\[(\d{1,6}), \d+\]"'  # the size of an allocation of two dimensions


class Lane(NamedTuple):
    """A lane of regions inside a kernel: its track, and the kernel if the profiler names it."""

    track: str
    kernel: str | None = None


@dataclass
class ProcessNames:
    """Names of processes and threads from metadata events, and tracks that are known otherwise."""

    processes: dict[str, str] = field(default_factory=dict)  # pid → name
    threads: dict[str, str] = field(default_factory=dict)  # thread → name
    tracks: Mapping[str, str] = field(default_factory=dict)  # thread → track
    regions: Mapping[str, str | None] = field(default_factory=dict)  # thread inside a kernel → kernel

    def find_track(self, lens: str, thread: str) -> str:
        """Find the track of a thread whose rows have a lens: a stream of a device, or a host thread."""
        if thread in self.tracks:
            return self.tracks[thread]
        return self._format_stream(thread) if lens in ("gpu", "wait") else self._format_host_thread(thread)

    def _format_stream(self, thread: str) -> str:
        pid, _, tid = thread.partition(THREAD_SEPARATOR)
        process = self.processes.get(pid, "")
        if process.startswith(JAX_DEVICE_PREFIX):
            device = process.removeprefix(JAX_DEVICE_PREFIX).lower().replace(":", "")
            return f"{device}/{self.threads.get(thread, tid)}"
        stream = _NAMED_STREAM.fullmatch(self.threads.get(thread, ""))
        return f"gpu{pid}/stream{stream[1] if stream else tid.removeprefix('stream').strip()}"

    def _format_host_thread(self, thread: str) -> str:
        pid, _, tid = thread.partition(THREAD_SEPARATOR)
        name = self.threads.get(thread, "")
        if name and tid in name:
            return name
        return f"{pid}/{name} {tid}" if name else f"{pid}/{tid}"


def read_process_names(events: Sequence[TraceEvent]) -> ProcessNames:
    """Read the names of processes and threads from metadata events."""
    names = ProcessNames()
    for event in events:
        if event.ph == "M" and event.name in ("process_name", "thread_name"):
            name = parse_object(bytes(event.args)).get("name")
            if isinstance(name, str) and event.name == "process_name":
                names.processes[decode_raw(bytes(event.pid))] = name
            elif isinstance(name, str):
                names.threads[event.thread] = name
    return names


def with_regions(names: ProcessNames, threads: Iterable[str], log: Log) -> ProcessNames:
    """Add the threads that are lanes of regions inside kernels, and note them."""
    lanes = {thread: lane for thread in threads if (lane := _find_lane(thread, names))}
    if not lanes:
        return names
    log.note(
        "regions",
        f"regions inside a kernel, on {len(set(lanes.values()))} lanes of warps that run side by side: times "
        "add up over the lanes; of nested regions, the tables show the innermost",
    )
    tracks = {**names.tracks, **{thread: lane.track for thread, lane in lanes.items()}}
    return replace(names, tracks=tracks, regions={thread: lane.kernel for thread, lane in lanes.items()})


def _find_lane(thread: str, names: ProcessNames) -> Lane | None:
    pid, _, tid = thread.partition(THREAD_SEPARATOR)
    process_name, thread_name = names.processes.get(pid, pid), names.threads.get(thread, tid)
    if pair := _match_both(_PROTON, process_name, thread_name):
        kernel, sm, cta = pair[0].groups()
        return Lane(f"sm{sm}/cta{cta} warp{pair[1][1]}", kernel)
    if pair := _match_both(_FLASHINFER, process_name, thread_name):
        return Lane(f"sm{int(pair[0][1])}/block{pair[1][1]} group{pair[1][2]}")
    if pair := _match_both(_BLOCKS, process_name, thread_name):
        return Lane(f"block{pair[0][1]}/group{pair[1][1]}")
    return None


def _match_both(
    patterns: tuple[re.Pattern[str], re.Pattern[str]], process: str, thread: str
) -> tuple[re.Match[str], re.Match[str]] | None:
    outer, inner = patterns[0].match(process), patterns[1].match(thread)
    return (outer, inner) if outer and inner else None


def build_meta(
    trace: Trace, names: ProcessNames, devices: pl.DataFrame, captured: str | None
) -> dict[str, Any]:
    """Build the metadata of a run; `captured` describes what its graph captures added."""
    header = trace.header
    ranks = read_dict(header, "distributedInfo")
    device, guesses = _find_device_names(devices)
    meta = {
        "producer": _find_producer(trace, names),
        "device": device,
        "guess": guesses,
        "driver": header.get("cuda_driver_version") or header.get("hip_driver_version"),
        "rank": ranks.get("rank"),
        "world_size": ranks.get("world_size"),
        "threads": trace.threads or _find_cpu_threads(trace.complete),
        "autograd": _find_autograd(trace.complete),
        "memory format": _find_memory_format(trace.complete),
        "clock_base_ns": header.get("baseTimeNanoseconds"),
        "profiled": True,
        "captured": captured,
        "truncated": trace.truncated or None,
    }
    return {k: v for k, v in meta.items() if v is not None and v != "" and v != []}


def _find_cpu_threads(complete: CompleteEvents) -> int | None:
    """Find for how many threads torch's attention on a processor allocates: the rows of its one matrix.

    None without such calls, without the values of their operands, or if the calls differ.
    """
    names = complete.labels["name"]
    if not any(name.endswith(_CPU_ATTENTION) for name in names):
        return None
    is_call = names.str.ends_with(_CPU_ATTENTION)[complete.rows["label"]]
    rows = complete.rows.select("t", "dur", thread=complete.expand_label("thread"), args="args")
    calls = rows.filter(is_call).select("t", "thread", end=pl.col("t") + pl.col("dur")).sort("t")
    empties = rows.filter((names == _ALLOCATION)[complete.rows["label"]]).drop("dur").sort("t")
    inside = empties.join_asof(calls, on="t", by="thread", check_sortedness=False).filter(
        pl.col("t") < pl.col("end")
    )
    counts = inside["args"].cast(pl.String).str.extract(_MATRIX).drop_nulls().unique()
    return int(counts[0]) if counts.len() == 1 else None


def _find_autograd(complete: CompleteEvents) -> bool | None:
    """Find whether autograd notes torch's products, which then have a number; None without their operands.

    Without a number it is unknown if the program is compiled: its graphs call products that are not noted.
    """
    operands = _list_operands(complete, _PRODUCTS)
    if any(_SEQUENCE in text for text in operands):
        return True
    is_compiled = complete.labels["name"].str.contains(COMPILED_PATTERN).any()
    return None if is_compiled or not operands else False


def _find_memory_format(complete: CompleteEvents) -> str | None:
    """Find in which order the images of most convolutions lie in memory; None if no strides say it."""
    calls = [parse_object(text.encode()) for text in _list_operands(complete, _CONVOLUTION)]
    are_last = [_is_channels_last(call.get("Input Dims"), call.get("Input Strides")) for call in calls]
    counts = Counter(is_last for is_last in are_last if is_last is not None)
    return None if not counts else "channels last" if counts[True] > counts[False] else "channels first"


def _is_channels_last(dims: Any, strides: Any) -> bool | None:
    """Whether image or weights of a convolution have their channels last; None if both orders are equal."""
    orders = set()
    with suppress(TypeError, ValueError, KeyError):  # what a file says of operands may be anything
        for (_, *sizes), (_, *steps) in zip(dims[:2], strides[:2], strict=True):
            channels, height, width = map(operator.index, sizes)
            first, last = [height * width, width, 1], [1, width * channels, channels]
            if channels > 1 and height * width > 1 and steps in (first, last):
                orders.add(steps == last)
    return True in orders if orders else None


def _list_operands(complete: CompleteEvents, names: str) -> list[str]:
    """List the distinct operands of calls whose names match."""
    is_named = complete.labels["name"].str.contains(names)
    if not is_named.any():
        return []
    operands = complete.rows["args"].filter(is_named[complete.rows["label"]])
    return operands.drop_nulls().unique().cast(pl.String).to_list()


def _find_device_names(devices: pl.DataFrame) -> tuple[str, list[str]]:
    """Find the names of the devices; without any, guess one by their properties, and describe the guess."""
    named = devices.get_column("name", default=pl.Series([], dtype=pl.String))
    names = sorted({name for name in named if name})
    if names or devices.is_empty():
        return ", ".join(names), []
    columns = ("sms", "memory_bytes", "major", "minor")
    matches = {find_gpu_name(s, m, (major, minor)) for s, m, major, minor in devices.select(columns).rows()}
    name = matches.pop() if len(matches) == 1 else None
    if name is None:
        return "", []
    sms, memory, major, minor = devices.select(columns).row(0)
    properties = f"{sms} multiprocessors, {round(memory / (1 << 30))} GiB and capability {major}.{minor}"
    return name, [f"device: not named in the trace; only {name} has {properties}"]


def _find_producer(trace: Trace, names: ProcessNames) -> str:
    if trace.producer:
        return trace.producer
    if any(name.startswith(JAX_DEVICE_PREFIX) for name in names.processes.values()):
        return "JAX profiler"
    if _XLA_HOST in names.processes.values():
        return "XLA profiler"
    if {"model_run", "session_initialization"} & set(trace.complete.labels["name"]):
        return "ONNX Runtime"
    cats = set(trace.complete.labels["cat"])
    torch = "schemaVersion" in trace.header or cats & {"cpu_op", "cuda_runtime", "user_annotation"}
    return "PyTorch profiler" if torch else "Chrome trace"


def build_device_table(header: dict[str, Any]) -> pl.DataFrame:
    """Build the table of the devices in the header; without columns if there are none."""
    rows = [
        {"id": to_integer(device.get("id")), "name": clean(str(device.get("name")))}
        | {column: to_integer(device.get(key)) for column, key in _DEVICE_NUMBERS.items()}
        for device in read_dicts(header, "deviceProperties")
    ]
    return pl.DataFrame(rows, strict=False)


def build_header_table(header: dict[str, Any], read: int) -> pl.DataFrame:
    """Build a table of the scalar keys of the header, and the number of events read."""
    values = {clean(k): clean(str(v)) for k, v in header.items() if isinstance(v, str | int | float)}
    values["events"] = str(read)
    return pl.DataFrame({"key": list(values), "value": list(values.values())})


def shift_to_epoch(rows: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Shift times to the clock of the epoch, if the trace reports its base."""
    base = header.get("baseTimeNanoseconds")
    latest = rows["t"].max()
    if type(base) is not int or not isinstance(latest, int) or not 0 < base < (1 << 63) - 1 - max(latest, 0):
        return rows
    return put_columns(rows, *(rows[c] + base for c in TIME_COLUMNS if c in rows.columns))
