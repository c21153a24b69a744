"""Convert native lines to rows: by the ops of their plan, and column lines many at once, on all cores.

Lists of column lines are joined and parsed as one column, exactly as our writers write them; a line with
anything else is decoded by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import polars as pl
from msgspec import Raw, Struct

from capture.clean_text import clean
from capture.import_log import Log
from capture.merge_ranks import prefix_track_with_rank
from capture.native.line_types import ColumnsLine, EventLine, Int64, Op, RowsLine, WriterFields
from capture.native.schema import RECORDING_NAME, UNWATCHED_NAME, is_intact
from capture.run import DTYPES, build_run, drop_impossible_durations

_NUMERIC_COLUMNS: Final = frozenset(name for name, type in DTYPES.items() if type != pl.Categorical())
_LAW_COLUMNS: Final = ("flops", "bytes")
_MAX_IDS_PER_OP: Final = 1000  # sparser ids are looked up in a dictionary instead of indexed
_read_fields: Final = attrgetter(*DTYPES)
COLUMNS_START: Final = b'{"kind":"columns",'
_MIN_REPEATED_IN: Final = 4  # of so many lines one must repeat the first list, to parse each list once


class RawColumnsLine(WriterFields, kw_only=True, gc=False):
    """A column line whose lists are still text."""

    op: Raw
    dur: Raw
    dt: Raw
    t: Int64 | None
    step: Int64 | None = None
    phase: str | None = None
    context: Int64 | None = None


class ColumnBlock(Struct, frozen=True):
    """Column lines with all their numbers: one row per event, and the number of events per line."""

    lines: Sequence[ColumnsLine | RawColumnsLine]
    numbers: pl.DataFrame
    lengths: pl.Series


_decode_raw_line: Final = msgspec.json.Decoder(RawColumnsLine).decode


def build_block(lines: Iterable[ColumnsLine]) -> ColumnBlock | None:
    """Return lines that were decoded one by one as a block, or None if they have no events."""
    lines = [line for line in lines if line.op]
    lists: dict[str, Iterable[Sequence[int | None]]] = {
        "op": (line.op for line in lines),
        "dur": (line.dur for line in lines),
        "dt": map(_list_distances, lines),
    }
    if any(line.count for line in lines):
        lists["count"] = (line.count or [None] * len(line.op) for line in lines)
    columns = [pl.Series(n, list(chain.from_iterable(p)), dtype=pl.Int64) for n, p in lists.items()]
    lengths = pl.Series([len(line.op) for line in lines], dtype=pl.Int64)
    return ColumnBlock(lines, pl.DataFrame(columns), lengths) if lines else None


def _list_distances(line: ColumnsLine) -> Sequence[int | None]:
    return [None] * len(line.op) if line.dt is None or line.t is None else line.dt


def decode_block(lines: Sequence[bytes]) -> ColumnBlock | None:
    """Return lines as a block, or None if one of them must be decoded by itself."""
    records = _decode_lines(lines)
    if len(records) < len(lines):
        return None
    lists = {name: [bytes(getattr(record, name)) for record in records] for name in ("op", "dur", "dt")}
    counts = {text: text.count(b",") + 1 for text in set(lists["op"])}
    lengths = [counts[text] for text in lists["op"]]
    columns = [_parse_repeated_lists(name, texts, lengths) for name, texts in lists.items()]
    parsed = [column for column in columns if column is not None]
    if len(parsed) < len(columns):
        return None
    return ColumnBlock(records, pl.DataFrame(parsed), pl.Series(lengths, dtype=pl.Int64))


def _decode_lines(lines: Sequence[bytes]) -> list[RawColumnsLine]:
    """Return the intact lines with a start time, or none if any line has another form."""
    try:
        records = [_decode_raw_line(line) for line in lines if is_intact(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [record for record in records if record.t is not None]


def _parse_repeated_lists(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return the numbers of JSON lists like `_parse_lists`, but parse each distinct list once."""
    if lists.count(lists[0]) * _MIN_REPEATED_IN < len(lists):
        return _parse_lists(name, lists, lengths)
    distinct = dict(zip(lists, lengths, strict=True))
    if any(distinct[text] != length for text, length in zip(lists, lengths, strict=True)):
        return None
    numbers = _parse_lists(name, list(distinct), list(distinct.values()))
    if numbers is None:
        return None
    ends = dict(zip(distinct, accumulate(distinct.values()), strict=True))
    slices = {text: numbers.slice(end - distinct[text], distinct[text]) for text, end in ends.items()}
    return pl.concat([slices[text] for text in lists], rechunk=True)


