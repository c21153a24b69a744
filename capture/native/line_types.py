"""Line types of a native file: their fields, their decoding, and how native lines are detected."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, Struct, defstruct
from msgspec.json import Decoder

from capture.native.schema import COLUMNS, KINDS, Category, Kind, Lens, is_intact

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]  # small enough that sums stay exact in float64
Pair = tuple[float, float]
Law = Pair | float  # FLOPs or bytes of an op: a + b · min(context, window), or a


class ChecksummedLine(Struct, forbid_unknown_fields=True):
    """Fields of every line: its kind and the checksum of its bytes."""

    kind: str
    crc: str = ""


class WriterFields(ChecksummedLine, kw_only=True):
    """Fields that identify the writer of a line: a rank of a launch, or a process."""

    rank: Int64 | None = None
    writer: Int64 | None = None

    @property
    def writer_id(self) -> int | None:
        """A number per writer: each numbers its own ops and ends the run for itself."""
        return self.rank if self.writer is None else -1 - self.writer


class RunLine(WriterFields, kw_only=True):
    """A line that starts a run, or adds a writer to it."""

    schema: int
    id: str | int | None = None
    name: str | None = None
    meta: dict[str, Any] = {}
    clock: tuple[Int64, Int64] | None = None
    part: Int64 | None = None  # number of earlier files of the recording


class Op(Struct):
    """One op of a plan: everything that is the same in every step."""

    id: Int64
    name: str
    kind: Kind = "kernel"
    layer: Int32 | None = None
    op: str | None = None
    category: Category | None = None
    lens: Lens | None = None
    phase: str | None = None
    track: str | None = None
    path: str | None = None
    shape: str | None = None
    dtype: str | None = None
    launcher: str | None = None
    line: str | None = None
    grid: str | None = None
    block: str | None = None
    unit: str | None = None
    flops: Law | None = None
    bytes: Law | None = None
    window: float | None = None


class PlanLine(WriterFields, kw_only=True):
    """A line that defines ops; each op is validated separately."""

    ops: list[Any]


class ColumnsLine(WriterFields, kw_only=True, gc=False):
    """The events of one step: ops, starts as distances from the previous start, durations."""

    op: list[Int64]
    dur: list[Int64]
    dt: list[Int64] | None = None
    count: list[Int64] | None = None
    t: Int64 | None = None
    step: Int64 | None = None
    phase: str | None = None
    context: Int64 | None = None

    @property
    def has_equal_lengths(self) -> bool:
        """Whether all columns have the same length."""
        lists = [each for each in (self.dur, self.dt, self.count) if each is not None]
        return all(len(each) == len(self.op) for each in lists)


class RowsLine(ChecksummedLine, kw_only=True, gc=False):
    """Exported events: the op of each, and numbers by column."""

    op: list[Int64]
    columns: dict[str, list[int | float | None]]


class EventLine(WriterFields, kw_only=True):
    """A single event; its decoders add the other columns of the schema."""

    kind: Kind
    name: str
    t: Int64 | None = None
    category: Category | None = None
    lens: Lens | None = None
    track: str | None = None
    path: str | None = None


class SavedTable(Struct, kw_only=True):
    """A table as JSON columns."""

    name: str
    types: dict[str, str]
    columns: dict[str, list[Any]]


class TableLine(SavedTable, kw_only=True, forbid_unknown_fields=True):
    """A line with a table, or with further rows of one."""

    kind: str
    crc: str = ""


class SavedNotice(Struct):
    """A notice of an earlier import."""

    id: str
    severity: Literal["notice", "data_loss", "error"]
    count: Count
    message: str
    offsets: list[Count] = []


class SavedLog(Struct):
    """The log of an earlier import; one that does not add up is rejected."""

    source: str
    format: str
    read: Count
    repaired: Count
    dropped: Count
    notices: list[SavedNotice]

    def __post_init__(self) -> None:
        if self.dropped > self.read:
            raise ValueError("more records dropped than read")


class SavedLogLine(ChecksummedLine, kw_only=True):
    """The log of an earlier import, in an exported file."""

    log: SavedLog


class EndLine(WriterFields, kw_only=True):
    """The last line of a writer: numbers of events written and lost."""

    events: Count | None = None
    lost: Count = 0
    reason: str | None = None


Line = RunLine | PlanLine | ColumnsLine | RowsLine | EventLine | TableLine | SavedLogLine | EndLine

_COLUMN_TYPES: Final = {"cat": str | None, "i64": Int64 | None, "i32": Int32 | None, "f64": float | None}
_OTHER_COLUMNS: Final = [
    (c.name, _COLUMN_TYPES[c.type], None) for c in COLUMNS if c.name not in EventLine.__struct_fields__
]
_FullEventLine: Final = defstruct("EventLine", _OTHER_COLUMNS, bases=(EventLine,), kw_only=True)
_LINE_TYPES: Final[Mapping[str, type[Struct]]] = {
    "run": RunLine,
    "plan": PlanLine,
    "columns": ColumnsLine,
    "rows": RowsLine,
    "table": TableLine,
    "log": SavedLogLine,
    "end": EndLine,
    **dict.fromkeys(KINDS, _FullEventLine),
}
_KIND_BY_START: Final = {b'{"kind":"%s",' % kind.encode(): kind for kind in _LINE_TYPES}
_LONGEST_START: Final = max(map(len, _KIND_BY_START))
_DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class KindOnly(Struct):
    """Only the kind of a line."""

    kind: str


class BadLineError(Exception):
    """A line that is dropped; `id` is that of the notice that counts it."""

    def __init__(self, id: str, why: str) -> None:
        self.id = id
        super().__init__(why)


def _with_unknown_fields(line: type[Struct]) -> type[Struct]:
    return defstruct(line.__name__, [], bases=(line,), forbid_unknown_fields=False)


_STRICT_DECODERS: Final = {kind: Decoder(type) for kind, type in _LINE_TYPES.items()}
_LENIENT_DECODERS: Final = {kind: Decoder(_with_unknown_fields(type)) for kind, type in _LINE_TYPES.items()}
_KIND_DECODER: Final = Decoder(KindOnly)
_KEYS_DECODER: Final = Decoder(dict[str, Any])


def decode_line(line: bytes) -> tuple[Line, set[str]]:
    """Return a line as its type, and its keys outside the schema; raise BadLineError for a bad line."""
    if not is_intact(line):
        raise BadLineError("corrupt_line", "lines with a wrong checksum")
    kind = parse_kind(line)
    if kind not in _STRICT_DECODERS:
        raise BadLineError("unknown_kind", "lines of an unknown kind")
    try:
        return cast(Line, _STRICT_DECODERS[kind].decode(line)), set()
    except _DECODE_ERRORS:
        return _decode_leniently(line, kind)


def _decode_leniently(line: bytes, kind: str) -> tuple[Line, set[str]]:
    try:
        record = cast(Line, _LENIENT_DECODERS[kind].decode(line))
        return record, _KEYS_DECODER.decode(line).keys() - set(_LINE_TYPES[kind].__struct_fields__)
    except msgspec.ValidationError as e:
        raise BadLineError("bad_line", f"lines with a wrong value; the last: {e}") from None
    except _DECODE_ERRORS:
        raise BadLineError("torn_line", "lines that are not a complete JSON object") from None


def parse_kind(line: bytes) -> str:
    """Return the kind of a line (our writers put it first); raise BadLineError if it has none."""
    kind = _KIND_BY_START.get(line[: line.find(b",", 0, _LONGEST_START) + 1])
    if kind:
        return kind
    try:
        return _KIND_DECODER.decode(line).kind
    except msgspec.ValidationError:
        raise BadLineError("unknown_kind", "lines of an unknown kind") from None
    except _DECODE_ERRORS:
        raise BadLineError("torn_line", "lines that are not a complete JSON object") from None


FORMAT: Final = "native"

_RUN_KINDS: Final = frozenset(("run", "plan", "columns", "rows", *KINDS))


def is_native(line: bytes) -> bool:
    """Return whether a line is complete and starts a run or contains its ops or events."""
    try:
        record, _ = decode_line(line)
    except BadLineError:
        return False
    return record.kind in _RUN_KINDS


def is_foreign(line: bytes) -> bool:
    """Return whether a line is complete and of another format."""
    try:
        decode_line(line)
    except BadLineError as e:
        return e.id == "unknown_kind"
    return False


def parse_run_id(line: bytes) -> str | int | None:
    """Return the id of the run that a line starts, or None if there is none."""
    try:
        record, _ = decode_line(line)
    except BadLineError:
        return None
    return record.id if isinstance(record, RunLine) else None
