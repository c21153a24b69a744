"""`Trace`, the common output of all readers: complete events as a frame, the rest as records and rows.

Other loaders (Perfetto, rocprof, XPlane) build a `Trace`, too, and pass it to `trace_to_run`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.operator_call import ONNX_TYPE
from capture.classify.operator_work import flatten_batch
from capture.import_log import Log
from capture.loaders._json_document import decode_or_none, parse_object, to_float
from capture.native.schema import PATH_SEPARATOR
from capture.run import list_column_types

DEVICE_CATEGORIES: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
OPERATOR_CATEGORIES: Final = ("cpu_op", "Operator")
KERNEL_CATEGORIES: Final = ("kernel", "Kernel")
RUNTIME_CATEGORIES: Final = ("cuda_runtime", "cuda_driver", "Runtime")
LINKED_CATEGORIES: Final = (*DEVICE_CATEGORIES, *RUNTIME_CATEGORIES)
_IDENTIFIED_CATEGORIES: Final = (*DEVICE_CATEGORIES, *OPERATOR_CATEGORIES)
# in names of operators whose values matter, not only their shapes
VALUED: Final = ("attention", "conv", "aten::empty")
FLOW_PHASES: Final = ("s", "t", "f")
UNNAMED: Final = "unnamed"
NO_END: Final = ("no_end", "the list of events has no closing bracket")  # id and message of a notice
THREAD_SEPARATOR: Final = "\n"  # between pid and tid, which cannot contain it unescaped
REPEATED: Final = re.compile(rb'"(ts|dur|name|ph|cat|pid|tid)"\s*:[^{}]*?"\1"\s*:')  # the same key twice
_NOTHING: Final = msgspec.Raw(b"")
_PRESENT: Final = msgspec.Raw(b"0")  # for a number that varies by call, of which only the presence counts
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*([0-9]{1,18})(?![0-9])')
_EXTERNAL_ID: Final = re.compile(rb'"[Ee]xternal id"\s*:\s*([0-9]{1,18})(?![0-9])')
_NUMBER: Final = r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$"
ONNX_SESSION: Final = b'"session_initialization"'  # the name of an early event of onnxruntime
STEP_KEY: Final = b'"step_num"'  # in the arguments of an event that marks a step
_MEMORY: Final = "[memory]"
_WORD: Final = re.compile(r"\w+")
_STEP_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_ONNX_RUN: Final = "model_run"
_PRODUCT_NODE: Final = re.compile("MatMul|Gemm")
_ONNX_SUFFIX: Final = "_kernel_time"
_MAX_DEVICES: Final = 1 << 20  # larger device ids are invalid
_INSTANT_PHASES: Final = ("i", "I", "R", "n")
_END_PHASES: Final = {"B": "E", "b": "e"}  # by phase of the begin
_ROW_SCHEMA: Final = list_column_types("kind", "name", "lens", "track", "path", "value", "unit", "bytes")


class RefusedError(ValueError):
    """A fast reader does not support this file; the lenient one reads it."""


class TraceEvent(msgspec.Struct, gc=False):
    """One trace event; numbers and arguments stay raw text, so that no digit is lost."""

    ph: str = ""
    cat: str | None = None
    name: str | int | float | bool | None = None
    pid: msgspec.Raw = _NOTHING
    tid: msgspec.Raw = _NOTHING
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: msgspec.Raw = _NOTHING
    id: msgspec.Raw = _NOTHING

    @property
    def thread(self) -> str:
        """Process and thread, or device and stream, as one key."""
        return format_thread(bytes(self.pid), bytes(self.tid))

    @property
    def title(self) -> str:
        return UNNAMED if self.name is None else str(self.name)


class _MemoryChange(msgspec.Struct, gc=False):
    """The numbers that the allocator's event of a change states."""

    device: float | None = msgspec.field(default=None, name="Device Id")
    size: float | None = msgspec.field(default=None, name="Bytes")
    allocated: float | None = msgspec.field(default=None, name="Total Allocated")
    reserved: float | None = msgspec.field(default=None, name="Total Reserved")


