"""Collect the lines of one run: waiting lines, frames, compacted steps."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, cast

import msgspec
import polars as pl
from msgspec import Struct, field

from capture.import_log import Log
from capture.live_run import Chunk, ChunkList, LiveRun
from capture.native.bulk_columns import ColumnBlock, build_block
from capture.native.compaction import CompactedSteps
from capture.native.line_types import ColumnsLine, EndLine, EventLine, RunLine, SavedLog
from capture.native.op_table import OpTable, build_columns_frame, build_event_frame, concat_rows_with_ops
from capture.run import DTYPES, Run, build_checked_run, clean_meta, drop_empty_columns

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
        """Add a writer and the metadata of its run line; of several values the first counts."""
        self.writers.add(line.writer_id)
        self.end_lines.pop(line.writer_id, None)
        if line.clock and self.clock:
            offset = (line.clock[1] - line.clock[0]) - (self.clock[1] - self.clock[0])
            self.clock_offsets[line.writer_id] = offset if abs(offset) > _SAME_CLOCK_NS else 0
        if not self.has_run_line:
            self.name = line.name or self.name
            self.id, self.clock, self.has_run_line = line.id, line.clock, True
        self.meta = line.meta | self.meta

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
