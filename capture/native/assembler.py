"""Assemble runs from native lines, for complete and for growing files."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.live_run import ChunkList, LiveRun
from capture.native.bulk_columns import COLUMNS_START, decode_block
from capture.native.compaction import CompactedSteps
from capture.native.line_types import (
    BadLineError,
    ColumnsLine,
    EndLine,
    EventLine,
    Line,
    PlanLine,
    RowsLine,
    RunLine,
    SavedLogLine,
    TableLine,
    decode_line,
)
from capture.native.op_table import build_rows_frame, prefix_track_with_rank
from capture.native.run_builder import RunBuilder
from capture.native.saved_tables import build_table
from capture.native.schema import KINDS, SCHEMA_VERSION
from capture.run import Run

BATCH_EVENTS: Final = 1 << 18  # that wait as lines before they become a frame
MIN_RECENT_CHUNKS: Final = 8  # of the recent events: a compaction leaves most of them as they are
_MAX_BLOCK_BYTES: Final = 1 << 22  # of column lines decoded at once
_MIN_BLOCK_BYTES: Final = 1 << 18  # fewer are decoded faster line by line
_EVENT_LINE_STARTS: Final = tuple(b'{"kind":"%s",' % kind.encode() for kind in KINDS)
_UNCOUNTED_KINDS: Final = frozenset(("counter", "memory", "mark"))  # kinds that the end line does not count
_LIVENESS_MARKS: Final = frozenset(("status", "heartbeat"))  # classes that show that the engine is alive
_BOM: Final = b"\xef\xbb\xbf"


class Assembler:
    """Turns lines into runs: with all events, or with the recent ones and sums of the older."""

    def __init__(
        self, log: Log, name: str, recent_events: int | None = None, archived_launches: int = 0
    ) -> None:
        """`name` is the name of a run that has none.

        `recent_events` is how many events stay single (None: all), `archived_launches` how many older
        launches are kept compressed.
        """
        self.log = log
        self.has_heartbeat = False  # whether a writer sends heartbeats while idle
        self._recent_events, self._archived_launches = recent_events, archived_launches
        self._liveness_marks = 0
        self._name = name
        self._builders: list[RunBuilder] = []
        self._current: RunBuilder | None = None

    def feed(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Add complete lines, each with its offset."""
        waiting: list[tuple[int, bytes]] = []
        size = 0
        for offset, line in lines:
            if line.startswith(COLUMNS_START):
                waiting.append((offset, line))
                size += len(line)
            elif line and not line.isspace():
                # single events do not affect column lines
                if waiting and not line.startswith(_EVENT_LINE_STARTS):
                    self._add_column_lines(waiting)
                    waiting, size = [], 0
                self._add_line(line.removeprefix(_BOM) if offset == 0 else line, offset)
            if size > _MAX_BLOCK_BYTES:
                self._add_column_lines(waiting)
                waiting, size = [], 0
        self._add_column_lines(waiting)

    def has_run(self, run_id: str | int) -> bool:
        """Return whether the run with this id has started."""
        return any(builder.id == run_id for builder in self._builders)

    @property
    def has_ended(self) -> bool:
        """Whether every writer of the last run has written its end line."""
        return self._current is not None and self._current.has_run_line and not self._current.is_open

    @property
    def activity(self) -> int:
        """A number that grows with every line of the engine itself, not with counters of a sampler."""
        events = sum(builder.counts.total() for builder in self._builders)
        return self._liveness_marks + len(self._builders) + events

    def build_runs(self) -> list[Run]:
        """Return the runs of a file that has been read to its end."""
        return [builder.build(self.log) for builder in self._list_framed_builders()]

    def build_snapshots(self, *, is_final: bool) -> list[LiveRun]:
        """Return the runs so far; `is_final` if no more lines will come."""
        builders = self._list_framed_builders()
        return [builder.build_snapshot(self.log, is_final=is_final) for builder in builders]

    def _list_framed_builders(self) -> list[RunBuilder]:
        for builder in self._builders:
            self._make_frames(builder)
        return self._builders

    def _add_column_lines(self, lines: list[tuple[int, bytes]]) -> None:
        """Decode column lines at once if there are many regular ones, else one by one."""
        is_large = sum(len(line) for _, line in lines) > _MIN_BLOCK_BYTES
        block = decode_block([line for _, line in lines]) if is_large else None
        if block is None:
            for offset, line in lines:
                self._add_line(line, offset)
            return
        builder = self._builder
        for raw in block.lines:
            raw.t = None if raw.t is None else raw.t + builder.clock_offsets.get(raw.writer_id, 0)
        builder.columns.append(block)
        for raw, events in zip(block.lines, block.lengths, strict=True):
            builder.counts[raw.writer_id] += events
        self._count_waiting(builder, block.numbers.height)

    def _add_line(self, line: bytes, offset: int) -> None:
        try:
            record, unknown = decode_line(line)
        except BadLineError as e:
            self._drop_records(e.id, str(e), 1, offset)
            return
        if unknown:
            message = f"keys outside the schema, such as {', '.join(sorted(unknown)[:5])}"
            self.log.note("unknown_keys", message, count=len(unknown), at=offset)
        self._add_record(record, offset)

    def _add_record(self, record: Line, offset: int) -> None:
        match record:
            case ColumnsLine():
                self._add_columns_line(record, offset)
            case EventLine():
                self._add_event(record)
            case RowsLine():
                self._add_rows_line(record, offset)
            case RunLine():
                self._begin_run(record)
            case PlanLine():
                self._make_frames(self._builder)
                self._builder.ops.add(record.ops, record.writer_id, record.rank, self.log)
            case TableLine():
                self._add_table(record, offset)
            case SavedLogLine():
                self._builder.saved_log = record.log
            case EndLine():
                self._builder.end_lines[record.writer_id] = record

    @property
    def _builder(self) -> RunBuilder:
        """The run to which lines belong: the last that started."""
        return self._current or self._create_builder()

    def _create_builder(self) -> RunBuilder:
        chunk_rows = self._recent_events and self._recent_events // MIN_RECENT_CHUNKS
        rows, columns, flats = (ChunkList(chunk_rows) for _ in range(3))
        compacted = CompactedSteps(self._archived_launches)
        self._current = RunBuilder(self._name, compacted=compacted, frames=(rows, columns, flats))
        self._builders.append(self._current)
        return self._current

    def _begin_run(self, line: RunLine) -> None:
        if line.schema > SCHEMA_VERSION:
            what = f"was written in version {line.schema} of the format; this tracetui reads {SCHEMA_VERSION}"
            raise UnreadableError(what, where=self.log.source, todo="update tracetui")
        earlier = [builder for builder in self._builders if line.id is not None and builder.id == line.id]
        if earlier:
            self._current = earlier[0]
        elif self._builder.has_run_line or self._builder.counts.total():
            self._create_builder()  # else only counters came before the run line
        self._builder.add_run_line(line)

    def _add_columns_line(self, line: ColumnsLine, offset: int) -> None:
        events = len(line.op)
        if not line.has_equal_lengths:
            message = "lines whose columns differ in length"
            self._drop_records("uneven_line", message, max(1, events), offset)
            return
        builder = self._builder
        if line.t is not None:
            line.t += builder.clock_offsets.get(line.writer_id, 0)
        builder.columns.append(line)
        builder.counts[line.writer_id] += events
        self._count_waiting(builder, events)

    def _add_rows_line(self, line: RowsLine, offset: int) -> None:
        try:
            frame = build_rows_frame(line, self._builder.ops)
        except (pl.exceptions.PolarsError, TypeError, OverflowError):
            message = "lines whose columns do not match the schema"
            self._drop_records("uneven_line", message, max(1, len(line.op)), offset)
            return
        builder = self._builder
        builder.rows.append(frame)
        builder.counts[None] += frame.height
        self._count_waiting(builder, frame.height)

    def _add_event(self, line: EventLine) -> None:
        builder = self._builder
        if line.t is not None:
            line.t += builder.clock_offsets.get(line.writer_id, 0)
        line.track = prefix_track_with_rank(line.rank, line.track)
        builder.events.append(line)
        if line.kind not in _UNCOUNTED_KINDS:
            builder.counts[line.writer_id] += 1
        elif line.path in _LIVENESS_MARKS:
            self._liveness_marks += 1
            self.has_heartbeat = self.has_heartbeat or line.path == "heartbeat"
        self._count_waiting(builder, 1)

    def _add_table(self, line: TableLine, offset: int) -> None:
        try:
            frame = build_table(line)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            self._drop_records("bad_table", "rows of tables that do not match their types", 1, offset)
            return
        self._builder.tables.setdefault(line.name, []).append(frame)

    def _count_waiting(self, builder: RunBuilder, events: int) -> None:
        self.log.read += events
        builder.waiting += events
        if builder.waiting >= min(BATCH_EVENTS, self._recent_events or BATCH_EVENTS):
            self._make_frames(builder)

    def _make_frames(self, builder: RunBuilder) -> None:
        builder.make_frames(self.log)
        if self._recent_events is not None:
            builder.compact(self._recent_events // len(self._builders))

    def _drop_records(self, id: str, message: str, records: int, offset: int) -> None:
        self.log.read += records
        self.log.drop(id, message, count=records, at=offset)
