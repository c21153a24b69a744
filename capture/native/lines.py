"""The lines of a native file: what each kind may hold, and how one is decoded."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, Struct, defstruct
from msgspec.json import Decoder

from capture.native.schema import KINDS, Category, Kind, Lens, intact

Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Small = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]  # so few that sums of counts are whole numbers everywhere
Pair = tuple[float, float]
Law = Pair | float  # flops or bytes of an op: a + b · min(context, window), or a alone


class Sealed(Struct, forbid_unknown_fields=True):
    """What every line has: its kind, and the checksum of its bytes."""

    kind: str
    crc: str = ""


class Told(Sealed, kw_only=True):
    """What a line says of who wrote it: a rank of a launch, or a process of its own."""

    rank: Whole | None = None
    writer: Whole | None = None

    @property
    def source(self) -> int | None:
        """A number for whoever wrote it: ops are numbered, and runs ended, by each for itself."""
        return self.rank if self.writer is None else -1 - self.writer


class RunLine(Told, kw_only=True):
    """A line that starts a run, or names a further writer of it."""

    schema: int
    id: str | int | None = None
    name: str | None = None
    meta: dict[str, Any] = {}
    clock: tuple[Whole, Whole] | None = None
    part: Whole | None = None  # how many files of the same recording came before this one


class Op(Struct):
    """One op of a plan: everything about it that no step changes."""

    id: Whole
    name: str
    kind: Kind = "kernel"
    layer: Small | None = None
    op: str | None = None
    category: Category | None = None
    lens: Lens | None = None
    phase: str | None = None
    track: str | None = None
    path: str | None = None
    shape: str | None = None
    launcher: str | None = None
    line: str | None = None
    grid: str | None = None
    block: str | None = None
    unit: str | None = None
    flops: Law | None = None
    bytes: Law | None = None
    window: float | None = None


class PlanLine(Told, kw_only=True):
    """A line of ops by their numbers; each is checked by itself."""

    ops: list[Any]


class ColumnsLine(Told, kw_only=True, gc=False):
    """The events of one step: ops, starts as distances from the start before, durations."""

    op: list[Whole]
    dur: list[Whole]
    dt: list[Whole] | None = None
    count: list[Whole] | None = None
    t: Whole | None = None
    step: Whole | None = None
    phase: str | None = None
    context: Whole | None = None

    @property
    def is_even(self) -> bool:
        """Whether its columns are of one length."""
        size = len(self.op)
        return (
            len(self.dur) == size
            and (self.dt is None or len(self.dt) == size)
            and (self.count is None or len(self.count) == size)
        )


class RowsLine(Sealed, kw_only=True, gc=False):
    """Events in full, as an export writes them: the op of each, and its numbers by column."""

    op: list[Whole]
    columns: dict[str, list[int | float | None]]


class Flat(Told, kw_only=True):
    """One event by itself, with any columns of the schema."""

    kind: Kind
    name: str
    t: Whole | None = None
    dur: Whole | None = None
    count: Whole | None = None
    step: Whole | None = None
    phase: str | None = None
    layer: Small | None = None
    op: str | None = None
    category: Category | None = None
    lens: Lens | None = None
    track: str | None = None
    path: str | None = None
    shape: str | None = None
    launch: Whole | None = None
    launch_dur: Whole | None = None
    launcher: str | None = None
    line: str | None = None
    grid: str | None = None
    block: str | None = None
    registers: Small | None = None
    shared: Small | None = None
    occupancy: float | None = None
    flops: float | None = None
    bytes: float | None = None
    min: Whole | None = None
    max: Whole | None = None
    p50: Whole | None = None
    p95: Whole | None = None
    p99: Whole | None = None
    std: Whole | None = None
    value: float | None = None
    unit: str | None = None
    tokens: Whole | None = None
    context: Whole | None = None
    batch: Whole | None = None


class SavedTable(Struct, kw_only=True):
    """A frame that is kept whole, as JSON columns."""

    name: str
    types: dict[str, str]
    columns: dict[str, list[Any]]


class TableLine(SavedTable, kw_only=True, forbid_unknown_fields=True):
    """A line with such a frame, or with the next rows of one."""

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
    """The import log of an earlier import; one whose numbers do not add up is none."""

    source: str
    format: str
    read: Count
    repaired: Count
    dropped: Count
    notices: list[SavedNotice]

    def __post_init__(self) -> None:
        if self.dropped > self.read:
            raise ValueError("more was dropped than read")


class LogLine(Sealed, kw_only=True):
    """The import log of an earlier import, in an exported file."""

    log: SavedLog


class EndLine(Told, kw_only=True):
    """A writer's last line: how many events it wrote, and how many it could not."""

    events: Count | None = None
    lost: Count = 0
    reason: str | None = None


Line = RunLine | PlanLine | ColumnsLine | RowsLine | Flat | TableLine | LogLine | EndLine

_TYPES: Final[Mapping[str, type[Struct]]] = {
    "run": RunLine,
    "plan": PlanLine,
    "columns": ColumnsLine,
    "rows": RowsLine,
    "table": TableLine,
    "log": LogLine,
    "end": EndLine,
    **dict.fromkeys(KINDS, Flat),
}
_STARTS: Final = {b'{"kind":"%s",' % kind.encode(): kind for kind in _TYPES}
_LONGEST_START: Final = max(map(len, _STARTS))
_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class KindOnly(Struct):
    """The part of a line that says what it is."""

    kind: str


class BadLineError(Exception):
    """A line that cannot be kept; `id` is that of the notice which counts it."""

    def __init__(self, id: str, why: str) -> None:
        self.id = id
        super().__init__(why)


def _with_unknown_fields(line: type[Struct]) -> type[Struct]:
    return defstruct(line.__name__, [], bases=(line,), forbid_unknown_fields=False)


_EXACT: Final = {kind: Decoder(type) for kind, type in _TYPES.items()}
_LENIENT: Final = {kind: Decoder(_with_unknown_fields(type)) for kind, type in _TYPES.items()}
_KIND_ONLY: Final = Decoder(KindOnly)
_KEYS: Final = Decoder(dict[str, Any])


def decode(line: bytes) -> tuple[Line, set[str]]:
    """Return the line in its type, and its keys that the schema lacks; raise BadLineError for a bad line."""
    if not intact(line):
        raise BadLineError("corrupt_line", "lines whose checksum does not hold")
    kind = kind_of(line)
    if kind not in _EXACT:
        raise BadLineError("unknown_kind", "lines of a kind that is not known")
    try:
        return cast(Line, _EXACT[kind].decode(line)), set()
    except _REFUSALS:
        return _decode_leniently(line, kind)


def _decode_leniently(line: bytes, kind: str) -> tuple[Line, set[str]]:
    try:
        record = cast(Line, _LENIENT[kind].decode(line))
        return record, _KEYS.decode(line).keys() - set(_TYPES[kind].__struct_fields__)
    except msgspec.ValidationError as e:
        raise BadLineError("bad_line", f"lines with a wrong value; the last: {e}") from None
    except _REFUSALS:
        raise BadLineError("torn_line", "lines that are no whole JSON object") from None


def kind_of(line: bytes) -> str:
    """Return the kind that a line states (our writers put it first); raise BadLineError if it has none."""
    kind = _STARTS.get(line[: line.find(b",", 0, _LONGEST_START) + 1])
    if kind:
        return kind
    try:
        return _KIND_ONLY.decode(line).kind
    except msgspec.ValidationError:
        raise BadLineError("unknown_kind", "lines of a kind that is not known") from None
    except _REFUSALS:
        raise BadLineError("torn_line", "lines that are no whole JSON object") from None
