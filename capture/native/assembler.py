"""Assemble runs from native lines, for complete and for growing files."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, cast

import msgspec
import polars as pl
from msgspec import Struct, field

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.merge_ranks import prefix_track_with_rank
from capture.native.compaction import CompactedSteps
from capture.native.line_rows import (
    COLUMNS_START,
    ColumnBlock,
    OpTable,
    build_block,
    build_columns_frame,
    build_event_frame,
    build_rows_frame,
    concat_rows_with_ops,
    decode_block,
)
from capture.native.line_types import (
    BadLineError,
    ColumnsLine,
    EndLine,
    EventLine,
    Line,
    PlanLine,
    RowsLine,
    RunLine,
    SavedLog,
    SavedLogLine,
    TableLine,
    decode_line,
)
from capture.native.saved_tables import build_table
from capture.native.schema import KINDS, SCHEMA_VERSION, split_joined
from capture.run import (
    DTYPES,
    Chunk,
    ChunkList,
    LiveRun,
    Run,
    build_checked_run,
    clean_meta,
    drop_empty_columns,
)

BATCH_EVENTS: Final = 1 << 18  # that wait as lines before they become a frame
MIN_RECENT_CHUNKS: Final = 8  # of the recent events: a compaction leaves most of them as they are
_MAX_BLOCK_BYTES: Final = 1 << 22  # of column lines decoded at once
_MIN_BLOCK_BYTES: Final = 1 << 18  # fewer are decoded faster line by line
_EVENT_LINE_STARTS: Final = tuple(b'{"kind":"%s",' % kind.encode() for kind in KINDS)
_UNCOUNTED_KINDS: Final = frozenset(("counter", "memory", "mark"))  # kinds that the end line does not count
_LIVENESS_MARKS: Final = frozenset(("status", "heartbeat"))  # classes that show that the engine is alive
_BOM: Final = b"\xef\xbb\xbf"
_SAME_CLOCK_NS: Final = 1_000_000
_EMPTY: Final = pl.DataFrame(schema={"kind": DTYPES["kind"], "name": DTYPES["name"]})


class RunBuilder(Struct):
    """The lines of one run, and the run built from them."""

    name: str
    compacted: CompactedSteps
    frames: tuple[ChunkList, ChunkList, ChunkList]  # of rows, of columns, of single events
    id: str | int | None = None
    has_run_line: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    clock: tuple[int, int] | None = None
    clock_offsets: dict[int | None, int] = field(default_factory=dict)  # of each writer relative to the first
    writers: set[int | None] = field(default_factory=set)
    end_lines: dict[int | None, EndLine] = field(default_factory=dict)
    counts: Counter[int | None] = field(default_factory=Counter)  # events by writer
    saved_log: SavedLog | None = None
    ops: OpTable = field(default_factory=OpTable)
    tables: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    rows: list[pl.DataFrame] = field(default_factory=list)
    columns: list[ColumnsLine | ColumnBlock] = field(default_factory=list)
    events: list[EventLine] = field(default_factory=list)
    waiting: int = 0  # events that are not in frames yet
    rows_after_compaction: int = 0  # left by the last compaction

    @property
    def is_open(self) -> bool:
        """Whether a writer has not written its end line yet."""
        return bool(self.writers - self.end_lines.keys())

    def add_run_line(self, line: RunLine) -> None:
        """Add a writer and the metadata of its run line; of several values the first counts.

        Ranks may hold parts of a model: of their parameters the most count, whichever rank wrote first.
        """
        self.writers.add(line.writer_id)
        self.end_lines.pop(line.writer_id, None)
        if line.clock and self.clock:
            offset = (line.clock[1] - line.clock[0]) - (self.clock[1] - self.clock[0])
            self.clock_offsets[line.writer_id] = offset if abs(offset) > _SAME_CLOCK_NS else 0
        if not self.has_run_line:
            self.name = line.name or self.name
            self.id, self.clock, self.has_run_line = line.id, line.clock, True
        sizes = [n for each in (line.meta, self.meta) if type(n := each.get("parameters")) is int]
        self.meta = line.meta | self.meta | ({"parameters": max(sizes)} if sizes else {})

    def make_frames(self, log: Log) -> None:
        """Turn the waiting lines into frames."""
        rows, columns, flats = self.frames
        if self.rows:
            rows.add(concat_rows_with_ops(self.rows, self.ops, log))
        for block in _iter_blocks(self.columns):
            columns.add(build_columns_frame(block, self.ops, log))
        if self.events:
            flats.add(build_event_frame(self.events, log))
        self.rows, self.columns, self.events, self.waiting = [], [], [], 0

    def compact(self, limit: int) -> None:
        """Compact rows further back than `limit`, if there are enough of them to be worth it."""
        height = sum(chunks.height for chunks in self.frames)
        if height <= max(limit, self.rows_after_compaction) + limit // 4:
            return
        rows, columns, flats = self.compacted.compact(self.frames, limit)
        self.frames = rows, columns, flats
        self.rows_after_compaction = sum(chunks.height for chunks in self.frames)

    def build_snapshot(self, read_log: Log, *, is_final: bool) -> LiveRun:
        """Return the run as far as its lines have come; `is_final` if no more will come."""
        run = self.build(read_log, is_final=is_final)
        chunks = () if is_final else tuple(self._list_chunks())
        return LiveRun(**vars(run), chunks=chunks, archive=self.compacted.archive)

    def build(self, read_log: Log, *, is_final: bool = True) -> Run:
        """Return the run of all lines so far; `is_final` if no more will come."""
        log = self._build_log(read_log)
        if is_final:
            self._log_ends(log)
        tables = {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in self.tables.items()}
        meta = self.meta | ({"clock": list(self.clock)} if self.clock else {})
        if self.compacted.meta:
            meta |= {"folded": self.compacted.meta}
            log.note("folded", self.compacted.message)
        frames = [chunk.events for chunk in self._list_chunks()]
        events = drop_empty_columns(pl.concat(frames, how="diagonal")) if frames else _EMPTY
        return build_checked_run(self.name, meta, events, log, tables)

    def _list_chunks(self) -> list[Chunk]:
        """Return all events so far, in an order that does not depend on how lines were batched."""
        compacted = [self.compacted.chunk] if self.compacted.chunk.events.height else []
        return [*compacted, *(piece for chunks in self.frames for piece in chunks.chunks)]

    def _build_log(self, read_log: Log) -> Log:
        """Return the import log; if one was saved with the run, that one plus later losses."""
        if self.saved_log is None:
            return Log.from_saved(read_log.freeze().as_dict())
        log = Log.from_saved(clean_meta(msgspec.to_builtins(self.saved_log)))
        log.dropped += read_log.dropped
        log.read = max(log.read, log.dropped)  # records lost since were kept at the first import
        for n in read_log.freeze().notices:
            log.note(n.id, n.message, count=n.count, severity=n.severity)
        return log

    def _log_ends(self, log: Log) -> None:
        """Log losses reported by end lines, and missing end lines."""
        if self.is_open:
            log.note("no_end", "the run has no end line: it is still being written or was cut short")
        for writer_id, end in self.end_lines.items():
            missing = max(0, (end.events or 0) - self.counts[writer_id])
            lost = max(0, end.lost)
            why = f" ({end.reason})" if end.reason else ""
            log.read += missing + lost
            log.drop("missing_events", "events that the writer counted but the file lacks", count=missing)
            log.drop("lost_by_writer", f"events that the writer could not write{why}", count=lost)


def _iter_blocks(columns: Iterable[ColumnsLine | ColumnBlock]) -> Iterator[ColumnBlock]:
    """Yield decoded blocks, and lines between them as one block, in their order."""
    for kind, items in groupby(columns, key=type):
        if kind is ColumnBlock:
            yield from cast(Iterator[ColumnBlock], items)
        elif block := build_block(cast(Iterator[ColumnsLine], items)):
            yield block


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

    def _add_line(self, line: bytes, offset: int, *, is_part: bool = False) -> None:
        try:
            record, unknown = decode_line(line)
        except BadLineError as e:
            parts = [] if is_part else split_joined(line)
            for part in parts:
                self._add_line(part, offset, is_part=True)
                offset += len(part)
            if not parts:
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
