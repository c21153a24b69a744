"""One run of a native file while its lines come: what waits, what has become frames, what is folded."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec
import polars as pl
from msgspec import Struct, field

from capture import pieces
from capture.frames import Chunks
from capture.importlog import Log
from capture.native.fold import Folded
from capture.native.lines import ColumnsLine, EndLine, Flat, RunLine, SavedLog
from capture.native.numbers import Block, block_of
from capture.native.ops import Plan, columns_frame, flat_frame, planned_rows
from capture.pieces import Piece
from capture.run import DTYPES, Run, checked, clean_meta, tidy

_SAME_CLOCK_NS: Final = 1_000_000
_EMPTY: Final = pl.DataFrame(schema={"kind": DTYPES["kind"], "name": DTYPES["name"]})


class RunBuilder(Struct):
    """Collects the lines of one run and returns it, whole or as far as it has come."""

    name: str
    id: str | int | None = None
    has_run_line: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    clock: tuple[int, int] | None = None
    shifts: dict[int | None, int] = field(default_factory=dict)  # of each writer's clock to the first's
    writers: set[int | None] = field(default_factory=set)
    ends: dict[int | None, EndLine] = field(default_factory=dict)
    counts: Counter[int | None] = field(default_factory=Counter)  # events that came, by writer
    saved_log: SavedLog | None = None
    plan: Plan = field(default_factory=Plan)
    tables: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    rows: list[pl.DataFrame] = field(default_factory=list)
    columns: list[ColumnsLine | Block] = field(default_factory=list)
    flats: list[Flat] = field(default_factory=list)
    waiting: int = 0  # events that are no frames yet
    frames: tuple[Chunks, Chunks, Chunks] = field(default_factory=lambda: (Chunks(), Chunks(), Chunks()))
    folded: Folded = field(default_factory=Folded)
    rows_left: int = 0  # that the last folding did not take

    @property
    def is_open(self) -> bool:
        """Whether a writer has yet to write its end line."""
        return bool(self.writers - self.ends.keys())

    def begin(self, line: RunLine) -> None:
        """Take what a run line says of the run; of several the first stands."""
        self.writers.add(line.source)
        self.ends.pop(line.source, None)
        if line.clock and self.clock:
            apart = (line.clock[1] - line.clock[0]) - (self.clock[1] - self.clock[0])
            self.shifts[line.source] = apart if abs(apart) > _SAME_CLOCK_NS else 0
        if not self.has_run_line:
            self.name = line.name or self.name
            self.id, self.clock, self.has_run_line = line.id, line.clock, True
        self.meta = line.meta | self.meta

    def make_frames(self, log: Log) -> None:
        """Turn the lines that wait into frames."""
        rows, columns, flats = self.frames
        if self.rows:
            rows.add(planned_rows(self.rows, self.plan, log))
        for block in _blocks(self.columns):
            columns.add(columns_frame(block, self.plan, log))
        if self.flats:
            flats.add(flat_frame(self.flats, log))
        self.rows, self.columns, self.flats, self.waiting = [], [], [], 0

    def fold(self, limit: int) -> None:
        """Fold what lies further back than `limit` rows into sums, once that is worth the while."""
        if sum(chunks.height for chunks in self.frames) <= max(limit, self.rows_left) + limit // 4:
            return
        rows, columns, flats = self.folded.fold(self.frames, limit)
        self.frames = rows, columns, flats
        self.rows_left = sum(chunks.height for chunks in self.frames)

    def build(self, read_log: Log, *, whole: bool) -> Run:
        """Return the run as far as its lines have come; `whole` when no more are to be expected."""
        log = self._log(read_log)
        if whole:
            self._log_ends(log)
        tables = {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in self.tables.items()}
        meta = self.meta | ({"clock": list(self.clock)} if self.clock else {})
        if self.folded.meta:
            meta |= {"folded": self.folded.meta}
            log.note("folded", self.folded.sentence)
        found = self._pieces()
        events = tidy(pl.concat([piece.events for piece in found], how="diagonal")) if found else _EMPTY
        run = checked(self.name, meta, events, log, tables)
        run = replace(run, shelf=self.folded.shelf) if self.folded.shelf.packs else run
        if not whole:
            pieces.tell(run, found)
        return run

    def _pieces(self) -> list[Piece]:
        """Return all events so far, in an order that does not depend on how the lines were batched."""
        folded = [self.folded.piece] if self.folded.piece.events.height else []
        return [*folded, *(piece for chunks in self.frames for piece in chunks.pieces)]

    def _log(self, read_log: Log) -> Log:
        """Return the import log: that of the first import where one was saved, with what is lost since."""
        if self.saved_log is None:
            return Log.of(read_log.freeze().as_dict())
        log = Log.of(clean_meta(msgspec.to_builtins(self.saved_log)))
        log.dropped += read_log.dropped
        log.read = max(log.read, log.dropped)  # what is lost since had been kept, if the account is true
        for n in read_log.freeze().notices:
            log.note(n.id, n.message, count=n.count, severity=n.severity)
        return log

    def _log_ends(self, log: Log) -> None:
        """Log what the end lines of the writers, or their absence, say of the run."""
        if self.is_open:
            log.note("no_end", "the run has no end line: it is still being written, or was cut short")
        for source, end in self.ends.items():
            missing = max(0, (end.events or 0) - self.counts[source])
            lost = max(0, end.lost)
            why = f" ({end.reason})" if end.reason else ""
            log.read += missing + lost
            log.drop("missing_events", "events that their writer counted and the file lacks", count=missing)
            log.drop("lost_by_writer", f"events that their writer could not write{why}", count=lost)


def _blocks(columns: Iterable[ColumnsLine | Block]) -> Iterator[Block]:
    """Yield what came as blocks, and lines that came between them as one, in the order in which they came."""
    lines: list[ColumnsLine] = []
    for item in columns:
        if isinstance(item, ColumnsLine):
            lines.append(item)
            continue
        if block := block_of(lines):
            yield block
        lines = []
        yield item
    if block := block_of(lines):
        yield block
