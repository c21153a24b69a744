"""XLA's profiles (`*.xplane.pb`): JAX, TensorFlow and PyTorch/XLA, on GPUs, TPUs and hosts.

Read: planes of devices and hosts, their lines and events, with launch, name scope and resources from the
statistics of an event; steps; of the programs (HLO) in the metadata plane the inputs of the largest that ran.
Not read: their instructions, events that are sums of others, counters of a chip.
The format: xplane.proto in https://github.com/openxla/xla (third_party/tsl/tsl/profiler/protobuf), and
hlo.proto and xla_data.proto (xla/service, xla)
"""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._protobuf import (
    BYTES,
    VARINT,
    Value,
    WireError,
    decode_submessage,
    decode_varint,
    index_fields,
    iter_records,
    select_values,
    to_double,
    to_number,
    to_signed,
    to_text,
)
from capture.loaders.chrome.trace_model import (
    THREAD_SEPARATOR,
    UNNAMED,
    CompleteEvents,
    Trace,
    TraceEvent,
    build_name_event,
    name_step,
)
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "xplane"
PRODUCER: Final = "XLA's profiler: JAX, TensorFlow, PyTorch/XLA"
HOWTO: Final = "with jax.profiler.trace('folder'): …, which writes *.xplane.pb"

_PLANE_FIELD: Final = 1  # field number in the profile
_MESSAGE_FIELDS: Final = {2: "error", 3: "warning"}
_WIRE_TYPES: Final = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES, 6: BYTES}  # field numbers in a plane
_NAME_FIELD: Final = 2
_PLANE_NAME_PREFIXES: Final = ("/host:", "/device:", "Task Environment", "#Chip")
_MIN_EPOCH_NS: Final = 10**17  # later times count from 1970

_DEVICE_PREFIX: Final = "/device:"
_CALLS_PLANE: Final = "/host:CUPTI"
_PROGRAMS_PLANE: Final = "/host:metadata"
_PLANES_WITHOUT_EVENTS: Final = (_PROGRAMS_PLANE, "Task Environment")  # no timeline
# lines of a device with its work; other lines are annotations above it
_WORK_LINE: Final = re.compile(r"Stream|XLA Ops$")
_STEPS_LINE: Final = "Steps"
_COPY: Final = re.compile(r"(?i)mem(cpy|set)")
_COVER: Final = "gpu_user_annotation"
_ANNOTATION: Final = "user_annotation"

# names of statistics
_CORRELATION: Final = "correlation_id"
_DETAILS: Final = "kernel_details"
_STEP: Final = "step_num"
_SCOPES: Final = ("tf_op", "name")  # `jit(step)/layer_3/attn/dot_general`
_PROGRAM: Final = "hlo_module"
_KNOWN_STATISTICS: Final = frozenset((_CORRELATION, _DETAILS, _STEP, _PROGRAM, *_SCOPES))
_MAX_DIMENSIONS: Final = 64  # more are of no program; the product of a million numbers takes minutes
_MAX_REPORT_BYTES: Final = 1 << 27  # of a profile of which only the program is asked
_INTEGERS: Final = (3, 4, 5, 7, 8, 9)  # formats of XLA that hold indices, such as tokens, and no weights
# number formats of XLA by their number
_DTYPES: Final = {
    2: "int8", 6: "uint8", 10: "float16", 11: "float32", 12: "float64", 16: "bfloat16", 19: "float8_e5m2",
    20: "float8_e4m3fn", 21: "int4", 22: "uint4",
}  # fmt: skip
_DETAIL: Final = re.compile(r"(\w+):([\d.,]+)")
_ARGUMENT_BY_DETAIL: Final = {"regs": "registers per thread", "occ_pct": "est. achieved occupancy %"}
_MAX_NS: Final = 1 << 62

_ROW_SCHEMA: Final = {
    "label": pl.UInt32(), "t": pl.Int64(), "dur": pl.Int64(), "correlation": pl.Int64(),
    "args": pl.Categorical(), "reported_path": pl.Categorical(),
}  # fmt: skip


class ProgramInputs(msgspec.Struct, frozen=True):
    """The inputs of a compiled program, weights among them."""

    counts: dict[str, int]  # of inputs by their sizes, as 4x256x512
    numbers: int
    dtype: str  # of most of these numbers
    donated: int  # inputs whose memory its results take


