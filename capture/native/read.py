"""Lines of the native format, assembled into runs as they come: one path for a file and for a growing one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.frames import Chunks, table_rows
from capture.importlog import Log
from capture.native.fold import Past
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
    SavedLog,
    TableLine,
    decode,
)
from capture.native.ops import Plan, columns_frame, flat_frame, planned_rows, rows_frame, track_of
from capture.native.schema import SCHEMA
from capture.run import DTYPES, Run, checked, clean_meta, tidy

BATCH: Final = 1 << 18  # events that wait as lines before they become a frame
_SAME_CLOCK_NS: Final = 1_000_000
_NOBODY: Final = frozenset(("counter", "memory", "mark"))  # kinds that a writer's total leaves out
_SIGNS: Final = frozenset(("status", "heartbeat"))  # marks of whoever does the work
_BOM: Final = b"\xef\xbb\xbf"
_EMPTY: Final = pl.DataFrame(schema={"kind": DTYPES["kind"], "name": DTYPES["name"]})


@dataclass
class _Part:
    """One run while its lines come."""

    name: str
    id: str | int | None = None
    told: bool = False  # a run line has named it
    meta: dict[str, Any] = field(default_factory=dict)
    clock: tuple[int, int] | None = None
    shifts: dict[int | None, int] = field(default_factory=dict)
    writers: set[int | None] = field(default_factory=set)
    ends: dict[int | None, EndLine] = field(default_factory=dict)
    seen: Counter[int | None] = field(default_factory=Counter)
    saved: SavedLog | None = None
    plan: Plan = field(default_factory=Plan)
    tables: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    rows: list[pl.DataFrame] = field(default_factory=list)
    columns: list[ColumnsLine] = field(default_factory=list)
    flats: list[Flat] = field(default_factory=list)
    waiting: int = 0
    done: tuple[Chunks, Chunks, Chunks] = field(default_factory=lambda: (Chunks(), Chunks(), Chunks()))
    past: Past = field(default_factory=Past)
    kept: int = 0  # rows that the last folding left whole

    @property
    def open(self) -> bool:
        """Whether a writer has yet to say its last word."""
        return bool(self.writers - self.ends.keys())

    def settle(self, log: Log) -> None:
        """What waits becomes frames."""
        rows, columns, flats = self.done
        if self.rows:
            rows.add(planned_rows(self.rows, self.plan, log))
        if self.columns:
            columns.add(columns_frame(self.columns, self.plan, log))
        if self.flats:
            flats.add(flat_frame(self.flats, log))
        self.rows, self.columns, self.flats, self.waiting = [], [], [], 0

    def fold(self, limit: int) -> None:
        """What lies further back than so many rows becomes sums, some steps at a time."""
        if sum(chunks.height for chunks in self.done) <= max(limit, self.kept) + limit // 4:
            return
        whole = self.past.take([chunks.joined() for chunks in self.done], limit)
        self.done = (Chunks(whole[0]), Chunks(whole[1]), Chunks(whole[2]))
        self.kept = sum(frame.height for frame in whole)

    def frame(self) -> pl.DataFrame:
        """All events so far; the order does not depend on how the lines were cut into batches."""
        frames = [frame for chunks in (Chunks(self.past.frame), *self.done) for frame in chunks]
        return tidy(pl.concat(frames, how="diagonal")) if frames else _EMPTY


class Assembler:
    """Takes lines, gives runs: of every event, or of so many of the newest and sums of the older ones."""

    def __init__(self, log: Log, name: str, newest: int | None = None) -> None:
        self.log = log
        self._newest = newest
        self.signs = 0  # of life, besides the work itself
        self.beats = False  # whether a writer says that it lives when it has nothing else to say
        self._name = name
        self._parts: list[_Part] = []
        self._current: _Part | None = None

    def feed(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Whole lines, each with its offset."""
        for at, line in lines:
            if line and not line.isspace():
                self._take(line.removeprefix(_BOM) if at == 0 else line, at)

    def knows(self, run_id: str | int) -> bool:
        """Whether the run of this id has begun."""
        return any(part.id == run_id for part in self._parts)

    @property
    def ended(self) -> bool:
        """Whether every writer of the last run has said its last word."""
        return self._current is not None and self._current.told and not self._current.open

    @property
    def heard(self) -> int:
        """How much has come from whoever does the work; who samples beside it writes counters alone."""
        return self.signs + len(self._parts) + sum(part.seen.total() for part in self._parts)

    def runs(self, *, whole: bool = True) -> list[Run]:
        """The runs so far; `whole` when no more lines are to be expected."""
        for part in self._parts:
            self._settle(part)
        return [self._run(part, whole) for part in self._parts]

    def _take(self, line: bytes, at: int) -> None:
        try:
            record, unknown = decode(line)
        except BadLineError as e:
            self._lose(e.id, str(e), 1, at)
            return
        if unknown:
            some = ", ".join(sorted(unknown)[:5])
            self.log.note(
                "unknown_keys", f"keys that the schema does not have, as {some}", count=len(unknown), at=at
            )
        self._place(record, at)

    def _place(self, record: Line, at: int) -> None:
        match record:
            case ColumnsLine():
                self._columns(record, at)
            case Flat():
                self._flat(record)
            case RowsLine():
                self._rows(record, at)
            case RunLine():
                self._begin(record)
            case PlanLine():
                self._settle(self._part)
                self._part.plan.add(record.ops, record.rank, self.log)
            case TableLine():
                self._table(record, at)
            case LogLine():
                self._part.saved = record.log
            case EndLine():
                self._part.ends[record.rank] = record

    @property
    def _part(self) -> _Part:
        """The run to which a line belongs: the last that began."""
        return self._current or self._new()

    def _new(self) -> _Part:
        self._current = _Part(self._name)
        self._parts.append(self._current)
        return self._current

    def _begin(self, line: RunLine) -> None:
        if line.schema > SCHEMA:
            raise UnreadableError(
                f"was written in version {line.schema} of the format; this tracetui reads {SCHEMA}",
                where=self.log.source,
                todo="update tracetui",
            )
        known = [part for part in self._parts if line.id is not None and part.id == line.id]
        if known:
            self._current = known[0]
        elif self._part.told or self._part.seen.total():  # else only counters came before their run's line
            self._new()
        _introduce(self._part, line)

    def _columns(self, line: ColumnsLine, at: int) -> None:
        if not line.even:
            self._lose("uneven_line", "lines whose columns are not of one length", max(1, len(line.op)), at)
            return
        part = self._part
        if line.t is not None:
            line.t += part.shifts.get(line.rank, 0)
        part.columns.append(line)
        self._count(part, line.rank, len(line.op))

    def _rows(self, line: RowsLine, at: int) -> None:
        try:
            frame = rows_frame(line, self._part.plan)
        except (pl.exceptions.PolarsError, TypeError, OverflowError):
            self._lose("uneven_line", "lines whose columns do not fit", max(1, len(line.op)), at)
            return
        self._part.rows.append(frame)
        self._count(self._part, None, frame.height)

    def _flat(self, line: Flat) -> None:
        part = self._part
        if line.t is not None:
            line.t += part.shifts.get(line.rank, 0)
        line.track = track_of(line.rank, line.track)
        part.flats.append(line)
        of_writer = line.kind not in _NOBODY
        if not of_writer and line.path in _SIGNS:
            self.signs += 1
            self.beats = self.beats or line.path == "heartbeat"
        self._count(part, line.rank, 1, of_writer=of_writer)

    def _table(self, line: TableLine, at: int) -> None:
        try:
            frame = table_rows(line)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            self._lose("bad_table", "rows of tables that do not fit their types", 1, at)
            return
        self._part.tables.setdefault(line.name, []).append(frame)

    def _count(self, part: _Part, rank: int | None, events: int, *, of_writer: bool = True) -> None:
        self.log.read += events
        part.seen[rank] += events if of_writer else 0
        part.waiting += events
        if part.waiting >= min(BATCH, self._newest or BATCH):
            self._settle(part)

    def _settle(self, part: _Part) -> None:
        part.settle(self.log)
        if self._newest is not None:
            part.fold(self._newest // len(self._parts))

    def _lose(self, id: str, message: str, records: int, at: int) -> None:
        self.log.read += records
        self.log.drop(id, message, count=records, at=at)

    def _run(self, part: _Part, whole: bool) -> Run:
        log = _account(part, self.log)
        if whole:
            _last_words(part, log)
        tables = {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in part.tables.items()}
        meta = part.meta | ({"clock": list(part.clock)} if part.clock else {})
        if part.past.facts:
            meta |= {"folded": part.past.facts}
            log.note("folded", part.past.said)
        return checked(part.name, meta, part.frame(), log, tables)


def _introduce(part: _Part, line: RunLine) -> None:
    """What a run line says of its run; the first writer's word stands."""
    part.writers.add(line.rank)
    part.ends.pop(line.rank, None)
    if line.clock and part.clock:
        apart = (line.clock[1] - line.clock[0]) - (part.clock[1] - part.clock[0])
        part.shifts[line.rank] = apart if abs(apart) > _SAME_CLOCK_NS else 0
    if not part.told:
        part.name = line.name or part.name
        part.id, part.clock, part.told = line.id, line.clock, True
    part.meta = line.meta | part.meta


def _account(part: _Part, fresh: Log) -> Log:
    """The account of a run: that of its first import, where one was saved, with what is lost since."""
    if part.saved is None:
        return Log.of(fresh.freeze().as_dict())
    log = Log.of(clean_meta(msgspec.to_builtins(part.saved)))
    log.dropped += fresh.dropped
    for n in fresh.freeze().notices:
        log.note(n.id, n.message, count=n.count, severity=n.severity)
    return log


def _last_words(part: _Part, log: Log) -> None:
    """What the ends of the writers, or their silence, say of the run."""
    if part.open:
        log.note("no_end", "the run has no end line: it is still being written, or was cut short")
    for rank, end in part.ends.items():
        missing = max(0, (end.events or 0) - part.seen[rank])
        why = f" ({end.reason})" if end.reason else ""
        log.read += missing + max(0, end.lost)
        log.drop("missing_events", "events that their writer counted and the file lacks", count=missing)
        log.drop("lost_by_writer", f"events that their writer could not write{why}", count=max(0, end.lost))
