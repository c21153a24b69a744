"""What every reader of Chrome trace events gives: complete events as a frame, the rest as records."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.native.schema import PATH_SEPARATOR

DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
OPERANDS: Final = '"Input '  # how the keys begin that state operands …
VALUES: Final = '"Concrete '  # … and the key in front of them that states values
OPERATORS: Final = ("cpu_op", "Operator")
KERNELS: Final = ("kernel", "Kernel")
CALLS: Final = ("cuda_runtime", "cuda_driver", "Runtime")
LINKED: Final = (*DEVICE, *CALLS)
ATTENTION: Final = "attention"  # in the name of an operator whose values matter beside its shapes
FLOWS: Final = ("s", "t", "f")
UNNAMED: Final = "unnamed"
NO_END: Final = ("no_end", "the list of events has no closing bracket")  # id and message of a notice
PLACE: Final = "\n"  # between pid and tid; neither can hold it unescaped

_NOTHING: Final = msgspec.Raw(b"")
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*([0-9]{1,18})(?![0-9])')
_EXTERNAL: Final = re.compile(rb'"[Ee]xternal id"\s*:\s*([0-9]{1,18})(?![0-9])')
REPEATED: Final = re.compile(rb'"(ts|dur|name|ph|cat|pid|tid)"\s*:[^{}]*?"\1"\s*:')  # a key that stands twice
_NUMBER: Final = r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$"


class RefusedError(ValueError):
    """A reader does not take this file: another one reads it."""


class Event(msgspec.Struct, gc=False):
    """One trace event; what is not a plain word stays raw text, so that no number loses a digit."""

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
    def place(self) -> str:
        return f"{raw_text(bytes(self.pid))}{PLACE}{raw_text(bytes(self.tid))}"

    @property
    def title(self) -> str:
        return UNNAMED if self.name is None else str(self.name)


class _Operands(msgspec.Struct, gc=False):
    """The operands of a call, as they are written."""

    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")


class _Resources(msgspec.Struct, gc=False, omit_defaults=True):
    """How a kernel was launched, as it is written."""

    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    registers: msgspec.Raw = msgspec.field(default=_NOTHING, name="registers per thread")
    shared: msgspec.Raw = msgspec.field(default=_NOTHING, name="shared memory")
    occupancy: msgspec.Raw = msgspec.field(default=_NOTHING, name="est. achieved occupancy %")


_DECODER: Final = msgspec.json.Decoder(_Operands)
_RESOURCES: Final = msgspec.json.Decoder(_Resources)


class _Stack(msgspec.Struct, gc=False):
    """The scopes around an event, from the outermost on."""

    call_stack: list[str] = []


_STACK: Final = msgspec.json.Decoder(_Stack)


@dataclass(frozen=True, eq=False)
class Complete:
    """Events with a duration: their times, and a label each for what many of them share."""

    rows: pl.DataFrame  # label (its row in labels), t, dur, correlation, external, args
    labels: pl.DataFrame  # cat, name, place

    def __add__(self, other: "Complete") -> "Complete":
        shifted = other.rows.with_columns(pl.col("label") + self.labels.height)
        rows = pl.concat([self.rows, shifted], how="diagonal")
        return Complete(rows, pl.concat([self.labels, other.labels]))

    def column(self, name: str) -> pl.Series:
        """Return a column of the labels, spread over the rows."""
        return self.labels[name].gather(self.rows["label"])


@dataclass
class Trace:
    """A trace as it was read, before anything is made of it."""

    complete: Complete
    others: list[Event]
    header: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    lanes: dict[str, str] = field(default_factory=dict)  # place → track of a device, where a reader knows it
    producer: str = ""  # where a reader knows it


@cache
def raw_text(raw: bytes) -> str:
    """Return a raw JSON value as text: a string without its quotes, a number as it stands."""
    text = raw.decode("utf-8", "replace").strip()
    return json_text(text) or "" if text.startswith('"') else text


def json_text(quoted: str) -> str | None:
    """Return what a JSON string literal says; None where it is broken."""
    try:
        value = json.loads(quoted, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ns(text: pl.Expr) -> pl.Expr:
    """Return decimal microseconds as whole nanoseconds, exact for epoch times; null for what is no number."""
    return text.cast(pl.Decimal(38, 3), strict=False).to_physical().cast(pl.Int64, strict=False)


def label_frame(rows: Iterable[tuple[str | None, str, str]]) -> pl.DataFrame:
    schema = {"cat": pl.String, "name": pl.String, "place": pl.String}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def complete_events(events: Sequence[Event], log: Log) -> Complete:
    """Return events of phase X in the common form; those whose times mean nothing are dropped and counted."""
    labels: dict[tuple[str | None, str, str], int] = {}
    frame = pl.DataFrame(
        {
            "label": [labels.setdefault((e.cat, e.title, e.place), len(labels)) for e in events],
            "ts": [_ascii(e.ts) for e in events],
            "dur": [_ascii(e.dur) for e in events],
            "correlation": [_correlation(e) for e in events],
            "external": [_external(e) for e in events],
            "args": [_arguments(e) for e in events],
        },
        schema={
            "label": pl.UInt32, "ts": pl.String, "dur": pl.String, "correlation": pl.Int64,
            "external": pl.Int64, "args": pl.Categorical(),
        },
    )  # fmt: skip
    stacks = pl.Series("stated_path", [_stated_path(e) for e in events], dtype=pl.String)
    frame = frame.with_columns(stacks.cast(pl.Categorical())) if stacks.count() else frame
    ordered = ("label", "t", "dur", "correlation", "external", "args", pl.col("^stated_path$"))
    return Complete(timed(frame, log).select(ordered), label_frame(labels))


def _stated_path(event: Event) -> str | None:
    """Return the scopes that an event itself states, as Proton does of each kernel; None for none."""
    args = bytes(event.args)
    if b'"call_stack"' not in args:
        return None
    try:
        stack = _STACK.decode(args).call_stack
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    inner = stack[1:] if stack[:1] == ["ROOT"] else stack
    inner = inner[:-1] if inner[-1:] == [event.title] else inner
    return PATH_SEPARATOR.join(inner) or None


def _ascii(raw: msgspec.Raw) -> str | None:
    return bytes(raw).decode("ascii", "replace") or None


def _correlation(event: Event) -> int | None:
    if event.cat not in LINKED:
        return None
    match = _CORRELATION.search(bytes(event.args))
    return int(match[1]) if match else None


def _external(event: Event) -> int | None:
    if event.cat not in DEVICE and event.cat not in OPERATORS:
        return None
    match = _EXTERNAL.search(bytes(event.args))
    return int(match[1]) if match else None


def _arguments(event: Event) -> str | None:
    """Return what an operator states of its operands, or a kernel of its launch, as JSON."""
    return _launch(event) if event.cat in KERNELS else _operands(event)


def _launch(event: Event) -> str | None:
    args = bytes(event.args)
    if b'"grid"' not in args and b'"registers per' not in args:
        return None
    try:
        return msgspec.json.encode(_RESOURCES.decode(args)).decode("utf-8", "replace")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _operands(event: Event) -> str | None:
    """Return what an operator's event states of its operands, as JSON without what differs at each call."""
    if event.cat not in OPERATORS or b'"Input Dims"' not in (args := bytes(event.args)):
        return None
    try:
        read = _DECODER.decode(args)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    parts = [f'"Input Dims": {_raw_json(read.dims)}', f'"Input type": {_raw_json(read.types)}']
    if ATTENTION in event.title:
        parts.append(f'"Concrete Inputs": {_raw_json(read.values)}')
    return "{" + ", ".join(parts) + "}"