@dataclass
class PlaneEvents:
    """The events of all planes, by column."""

    t: list[int] = field(default_factory=list)
    dur: list[int] = field(default_factory=list)
    correlation: list[int | None] = field(default_factory=list)
    args: list[str | None] = field(default_factory=list)
    path: list[str | None] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    label_ids: dict[tuple[str | None, str, str], int] = field(default_factory=dict)  # category, name, place
    metadata: list[TraceEvent] = field(default_factory=list)  # names of planes and lines
    planes: list[str] = field(default_factory=list)
    programs: dict[str, list[ProgramInputs]] = field(default_factory=dict)  # by name
    executed: set[str] = field(default_factory=set)  # names of programs
    has_steps: bool = False  # reported by the host

    def describe_program(self) -> dict[str, Any]:
        """Build the metadata of the programs that ran, such as those of prompts and of single tokens.

        Those with less than half of the numbers of the largest are left out; empty without one.
        """
        inputs = [each for name in sorted(self.executed) for each in self.programs.get(name, ())]
        main = max(inputs, key=lambda each: each.numbers, default=None)
        if main is None:
            return {}
        mains = [each for each in inputs if 2 * each.numbers >= main.numbers]
        counts = Counter[str]()
        for each in mains:
            counts.update(each.counts)
        return {
            "dtype": main.dtype,
            "program inputs": dict(counts),
            "donated inputs": sum(each.donated for each in mains),
        }

    def build_complete(self, base: int) -> CompleteEvents:
        """Build complete events with times since `base`; step marks of the host replace a device's."""
        step_cat = _COVER if self.has_steps else _ANNOTATION
        labels = pl.DataFrame(
            [(step_cat if cat == _STEPS_LINE else cat, name, place) for cat, name, place in self.label_ids],
            schema={"cat": pl.String, "name": pl.String, "thread": pl.String},
            orient="row",
        )
        columns = (self.labels, self.t, self.dur, self.correlation, self.args, self.path)
        rows = pl.DataFrame(dict(zip(_ROW_SCHEMA, columns, strict=True)), schema=_ROW_SCHEMA)
        missing = pl.lit(None, dtype=pl.Int64)
        return CompleteEvents(rows.with_columns(pl.col("t") - base, external_id=missing), labels)


@dataclass(frozen=True)
class _PlaneContext:
    """What the events of a plane refer to."""

    name: str
    id: int
    event_names: Mapping[int, str]  # by event id
    shared_statistics: Mapping[int, list[Value]]  # by event id: statistics that its events share
    statistic_names: Mapping[int, str]  # by statistic id


def sniff(head: Head) -> bool:
    """Accept an input whose first message is a plane: its name precedes everything large."""
    raw = head.raw
    if raw[:1] != bytes([_PLANE_FIELD << 3 | BYTES]):
        return False
    with contextlib.suppress(WireError, IndexError):
        _, at = decode_varint(raw, 1)
        while (tag := raw[at]) & 7 == _WIRE_TYPES.get(tag >> 3):
            size, at = decode_varint(raw, at + 1)
            if tag >> 3 == _NAME_FIELD:
                return raw[at : at + size].decode("utf-8", "replace").startswith(_PLANE_NAME_PREFIXES)
            if tag & 7 == BYTES:
                return False
    return False


def load(source: Source) -> list[Run]:
    events, data = PlaneEvents(), source.read()
    truncated = _read_planes(data, events, source.log)
    if not events.t:
        raise UnreadableError("is an xplane profile without a readable event", where=source.label)
    source.log.read += len(events.t)
    first_ns = min(events.t)
    base = first_ns if first_ns > _MIN_EPOCH_NS else 0
    header: dict[str, Any] = {"baseTimeNanoseconds": base} if base else {}
    producer = "JAX profiler" if any("python" in plane for plane in events.planes) else "XLA profiler"
    trace = Trace(events.build_complete(base), events.metadata, header, truncated, producer=producer)
    run = convert_to_run(trace, source)
    return [replace(run, meta={**run.meta, **events.describe_program()})]


def read_program(path: Path) -> dict[str, Any]:
    """Read the metadata of the largest programs that ran in a profile; empty if it has none.

    Raise UnreadableError if it is larger than _MAX_REPORT_BYTES, or cannot be read.
    """
    events = PlaneEvents()
    _read_planes(Source.from_path(path).read(_MAX_REPORT_BYTES), events, Log())
    return events.describe_program()


def _read_planes(data: bytes, events: PlaneEvents, log: Log) -> bool:
    """Read all planes; return True if the file is cut."""
    at = 0
    try:
        for number, (at, plane) in enumerate(iter_records(data, _PLANE_FIELD)):
            try:
                _read_plane(plane, number, events, log)
            except WireError:
                log.note("bad_plane", "planes that are incomplete", at=at, severity="data_loss")
        for field, kind in _MESSAGE_FIELDS.items():
            for _, message in iter_records(data, field):
                log.note(f"profiler_{kind}", f"the profiler's {kind}: {clean(to_text(message), 300)}")
    except WireError:
        log.note("cut_short", "the file ends within a plane", at=at, severity="data_loss")
        return True
    return False