_CHANGES_DECODER: Final = msgspec.json.Decoder(list[_MemoryChange])


class _Operands(msgspec.Struct, gc=False):
    """The operands of an operator call, as written."""

    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")
    strides: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Strides")
    sequence: msgspec.Raw = msgspec.field(default=_NOTHING, name="Sequence number")


class _LaunchConfig(msgspec.Struct, gc=False, omit_defaults=True):
    """The launch configuration of a kernel, as written."""

    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    registers: msgspec.Raw = msgspec.field(default=_NOTHING, name="registers per thread")
    shared: msgspec.Raw = msgspec.field(default=_NOTHING, name="shared memory")
    occupancy: msgspec.Raw = msgspec.field(default=_NOTHING, name="est. achieved occupancy %")
    collective: msgspec.Raw = msgspec.field(default=_NOTHING, name="Collective name")
    sent: msgspec.Raw = msgspec.field(default=_NOTHING, name="In msg nelems")
    received: msgspec.Raw = msgspec.field(default=_NOTHING, name="Out msg nelems")
    element_type: msgspec.Raw = msgspec.field(default=_NOTHING, name="dtype")
    group_size: msgspec.Raw = msgspec.field(default=_NOTHING, name="Group size")


_LAUNCH_CONFIG_KEYS: Final = [f'"{key}"'.encode() for key in _LaunchConfig.__struct_encode_fields__]


class _StepNumber(msgspec.Struct, gc=False):
    """The number of a step that JAX annotates."""

    number: int | str | None = msgspec.field(default=None, name="step_num")


class _Scopes(msgspec.Struct, gc=False):
    """The scopes of an event, outermost first (Proton), or what torch says of a graph's node."""

    call_stack: list[str] = []
    module_fqn: str = ""
    node_id: int = msgspec.field(default=0, name="graph node id")
    name: str = ""  # of the innermost `mark_kernels`
    text: str = msgspec.field(default="", name="str")  # the same in torch 2.12 and 2.13
    annotation: str = ""  # the same if it is neither a text nor a dict


_OPERANDS_DECODER: Final = msgspec.json.Decoder(_Operands)
_LAUNCH_CONFIG_DECODER: Final = msgspec.json.Decoder(_LaunchConfig)
_JSON_DECODER: Final = json.JSONDecoder(strict=False)
_SCOPE_KEYS: Final = (b'"call_stack"', b'"module_fqn"', b'"graph node id"')
_SCOPES_DECODER: Final = msgspec.json.Decoder(_Scopes)
_STEP_DECODER: Final = msgspec.json.Decoder(_StepNumber)


@dataclass(frozen=True, eq=False)
class CompleteEvents:
    """Events with a duration: a row each, and a label for what many of them share."""

    rows: pl.DataFrame  # label (row of `labels`), t, dur, correlation, external_id, args
    labels: pl.DataFrame  # cat, name, thread

    def __add__(self, other: "CompleteEvents") -> "CompleteEvents":
        shifted = other.rows.with_columns(pl.col("label") + self.labels.height)
        rows = pl.concat([self.rows, shifted], how="diagonal")
        return CompleteEvents(rows, pl.concat([self.labels, other.labels]))

    def expand_label(self, name: str) -> pl.Series:
        """Expand a column of the labels to the rows."""
        return self.labels[name][self.rows["label"]]


@dataclass
class Trace:
    """A trace as read; `trace_to_run` interprets it."""

    complete: CompleteEvents
    others: list[TraceEvent]  # of other phases, and those that state the number of a step
    header: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    tracks: dict[str, str] = field(default_factory=dict)  # thread → track, if the reader knows it
    producer: str = ""  # if the reader knows it
    threads: int | None = None  # if the reader knows how many compute


@cache
def decode_raw(raw: bytes) -> str:
    """Decode a raw JSON value as text: a string without its quotes, a number as written."""
    text = raw.decode("utf-8", "replace").strip()
    return decode_json_string(text) or "" if text.startswith('"') else text