def _raw_json(raw: msgspec.Raw) -> str:
    """Return raw JSON as text, `null` where there is none."""
    return bytes(raw).decode("utf-8", "replace") or "null"


def timed(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame with its times, `ts` and `dur` as they are written, as integers `t` and `dur`.

    Rows whose times mean nothing are left out; the account says which could not be one.
    """
    text = {c: pl.col(c).str.strip_chars(' "') for c in ("ts", "dur")}
    fine = {
        c: t.str.contains(_NUMBER) & t.cast(pl.Float64, strict=False).is_finite() for c, t in text.items()
    }
    kept = frame.filter(fine["ts"].fill_null(False))
    log.drop("bad_time", "events whose start is no number", count=frame.height - kept.height)
    stated = kept.filter(fine["dur"].fill_null(True))
    log.drop("bad_duration", "events whose duration is no number", count=kept.height - stated.height)
    lacking = stated["dur"].null_count()
    note_lacking(lacking, log)
    stated = stated.with_columns(t=ns(text["ts"]), dur=ns(text["dur"]))
    beyond = stated["t"].null_count() + stated["dur"].null_count() - lacking
    if beyond:
        log.note("time_out_of_range", "times beyond 292 years; kept, but in no sum", count=beyond)
    return stated.drop("ts")


def note_lacking(count: int, log: Log) -> None:
    """Note how many complete events lack a duration; none is no remark."""
    if count:
        log.note("no_duration", "complete events without a duration; kept, but in no sum", count=count)