def _read_plane(raw: Value, number: int, events: PlaneEvents, log: Log) -> None:
    parts = decode_submessage(raw)
    name = next(map(to_text, select_values(parts, 2)), "")
    events.planes.append(name)
    if name == _PROGRAMS_PLANE:
        _read_programs(parts, events)
    if name in _PLANES_WITHOUT_EVENTS:
        return
    event_names, shared = _read_event_names(parts)
    entries = _iter_map_entries(parts, 5)
    statistic_names = {id: to_text(index_fields(value).get(2, b"")) for id, value in entries}
    plane = _PlaneContext(name, number, event_names, shared, statistic_names)
    events.metadata.append(build_name_event("process_name", plane.id, None, name))
    for line in select_values(parts, 3):
        _read_line(line, plane, events, log)


def _read_programs(parts: list[tuple[int, Value]], events: PlaneEvents) -> None:
    """Read the inputs of the programs of the metadata plane; skip those that are damaged."""
    for _, entry in _iter_map_entries(parts, 4):
        for statistic in select_values(decode_submessage(entry), 5):
            with contextlib.suppress(WireError):
                program = index_fields(index_fields(index_fields(statistic).get(6, b"")).get(1, b""))
                name, inputs = to_text(program.get(1, b"")), _read_program_inputs(program)
                if inputs is not None:
                    events.programs.setdefault(name, []).append(inputs)


def _read_program_inputs(program: Mapping[int, Value]) -> ProgramInputs | None:
    """Read the arrays among a program's inputs (HloModuleProto); None without one of a known format."""
    counts, by_dtype = Counter[str](), Counter[str]()
    shapes = select_values(decode_submessage(program.get(4, b"")), 1)
    while shapes:
        fields = decode_submessage(shapes.pop())
        shapes += select_values(fields, 4)  # of a tuple
        number = next(map(to_number, select_values(fields, 2)), 0)
        sizes = list(_iter_numbers(select_values(fields, 3)))
        if not 0 < len(sizes) <= _MAX_DIMENSIONS:
            continue
        if number in _DTYPES:
            by_dtype[_DTYPES[number]] += math.prod(sizes)
        if number in _DTYPES or number in _INTEGERS:
            counts["x".join(map(str, sizes))] += 1
    if not by_dtype.total():
        return None
    donated = select_values(decode_submessage(program.get(8, b"")), 1)
    return ProgramInputs(dict(counts), by_dtype.total(), by_dtype.most_common(1)[0][0], len(donated))


def _iter_numbers(values: list[Value]) -> Iterator[int]:
    """Yield the numbers of a repeated field, packed or not."""
    for value in values:
        at = 0
        while isinstance(value, bytes) and at < len(value):
            number, at = decode_varint(value, at)
            yield number
        if isinstance(value, int):
            yield value


def _read_event_names(parts: list[tuple[int, Value]]) -> tuple[dict[int, str], dict[int, list[Value]]]:
    names: dict[int, str] = {}
    shared: dict[int, list[Value]] = {}
    for key, value in _iter_map_entries(parts, 4):
        fields = decode_submessage(value)
        values = dict(fields)
        names[key] = to_text(values.get(2, b"")) or to_text(values.get(4, b"")) or UNNAMED
        shared[key] = select_values(fields, 5)
    return names, shared


def _iter_map_entries(parts: list[tuple[int, Value]], map_field: int) -> Iterator[tuple[int, Value]]:
    for entry in select_values(parts, map_field):
        pair = index_fields(entry)
        if 2 in pair:
            yield to_number(pair.get(1, 0)), pair[2]


def _read_line(raw: Value, plane: _PlaneContext, events: PlaneEvents, log: Log) -> None:
    fields = decode_submessage(raw)
    values = dict(fields)
    id, start = (to_signed(to_number(values.get(number, 0))) for number in (1, 3))
    name = to_text(values.get(11, b"")) or to_text(values.get(2, b"")) or f"line {id}"
    line = name if plane.name.startswith(_DEVICE_PREFIX) else str(id)
    events.metadata.append(build_name_event("thread_name", plane.id, line, name))
    place = f"{plane.id}{THREAD_SEPARATOR}{line}"
    for event in select_values(fields, 4):
        _read_event(event, start, name, place, plane, events, log)