def format_thread(pid: bytes, tid: bytes) -> str:
    """Format raw pid and tid as the key of a thread."""
    return f"{decode_raw(pid)}{THREAD_SEPARATOR}{decode_raw(tid)}"


def decode_json_string(quoted: str) -> str | None:
    """Decode a JSON string literal; None if it is invalid."""
    value = decode_or_none(_JSON_DECODER.decode, quoted)
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def convert_us_to_ns(text: pl.Expr) -> pl.Expr:
    """Convert decimal microseconds to integer nanoseconds, exact for epoch times; null if not a number."""
    return text.cast(pl.Decimal(38, 3), strict=False).to_physical().cast(pl.Int64, strict=False)


def encode_us(ns: int | None) -> msgspec.Raw:
    """Encode nanoseconds as decimal microseconds, exactly; None as a missing value."""
    if ns is None:
        return msgspec.Raw(b"")
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def build_name_event(kind: str, pid: int | str, tid: int | str | None, name: str) -> TraceEvent:
    """Build the event by which a Chrome trace names a process or a thread."""
    raw = msgspec.Raw(b"") if tid is None else encode_raw(tid)
    return TraceEvent(ph="M", name=kind, pid=encode_raw(pid), tid=raw, args=encode_raw({"name": name}))


def encode_raw(value: Any) -> msgspec.Raw:
    """Encode a value as raw JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def name_step(name: str, number: int) -> str:
    """Name a numbered step as `parse_step_annotation` reads it: decode step 3."""
    return f"{name} step {number}" if _WORD.fullmatch(name) else f"step {number}"


class _OnnxNode(msgspec.Struct, gc=False):
    """A node of onnxruntime: lists of {type: dims}."""

    op_name: str = ""
    input_type_shape: list[dict[str, list[int]]] = []
    output_type_shape: list[dict[str, list[int]]] = []
    thread_scheduling_stats: Any = None  # of the session's pool of threads; empty without one


ONNX_DECODER: Final = msgspec.json.Decoder(_OnnxNode)


def translate_onnx_events(events: list[TraceEvent]) -> list[TraceEvent]:
    """Translate a profile of onnxruntime to the events of PyTorch's: nodes are operators, runs are steps.

    Loading and initialising a session stay spans. Other events are returned as they are.
    """
    if not any(event.cat == "Session" for event in events):
        return events
    runs, out = 0, []
    for number, event in enumerate(events, 1):
        cat, title = event.cat, event.title
        if event.cat == "Node" and title.endswith(_ONNX_SUFFIX):
            cat, title = OPERATOR_CATEGORIES[0], title.removesuffix(_ONNX_SUFFIX).rstrip("/")
            node = decode_or_none(ONNX_DECODER.decode, bytes(event.args)) or _OnnxNode()
            title += "" if node.op_name in title else f" ({node.op_name})"
            event = msgspec.structs.replace(event, args=_encode_onnx_operands(node, number))
        elif event.cat == "Session" and title == _ONNX_RUN:
            runs += 1
            cat, title = "user_annotation", name_step(title, runs)
        out.append(msgspec.structs.replace(event, cat=cat, name=title))
    return out


def _encode_onnx_operands(node: _OnnxNode, number: int) -> msgspec.Raw:
    """Encode operands; the constant one of a product is not listed, but its result implies it."""
    shapes = [next(iter(tensor.items()), ("", [])) for tensor in node.input_type_shape]
    results = [next(iter(tensor.items()), ("", [])) for tensor in node.output_type_shape]
    if _PRODUCT_NODE.search(node.op_name) and shapes and results:
        _complete_product(shapes, results[0][1])
    types, dims = [f"{ONNX_TYPE}{kind})" for kind, _ in shapes], [sizes for _, sizes in shapes]
    return encode_raw({"External id": number, "Input Dims": dims, "Input type": types})


def _complete_product(shapes: list[tuple[str, list[int]]], result: list[int]) -> None:
    """Insert a constant operand, or write those of many matrices as (b, m, k) and (b, k, n), in place."""
    (kind, left), *others = shapes
    if left and result and all(len(sizes) < 2 for _, sizes in others):
        shapes.insert(1, (kind, [left[-1], result[-1]]))
    elif others:
        left, right = flatten_batch(left, others[0][1], result)
        shapes[:2] = [(kind, left), (others[0][0], right)]


def _with_step_number(event: TraceEvent) -> TraceEvent:
    """Name and categorise an event that states the number of a step (JAX) as an annotation; else as it is."""
    args = bytes(event.args)
    decoded = decode_or_none(_STEP_DECODER.decode, args) if STEP_KEY in args else None
    number = str(decoded.number) if decoded is not None else ""
    if event.cat is not None or not _STEP_NUMBER.fullmatch(number):
        return event
    return msgspec.structs.replace(event, name=name_step(event.title, int(number)), cat="user_annotation")


def build_complete_events(events: Sequence[TraceEvent], log: Log) -> CompleteEvents:
    """Build the frames of events of phase X; drop and count those whose times are not numbers."""
    events = [_with_step_number(event) for event in events]
    labels: dict[tuple[str | None, str, str], int] = {}
    frame = pl.DataFrame(
        {
            "label": [labels.setdefault((e.cat, e.title, e.thread), len(labels)) for e in events],
            "ts": [_decode_ascii(e.ts) for e in events],
            "dur": [_decode_ascii(e.dur) for e in events],
            "correlation": [_find_id(_CORRELATION, e, LINKED_CATEGORIES) for e in events],
            "external_id": [_find_id(_EXTERNAL_ID, e, _IDENTIFIED_CATEGORIES) for e in events],
            "args": [_encode_arguments(e) for e in events],
        },
        schema={
            "label": pl.UInt32, "ts": pl.String, "dur": pl.String, "correlation": pl.Int64,
            "external_id": pl.Int64, "args": pl.Categorical(),
        },
    )  # fmt: skip
    paths = pl.Series("reported_path", [_parse_scopes(e) for e in events], dtype=pl.String)
    frame = frame.with_columns(paths.cast(pl.Categorical())) if paths.count() else frame
    columns = ("label", "t", "dur", "correlation", "external_id", "args", pl.col("^reported_path$"))
    schema = {"cat": pl.String, "name": pl.String, "thread": pl.String}
    label_frame = pl.DataFrame(list(labels), schema=schema, orient="row")
    return CompleteEvents(parse_times(frame, log).select(columns), label_frame)


def _parse_scopes(event: TraceEvent) -> str | None:
    """Parse the scopes that an event reports: the stack of Proton's kernels, what torch says of a node."""
    args = bytes(event.args)
    has_scopes = any(key in args for key in _SCOPE_KEYS)
    decoded = decode_or_none(_SCOPES_DECODER.decode, args) if has_scopes else None
    if decoded is None:
        return None
    mark = decoded.name or decoded.text or decoded.annotation if decoded.node_id else ""
    stack = decoded.call_stack or list(filter(None, (decoded.module_fqn, mark)))
    inner = stack[1:] if stack[:1] == ["ROOT"] else stack
    inner = inner[:-1] if inner[-1:] == [event.title] else inner
    return PATH_SEPARATOR.join(inner) or None


