"""Reads native lines into runs as they come: one way for a file and for a growing one."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from capture.errors import UnreadableError
from capture.frames import Chunks, table_rows
from capture.importlog import Log
from capture.native.fold import Folded
from capture.native.lines import (
    BadLineError,
    ColumnsLine,
    EndLine,
    Flat,
    Line,
    LogLine,
    PlanLine,
    RowsLine,
    RunLine,
    TableLine,
    decode,
)
from capture.native.numbers import START, block_at_once
from capture.native.ops import rows_frame, track_of
from capture.native.run_builder import RunBuilder
from capture.native.schema import KINDS, SCHEMA
from capture.run import Run

BATCH: Final = 1 << 18  # events that wait as lines before they become a frame
PIECES: Final = 8  # of the newest events at least: a folding leaves most of them as they are
_MUCH: Final = 1 << 22  # bytes of column lines that are read at once
_FEW: Final = 1 << 18  # bytes that are read sooner line by line
_SINGLE: Final = tuple(b'{"kind":"%s",' % kind.encode() for kind in KINDS)
_NOT_COUNTED: Final = frozenset(("counter", "memory", "mark"))  # kinds that a writer's total leaves out
_SIGNS_OF_LIFE: Final = frozenset(("status", "heartbeat"))  # classes of marks that the engine itself writes
_BOM: Final = b"\xef\xbb\xbf"


class Assembler:
    """Takes lines and returns runs: of every event, or of the newest ones and sums of the older."""

    def __init__(self, log: Log, name: str, newest: int | None = None, shelved: int = 0) -> None:
        """`name` is that of a run which has none; `newest` the events kept one by one, None for all;
        `shelved` those of older steps that are kept packed.
        """
        self.log = log
        self.has_heartbeat = False  # whether a writer says that it lives when it has nothing else to say
        self._newest, self._shelved = newest, shelved
        self._signs_of_life = 0
        self._name = name
        self._builders: list[RunBuilder] = []
        self._current: RunBuilder | None = None

    def feed(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Take whole lines, each with its offset."""
        waiting: list[tuple[int, bytes]] = []
        size = 0
        for at, line in lines:
            if line.startswith(START):
                waiting.append((at, line))
                size += len(line)
            elif line and not line.isspace():
                if waiting and not line.startswith(_SINGLE):  # rows of their own bear on no column line
                    self._take_columns(waiting)
                    waiting, size = [], 0
                self._take(line.removeprefix(_BOM) if at == 0 else line, at)
            if size > _MUCH:
                self._take_columns(waiting)
                waiting, size = [], 0
        self._take_columns(waiting)

    def has_run(self, run_id: str | int) -> bool:
        """Return whether the run of this id has begun."""
        return any(builder.id == run_id for builder in self._builders)

    @property
    def ended(self) -> bool:
        """Whether every writer of the last run has written its end line."""
        return self._current is not None and self._current.has_run_line and not self._current.is_open

    @property
    def activity(self) -> int:
        """A number that grows with every line of the engine itself, and not with a sampler's counters."""
        events = sum(builder.counts.total() for builder in self._builders)
        return self._signs_of_life + len(self._builders) + events

    def runs(self, *, whole: bool = True) -> list[Run]:
        """Return the runs so far; `whole` when no more lines are to be expected."""
        for builder in self._builders:
            self._make_frames(builder)
        return [builder.build(self.log, whole=whole) for builder in self._builders]

    def _take_columns(self, lines: list[tuple[int, bytes]]) -> None:
        """Take column lines at once where they are many and regular, else one by one."""
        many = sum(len(line) for _, line in lines) > _FEW
        block = block_at_once([line for _, line in lines]) if many else None
        if block is None:
            for at, line in lines:
                self._take(line, at)
            return
        builder = self._builder
        for raw in block.lines:
            raw.t = None if raw.t is None else raw.t + builder.shifts.get(raw.source, 0)
        builder.columns.append(block)
        for raw, events in zip(block.lines, block.lengths, strict=True):
            builder.counts[raw.source] += events
        self._came(builder, block.numbers.height)

    def _take(self, line: bytes, at: int) -> None:
        try:
            record, unknown = decode(line)
        except BadLineError as e:
            self._drop(e.id, str(e), 1, at)
            return
        if unknown:
            some = ", ".join(sorted(unknown)[:5])
            self.log.note(
                "unknown_keys", f"keys that the schema does not have, as {some}", count=len(unknown), at=at
            )
        self._add(record, at)

    def _add(self, record: Line, at: int) -> None:
        match record:
            case ColumnsLine():
                self._add_columns(record, at)
            case Flat():
                self._add_flat(record)
            case RowsLine():
                self._add_rows(record, at)
            case RunLine():
                self._begin(record)
            case PlanLine():
                self._make_frames(self._builder)
                self._builder.plan.add(record.ops, record.source, record.rank, self.log)
            case TableLine():
                self._add_table(record, at)
            case LogLine():
                self._builder.saved_log = record.log
            case EndLine():
                self._builder.ends[record.source] = record

    @property
    def _builder(self) -> RunBuilder:
        """The run to which a line belongs: the last that began."""
        return self._current or self._new_builder()

    def _new_builder(self) -> RunBuilder:
        largest = self._newest and self._newest // PIECES
        rows, columns, flats = (Chunks(largest) for _ in range(3))
        self._current = RunBuilder(self._name, folded=Folded(self._shelved), frames=(rows, columns, flats))
        self._builders.append(self._current)
        return self._current

    def _begin(self, line: RunLine) -> None:
        if line.schema > SCHEMA:
            raise UnreadableError(
                f"was written in version {line.schema} of the format; this tracetui reads {SCHEMA}",
                where=self.log.source,
                todo="update tracetui",
            )
        same = [builder for builder in self._builders if line.id is not None and builder.id == line.id]
        if same:
            self._current = same[0]
        elif self._builder.has_run_line or self._builder.counts.total():
            self._new_builder()  # else only counters came before the line of their run
        self._builder.begin(line)

    def _add_columns(self, line: ColumnsLine, at: int) -> None:
        if not line.is_even:
            self._drop("uneven_line", "lines whose columns are not of one length", max(1, len(line.op)), at)
            return
        builder = self._builder
        if line.t is not None:
            line.t += builder.shifts.get(line.source, 0)
        builder.columns.append(line)
        self._count(builder, line.source, len(line.op))

    def _add_rows(self, line: RowsLine, at: int) -> None:
        try:
            frame = rows_frame(line, self._builder.plan)
        except (pl.exceptions.PolarsError, TypeError, OverflowError):
            self._drop("uneven_line", "lines whose columns do not fit", max(1, len(line.op)), at)
            return
        self._builder.rows.append(frame)
        self._count(self._builder, None, frame.height)

    def _add_flat(self, line: Flat) -> None:
        builder = self._builder
        if line.t is not None:
            line.t += builder.shifts.get(line.source, 0)
        line.track = track_of(line.rank, line.track)
        builder.flats.append(line)
        is_counted = line.kind not in _NOT_COUNTED
        if not is_counted and line.path in _SIGNS_OF_LIFE:
            self._signs_of_life += 1
            self.has_heartbeat = self.has_heartbeat or line.path == "heartbeat"
        self._count(builder, line.source, 1, is_counted=is_counted)

    def _add_table(self, line: TableLine, at: int) -> None:
        try:
            frame = table_rows(line)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            self._drop("bad_table", "rows of tables that do not fit their types", 1, at)
            return
        self._builder.tables.setdefault(line.name, []).append(frame)

    def _count(
        self, builder: RunBuilder, source: int | None, events: int, *, is_counted: bool = True
    ) -> None:
        builder.counts[source] += events if is_counted else 0
        self._came(builder, events)

    def _came(self, builder: RunBuilder, events: int) -> None:
        self.log.read += events
        builder.waiting += events
        if builder.waiting >= min(BATCH, self._newest or BATCH):
            self._make_frames(builder)

    def _make_frames(self, builder: RunBuilder) -> None:
        builder.make_frames(self.log)
        if self._newest is not None:
            builder.fold(self._newest // len(self._builders))

    def _drop(self, id: str, message: str, records: int, at: int) -> None:
        self.log.read += records
        self.log.drop(id, message, count=records, at=at)