def _parse_lists(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return the numbers of JSON lists of these lengths, concatenated, or None for anything else."""
    pairs = zip(lists, lengths, strict=True)
    if not all(text.startswith(b"[") and text.count(b",") + 1 == length for text, length in pairs):
        return None
    text = b",".join([text[1:-1] for text in lists])
    try:  # one number per line, with a comma as the line end
        column = pl.read_csv(
            text, has_header=False, separator="\n", eol_char=",", quote_char=None, schema={name: pl.Int64}
        )
    except pl.exceptions.PolarsError:
        return None
    numbers = column[name]
    return None if numbers.has_nulls() or len(numbers) != sum(lengths) else numbers


class OpTable:
    """All ops that the writers of a run have planned, each in its own slot."""

    def __init__(self) -> None:
        self._ops: list[dict[str, Any]] = []
        self._slots: dict[int | None, dict[int, int]] = {}
        self._frame: pl.DataFrame | None = None

    def add(self, raw_ops: Iterable[Any], writer_id: int | None, rank: int | None, log: Log) -> None:
        """Add the ops of a plan line; an invalid op, or one that reuses an id, is dropped."""
        slots = self._slots.setdefault(writer_id, {})
        for item in raw_ops:
            try:
                op = msgspec.convert(item, Op)
            except msgspec.ValidationError as e:
                _log_dropped_op(log, "bad_op", f"ops of a plan that are invalid; the last: {e}")
                continue
            row = _build_op_row(op, rank)
            if op.id not in slots:
                slots[op.id] = len(self._ops)
                self._ops.append(row)
            elif self._ops[slots[op.id]] != row:
                _log_dropped_op(log, "op_twice", "ops that reuse the id of another op")
        self._frame = None

    def find_slots(self, writer_id: int | None, ids: Sequence[int]) -> Iterable[int | None]:
        """Return the slot of each op, or None if no plan line has it."""
        return map(self._slots.get(writer_id, {}).get, ids)

    def look_up_slots(self, writer_id: int | None, ids: pl.Series) -> pl.Series:
        """Return the slots of many ops as a column; null for ops that no plan line has."""
        slots = self._slots.get(writer_id, {})
        if not slots:
            return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(ids))
        last = max(slots)
        if min(slots) < 0 or last > _MAX_IDS_PER_OP * len(slots):
            return ids.replace_strict(slots, default=None, return_dtype=pl.Int64)
        slot_by_id = pl.Series(map(slots.get, range(last + 1)), dtype=pl.Int64)
        return pl.select(pl.lit(slot_by_id).gather(pl.when(ids.is_between(0, last)).then(ids))).to_series()

    def select_rows(self, slots: pl.Series) -> pl.DataFrame:
        """Return one row per slot: the columns of its op, and the coefficients of its laws."""
        if self._frame is None:
            self._frame = _build_ops_frame(self._ops)
        return self._frame[slots]


def _log_dropped_op(log: Log, id: str, message: str) -> None:
    log.read += 1
    log.drop(id, message)


def _build_op_row(op: Op, rank: int | None) -> dict[str, Any]:
    row = msgspec.structs.asdict(op)
    del row["id"]
    if op.name in (RECORDING_NAME, UNWATCHED_NAME):
        row["kind"] = "span"
    for name in _LAW_COLUMNS:
        law = row.pop(name)
        row[f"{name}_a"], row[f"{name}_b"] = law if isinstance(law, tuple) else (law, None)
    row["track"] = prefix_track_with_rank(rank, op.track)
    return row


def _build_ops_frame(ops: list[dict[str, Any]]) -> pl.DataFrame:
    """Return one row per op, cleaned and filled from names like events."""
    laws = {f"{law}_{part}": pl.Float64() for law in _LAW_COLUMNS for part in "ab"} | {"window": pl.Float64()}
    text = {name: pl.String() if type == pl.Categorical() else type for name, type in DTYPES.items()}
    blank = _build_op_row(Op(id=0, name=""), None)
    frame = pl.DataFrame(ops, schema={k: text.get(k) or laws[k] for k in blank})
    events = build_run("", {}, frame.drop(laws), Log()).events
    return events.with_columns(frame[law] for law in laws if frame[law].null_count() < frame.height)


def build_columns_frame(block: ColumnBlock, plan: OpTable, log: Log) -> pl.DataFrame:
    """Return the events of many steps; events of unknown ops are dropped and logged."""
    lines = pl.int_range(len(block.lines))
    line_of_row = pl.select(lines.repeat_by(block.lengths.cast(pl.UInt32)).explode()).to_series()
    ops, writers = block.numbers["op"], [line.writer_id for line in block.lines]
    slots = plan.look_up_slots(writers[0], ops)
    for other in set(writers[1:]) - {writers[0]}:
        is_other = pl.Series([writer == other for writer in writers])[line_of_row]
        slots = plan.look_up_slots(other, ops).zip_with(is_other, slots)
    frame = _build_line_frame(block)[line_of_row].hstack([slots.alias("slot"), *block.numbers.drop("op")])
    return _join_ops(frame.with_columns(t=pl.col("shift") + pl.col("dt").cum_sum()), plan, log)


def _build_line_frame(block: ColumnBlock) -> pl.DataFrame:
    """Return one row per line: the values shared by its events."""
    lines = block.lines
    starts = [None if line.t is None else _wrap_to_int64(line.t) for line in lines]
    phases = [line.phase and clean(line.phase) for line in lines]
    sums = pl.concat([pl.Series([0]), block.numbers["dt"].fill_null(0).cum_sum()])
    distance_before = sums.gather(block.lengths.cum_sum() - block.lengths)  # of all lines before each
    columns = [
        pl.Series("shift", starts, dtype=pl.Int64) - distance_before,
        pl.Series("step", [line.step for line in lines], dtype=pl.Int64),
        pl.Series("line_phase", phases, dtype=pl.String).cast(pl.Categorical()),
        pl.Series("line_context", [line.context for line in lines], dtype=pl.Int64),
    ]
    return pl.DataFrame(columns)


def _wrap_to_int64(number: int) -> int:
    """Return a number wrapped to 64 bits: cumulative sums wrap too, so that differences are right."""
    return (number + 2**63) % 2**64 - 2**63


def build_rows_frame(line: RowsLine, plan: OpTable) -> pl.DataFrame:
    """Return the numbers of one line of rows with their slots; polars errors are raised for bad ones."""
    columns = {
        name: pl.Series(values, dtype=DTYPES[name], strict=DTYPES[name] != pl.Float64())
        for name, values in line.columns.items()
        if name in _NUMERIC_COLUMNS
    }
    return pl.DataFrame({"slot": pl.Series(list(plan.find_slots(None, line.op)), dtype=pl.Int64), **columns})


def concat_rows_with_ops(frames: Sequence[pl.DataFrame], plan: OpTable, log: Log) -> pl.DataFrame:
    """Return lines of rows with the columns of their ops."""
    return _join_ops(pl.concat(frames, how="diagonal"), plan, log)


def _join_ops(frame: pl.DataFrame, plan: OpTable, log: Log) -> pl.DataFrame:
    """Return rows with the columns of their ops instead of slots; impossible rows are dropped."""
    if frame["slot"].has_nulls():
        log.drop("unknown_op", "events of ops that are in no plan", count=frame["slot"].null_count())
        frame = frame.drop_nulls("slot")
    frame = drop_impossible_durations(frame, log)
    ops = plan.select_rows(frame["slot"])
    shared = [c for c in ops.columns if c in frame.columns]
    frame = frame.hstack([ops[c] for c in ops.columns if c not in shared])
    if shared:
        frame = frame.with_columns(pl.coalesce(pl.col(c), ops[c]) for c in shared)
    frame = frame.with_columns(_make_op_columns(frame))
    return frame.select_seq(c for c in frame.columns if c in DTYPES)


def _make_op_columns(frame: pl.DataFrame) -> Iterator[pl.Expr]:
    """Yield the phase (of the step if it has one, else of the op), FLOPs and bytes of each row."""
    if "line_phase" in frame.columns:
        yield pl.coalesce(c for c in ("line_phase", "phase") if c in frame.columns).alias("phase")
    for law in _LAW_COLUMNS:
        if f"{law}_a" in frame.columns:
            yield _evaluate_law(frame, law).alias(law)


def _evaluate_law(frame: pl.DataFrame, law: str) -> pl.Expr:
    """Return a + b · min(context, window): null, not zero, if that needs a context that the row lacks."""
    if f"{law}_b" not in frame.columns:
        return pl.col(f"{law}_a")
    context = next((pl.col(c) for c in ("line_context", "context") if c in frame.columns), pl.lit(None))
    covered = context.cast(pl.Float64)
    if "window" in frame.columns:
        covered = pl.when(covered.is_not_null()).then(pl.min_horizontal(covered, "window"))
    slope = pl.col(f"{law}_b").fill_null(0.0)
    return pl.col(f"{law}_a") + pl.when(slope == 0).then(0.0).otherwise(slope * covered)


def build_event_frame(lines: Sequence[EventLine], log: Log) -> pl.DataFrame:
    """Return the events of single-event lines."""
    columns = zip(DTYPES, zip(*map(_read_fields, lines), strict=True), strict=True)
    filled = [(name, values) for name, values in columns if values.count(None) < len(lines)]
    series = [pl.Series(name, values, dtype=DTYPES[name]) for name, values in filled]
    return build_run("", {}, pl.DataFrame(series), log).events