def _decode_ascii(raw: msgspec.Raw) -> str | None:
    return str(raw, "ascii", "replace") or None


def _find_id(pattern: re.Pattern[bytes], event: TraceEvent, categories: Sequence[str]) -> int | None:
    """Find an id in the arguments of an event of one of these categories."""
    match = pattern.search(bytes(event.args)) if event.cat in categories else None
    return int(match[1]) if match else None


def _encode_arguments(event: TraceEvent) -> str | None:
    """Encode an operator's operands or a kernel's launch configuration, without what varies by call."""
    args = bytes(event.args)
    if event.cat in KERNEL_CATEGORIES and any(key in args for key in _LAUNCH_CONFIG_KEYS):
        config = decode_or_none(_LAUNCH_CONFIG_DECODER.decode, args)
        is_empty = config is None or config == _LaunchConfig()
        return None if is_empty else msgspec.json.encode(config).decode("utf-8", "replace")
    if event.cat not in OPERATOR_CATEGORIES or b'"Input Dims"' not in args:
        return None
    operands = decode_or_none(_OPERANDS_DECODER.decode, args)
    return None if operands is None else _encode_operands(operands, event.title)


def _encode_operands(operands: _Operands, title: str) -> str:
    """Encode the operands of a call, whether autograd numbers it, and values if those of its kind matter."""
    members = {"Input Dims": operands.dims, "Input type": operands.types}
    if any(word in title for word in VALUED):
        members["Concrete Inputs"] = operands.values
        members |= {"Input Strides": operands.strides} if operands.strides else {}
    members |= {"Sequence number": _PRESENT} if operands.sequence else {}
    return "{" + ", ".join(f'"{key}": {_format_raw_json(raw)}' for key, raw in members.items()) + "}"