def _read_event(
    raw: Value, start: int, line: str, place: str, plane: _PlaneContext, events: PlaneEvents, log: Log
) -> None:
    try:
        fields = decode_submessage(raw)
        values = dict(fields)
        id = to_number(values.get(1, 0))
        statistics = _read_statistics(select_values(fields, 4), plane, id)
    except WireError:
        log.read += 1
        log.drop("bad_event", "events that cannot be read")
        return
    t = start + to_signed(to_number(values.get(2, 0))) // 1000
    dur = (to_signed(to_number(values.get(3, 0))) + 500) // 1000
    if 5 in values or abs(t) > _MAX_NS:
        log.read += 1
        log.drop("no_time", "events that are sums of others, or have no valid time")
        return
    cat, name = _classify_event(plane, line, plane.event_names.get(id, UNNAMED), statistics)
    events.has_steps |= cat == _ANNOTATION
    if isinstance(program := statistics.get(_PROGRAM), str):
        events.executed.add(program)
    events.labels.append(events.label_ids.setdefault((cat, name, place), len(events.label_ids)))
    events.t.append(t)
    events.dur.append(dur)
    correlation = statistics.get(_CORRELATION)
    is_valid = isinstance(correlation, int) and 0 < correlation < 1 << 62
    events.correlation.append(correlation if is_valid else None)
    events.args.append(_parse_resources(statistics.get(_DETAILS)))
    events.path.append(_parse_scope(statistics) if cat == "kernel" else None)


def _classify_event(
    plane: _PlaneContext, line: str, name: str, statistics: Mapping[str, Any]
) -> tuple[str | None, str]:
    """Infer category (as PyTorch's profiler names it) and displayed name of an event."""
    if plane.name.startswith(_DEVICE_PREFIX):
        if line == _STEPS_LINE:
            return _STEPS_LINE, f"step {name}" if name.isdecimal() else name
        if not _WORK_LINE.match(line):
            return _COVER, name
        match = _COPY.match(name)
        return ("kernel" if match is None else f"gpu_mem{match[1].lower()}"), name
    if isinstance(step := statistics.get(_STEP), int):
        return _ANNOTATION, name_step(name, step)
    return ("cuda_runtime" if plane.name == _CALLS_PLANE or _CORRELATION in statistics else None), name


def _read_statistics(values: list[Value], plane: _PlaneContext, id: int) -> dict[str, Any]:
    """Read the known statistics of an event, its shared ones included."""
    statistics: dict[str, Any] = {}
    for value in (*plane.shared_statistics.get(id, ()), *values):
        fields = decode_submessage(value)
        name = plane.statistic_names.get(next(map(to_number, select_values(fields, 1)), 0), "")
        if name in _KNOWN_STATISTICS:
            decoded = (_decode_statistic(tag, value, plane) for tag, value in fields if tag != 1)
            statistics[name] = next(decoded, None)
    return statistics


def _decode_statistic(tag: int, value: Value, plane: _PlaneContext) -> Any:
    if tag == 7:
        return plane.statistic_names.get(to_number(value), "")
    if tag == 2:
        return to_double(to_number(value))
    if tag in (3, 4):
        return to_signed(to_number(value)) if tag == 4 else to_number(value)
    return to_text(value)


def _parse_scope(statistics: Mapping[str, Any]) -> str | None:
    values = map(statistics.get, _SCOPES)
    op_path = next((value for value in values if isinstance(value, str) and "/" in value), None)
    if op_path is None:
        return None
    parts = [part for part in op_path.partition(":")[0].split("/") if part]
    return PATH_SEPARATOR.join(parts[:-1]) or None


def _parse_resources(details: Any) -> str | None:
    """Parse the launch configuration into the arguments of PyTorch's profiler."""
    if not isinstance(details, str):
        return None
    texts = dict(_DETAIL.findall(details))
    integers = _parse_integers(texts)
    sizes = {key: _parse_sizes(texts.get(key, "")) for key in ("grid", "block")}
    args: dict[str, Any] = {key: size for key, size in sizes.items() if size}
    shared = [integers[key] for key in ("static_shared", "dynamic_shared") if key in integers]
    if shared:
        args["shared memory"] = sum(shared)
    args |= {name: integers[key] for key, name in _ARGUMENT_BY_DETAIL.items() if key in integers}
    return msgspec.json.encode(args).decode() if args else None


def _parse_integers(texts: Mapping[str, str]) -> dict[str, int]:
    return {key: int(value) for key, value in texts.items() if value.isdecimal() and len(value) < 11}


def _parse_sizes(text: str) -> list[int]:
    """Parse three sizes such as `32,1,1`; empty if they are invalid."""
    sizes = text.split(",")
    is_valid = len(sizes) == 3 and all(size.isdecimal() and len(size) < 11 for size in sizes)
    return [int(size) for size in sizes] if is_valid else []