def _format_raw_json(raw: msgspec.Raw) -> str:
    return bytes(raw).decode("utf-8", "replace") or "null"


def parse_times(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Parse the texts `ts` and `dur` (µs) into integers `t` and `dur` (ns); drop and count invalid rows."""
    text = {c: pl.col(c).str.strip_chars(' "') for c in ("ts", "dur")}
    is_valid = {
        c: t.str.contains(_NUMBER) & t.cast(pl.Float64, strict=False).is_finite() for c, t in text.items()
    }
    started = frame.filter(is_valid["ts"].fill_null(False))
    log.drop("bad_time", "events whose start is not a number", count=frame.height - started.height)
    timed = started.filter(is_valid["dur"].fill_null(True))
    log.drop("bad_duration", "events whose duration is not a number", count=started.height - timed.height)
    missing = timed["dur"].null_count()
    note_missing_durations(missing, log)
    timed = timed.with_columns(t=convert_us_to_ns(text["ts"]), dur=convert_us_to_ns(text["dur"]))
    out_of_range = timed["t"].null_count() + timed["dur"].null_count() - missing
    if out_of_range:
        log.note("time_out_of_range", "times beyond 292 years; kept, but in no sum", count=out_of_range)
    return timed.drop("ts")


def note_missing_durations(count: int, log: Log) -> None:
    """Note the complete events without a duration, if there are any."""
    if count:
        log.note("no_duration", "complete events without a duration; kept, but in no sum", count=count)


def join_begin_end(events: Sequence[TraceEvent], log: Log) -> list[TraceEvent]:
    """Join begin and end events to complete ones, by begin; drop and count those without their other half.

    Of two that begin and end together, as samples of a stack do, the first to begin is the outer one.
    """
    joined: list[tuple[int, TraceEvent]] = []
    open_events: dict[tuple[str, ...], list[tuple[TraceEvent, int, int]]] = {}
    unpaired = 0
    halves = [e for e in events if e.ph in "BEbe"]
    if not halves:
        return []
    texts = [bytes(e.ts).decode("ascii", "replace").strip('" ') for e in halves]
    starts = pl.DataFrame({"ts": texts}, schema={"ts": pl.String}).select(convert_us_to_ns(pl.col("ts")))
    for place, (event, t) in enumerate(zip(halves, starts["ts"], strict=True)):
        if t is None:
            unpaired += 1
        elif event.ph in _END_PHASES:
            key = (*_build_pair_key(event), _END_PHASES[event.ph])
            open_events.setdefault(key, []).append((event, t, place))
        elif stack := open_events.get((*_build_pair_key(event), event.ph)):
            begin, start, began_at = stack.pop()
            begin.ph, begin.dur = "X", encode_us(t - start)
            joined.append((began_at, begin))
        else:
            unpaired += 1
    unpaired += sum(len(stack) for stack in open_events.values())
    log.drop("unbalanced", "begin or end events without their other half", count=unpaired)
    log.read -= len(joined)  # two events became one
    return [event for _, event in sorted(joined, key=itemgetter(0))]


def _build_pair_key(event: TraceEvent) -> tuple[str, ...]:
    """Build the key that both halves of an event share."""
    if event.ph in "be":
        return event.cat or "", decode_raw(bytes(event.id)), event.title
    return (event.thread,)


def build_other_rows(events: Sequence[TraceEvent], log: Log) -> pl.DataFrame:
    """Build rows of the event schema from counters, memory changes and instants, in their order."""
    rows: list[dict[str, Any]] = []
    changes: list[TraceEvent] = []
    places: list[int] = []  # of the changes among the events
    untimed = 0
    for place, event in enumerate(events):
        if event.ph == "C":
            rows += (row | {"place": place} for row in _iter_counter_rows(event))
        elif event.ph in _INSTANT_PHASES and event.name == _MEMORY:
            changes.append(event)
            places.append(place)
        elif event.ph in _INSTANT_PHASES:
            rows.append(_build_row(event, "mark") | {"path": "note", "place": place})
        elif event.ph not in "MBEbeX":
            untimed += 1
    log.drop("other_phase", "events of a phase without times (samples, objects, dumps)", count=untimed)
    if not rows and not changes:
        return pl.DataFrame(schema=_ROW_SCHEMA)
    frame = pl.DataFrame(rows, schema={**_ROW_SCHEMA, "t": pl.String, "place": pl.Int64})
    if changes:
        frame = pl.concat([frame, _build_memory_rows(changes, places)], how="diagonal_relaxed")
        frame = frame.sort("place", maintain_order=True)
    return frame.drop("place").with_columns(t=convert_us_to_ns(pl.col("t").str.strip_chars(' "')))


def _parse_numbers(event: TraceEvent) -> dict[str, float]:
    return {k: to_float(v) for k, v in parse_object(bytes(event.args)).items() if type(v) in (int, float)}


def _build_row(event: TraceEvent, kind: str) -> dict[str, Any]:
    return {"kind": kind, "name": event.title, "t": _decode_ascii(event.ts)}


def _iter_counter_rows(event: TraceEvent) -> Iterator[dict[str, Any]]:
    series = _parse_numbers(event)
    for key, value in series.items():
        name = event.title if len(series) == 1 else f"{event.title}.{key}"
        yield _build_row(event, "counter") | {"name": name, "value": value}


def _build_memory_rows(events: Sequence[TraceEvent], places: Sequence[int]) -> pl.DataFrame:
    """Build a row for each of the allocator's totals after a change; for the change if there is no total."""
    changes = _decode_memory_changes(events)
    numbers = {
        name: pl.Series([getattr(change, name) for change in changes], dtype=pl.Float64)
        for name in _MemoryChange.__struct_fields__
    }
    has_total = numbers["allocated"].is_not_null() | numbers["reserved"].is_not_null()
    sizes = {"allocated": numbers["allocated"], "reserved": numbers["reserved"]}
    sizes["allocation change"] = numbers["size"].fill_null(0.0).set(has_total, None)
    device = pl.col("device")
    gpu = pl.format("gpu{}", device.round().cast(pl.Int64, strict=False))
    track = pl.when((device >= 0) & (device < _MAX_DEVICES)).then(gpu).otherwise(pl.lit("cpu"))
    common = pl.DataFrame(
        {"t": [_decode_ascii(event.ts) for event in events], "place": places, "device": numbers["device"]},
        schema={"t": pl.String, "place": pl.Int64, "device": pl.Float64},
    ).with_columns(track=track, kind=pl.lit("memory"))
    rows = (common.with_columns(size.alias("bytes"), name=pl.lit(name)) for name, size in sizes.items())
    return pl.concat(rows).drop_nulls("bytes").drop("device")


def _decode_memory_changes(events: Sequence[TraceEvent]) -> list[_MemoryChange]:
    """Decode what the allocator's events state, all at once if they are plain and state numbers."""
    text = b"[" + b",".join(event.args or b"{}" for event in events) + b"]"
    changes = decode_or_none(_CHANGES_DECODER.decode, text)
    if changes is not None and len(changes) == len(events):
        return changes
    numbers = map(_parse_numbers, events)
    return [_MemoryChange(*map(each.get, _MemoryChange.__struct_encode_fields__)) for each in numbers]
