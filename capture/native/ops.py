"""The ops of a native run by their numbers, and the frames that its lines become with them."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.native.lines import Flat, Op, RowsLine
from capture.native.numbers import Block
from capture.run import DTYPES, LONGEST_NS, build, is_beyond
from capture.text import clean

_NUMBERS: Final = frozenset(name for name, type in DTYPES.items() if type != pl.Categorical())
_LAWS: Final = ("flops", "bytes")
_FLAT: Final = tuple(DTYPES)
_SPARSE: Final = 1000  # numbers for each op, from which they are looked up instead of indexed

_fields: Final = attrgetter(*_FLAT)


class Plan:
    """Every op that the writers of a run have planned, each in a slot of its own."""

    def __init__(self) -> None:
        self._ops: list[dict[str, Any]] = []
        self._slots: dict[int | None, dict[int, int]] = {}
        self._frame: pl.DataFrame | None = None

    def add(self, raw: Iterable[Any], source: int | None, rank: int | None, log: Log) -> None:
        """Add the ops of one line; one that is no op, or whose number another has, is dropped."""
        slots = self._slots.setdefault(source, {})
        for item in raw:
            try:
                op = msgspec.convert(item, Op)
            except msgspec.ValidationError as e:
                _drop(log, "bad_op", f"ops of a plan that cannot be read; the last: {e}")
                continue
            row = _op_row(op, rank)
            if op.id not in slots:
                slots[op.id] = len(self._ops)
                self._ops.append(row)
            elif self._ops[slots[op.id]] != row:
                _drop(log, "op_twice", "ops whose number stands for another op already")
        self._frame = None

    def slots(self, source: int | None, ids: Sequence[int]) -> Iterable[int | None]:
        """Return the slot of each op; None for one that no plan line holds."""
        return map(self._slots.get(source, {}).get, ids)

    def slots_at_once(self, source: int | None, ids: pl.Series) -> pl.Series:
        """Return the slots of many ops; null for those that no plan line holds."""
        known = self._slots.get(source, {})
        if not known:
            return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(ids))
        last = max(known)
        if min(known) < 0 or last > _SPARSE * len(known):
            return ids.replace_strict(known, default=None, return_dtype=pl.Int64)
        places = pl.Series(map(known.get, range(last + 1)), dtype=pl.Int64)
        return pl.select(pl.lit(places).gather(pl.when(ids.is_between(0, last)).then(ids))).to_series()

    def rows(self, slots: pl.Series) -> pl.DataFrame:
        """Return a row for each slot: the op's columns, and the coefficients of its laws."""
        if self._frame is None:
            self._frame = _ops_frame(self._ops)
        return self._frame[slots]


def _drop(log: Log, id: str, message: str) -> None:
    log.read += 1
    log.drop(id, message)


def _op_row(op: Op, rank: int | None) -> dict[str, Any]:
    row = msgspec.structs.asdict(op)
    del row["id"]
    for name in _LAWS:
        law = row.pop(name)
        row[f"{name}_a"], row[f"{name}_b"] = law if isinstance(law, tuple) else (law, None)
    row["track"] = track_of(rank, op.track)
    return row


def track_of(rank: int | None, track: str | None) -> str | None:
    """Return the track of a row under that of its rank; the track itself without a rank."""
    if rank is None:
        return track
    return f"rank {rank} / {track}" if track else f"rank {rank}"


def _ops_frame(ops: list[dict[str, Any]]) -> pl.DataFrame:
    """Return one row an op, cleaned and filled from names as events are."""
    laws = {f"{law}_{part}": pl.Float64() for law in _LAWS for part in "ab"} | {"window": pl.Float64()}
    text = {name: pl.String() if type == pl.Categorical() else type for name, type in DTYPES.items()}
    blank = _op_row(Op(id=0, name=""), None)
    frame = pl.DataFrame(ops, schema={k: text.get(k) or laws[k] for k in blank})
    events = build("", {}, frame.drop(laws), Log()).events
    return events.with_columns(frame[law] for law in laws if frame[law].null_count() < frame.height)


def columns_frame(block: Block, plan: Plan, log: Log) -> pl.DataFrame:
    """Return the events of many steps; those of unknown ops are dropped and logged."""
    line_of_row = pl.select(
        pl.int_range(len(block.lines)).repeat_by(block.lengths.cast(pl.UInt32)).explode()
    ).to_series()
    slots = _slots(block, line_of_row, plan)
    frame = _line_heads(block)[line_of_row].hstack([slots, *block.numbers.drop("op")])
    return _with_ops(frame.with_columns(t=pl.col("shift") + pl.col("dt").cum_sum()), plan, log)


def _slots(block: Block, line_of_row: pl.Series, plan: Plan) -> pl.Series:
    """Return the slot of each event's op, which its writer has numbered."""
    ops = block.numbers["op"]
    sources = [line.source for line in block.lines]
    slots = plan.slots_at_once(sources[0], ops)
    for other in set(sources[1:]) - {sources[0]}:
        of_other = pl.Series([source == other for source in sources])[line_of_row]
        slots = plan.slots_at_once(other, ops).zip_with(of_other, slots)
    return slots.alias("slot")


def _line_heads(block: Block) -> pl.DataFrame:
    """Return a row for each line: what holds for all of its events."""
    lines = block.lines
    starts = [None if line.t is None else _wrap(line.t) for line in lines]
    phases = [line.phase and clean(line.phase) for line in lines]
    return pl.DataFrame(
        [
            pl.Series("shift", starts, dtype=pl.Int64) - _distances_before(block),
            pl.Series("step", [line.step for line in lines], dtype=pl.Int64),
            pl.Series("line_phase", phases, dtype=pl.String).cast(pl.Categorical()),
            pl.Series("line_context", [line.context for line in lines], dtype=pl.Int64),
        ]
    )


def _distances_before(block: Block) -> pl.Series:
    """Return the sum of all distances before each line, which the running sum of its own goes on from."""
    sums = pl.concat([pl.Series([0]), block.numbers["dt"].fill_null(0).cum_sum()])
    return sums.gather(block.lengths.cum_sum() - block.lengths)


def _wrap(number: int) -> int:
    """Return a number as 64 bits hold it: the running sum wraps too, so that the difference is right."""
    return (number + 2**63) % 2**64 - 2**63


def rows_frame(line: RowsLine, plan: Plan) -> pl.DataFrame:
    """Return the numbers of one line of rows beside their slots; raise what polars raises for bad ones."""
    columns = {
        name: pl.Series(values, dtype=DTYPES[name], strict=DTYPES[name] != pl.Float64())
        for name, values in line.columns.items()
        if name in _NUMBERS
    }
    return pl.DataFrame({"slot": pl.Series(list(plan.slots(None, line.op)), dtype=pl.Int64), **columns})


def planned_rows(frames: Sequence[pl.DataFrame], plan: Plan, log: Log) -> pl.DataFrame:
    """Return lines of rows with the columns of their ops."""
    return _with_ops(pl.concat(frames, how="diagonal"), plan, log)


def _with_ops(frame: pl.DataFrame, plan: Plan, log: Log) -> pl.DataFrame:
    """Return rows with the columns of their ops, in place of their slots; impossible ones are dropped."""
    if frame["slot"].has_nulls():
        known = pl.col("slot").is_not_null()
        frame = _keep(frame, known, "unknown_op", "events of ops that no plan tells of", log)
    if "dur" in frame.columns and is_beyond(frame["dur"], 0, LONGEST_NS):
        possible = pl.col("dur").is_null() | pl.col("dur").is_between(0, LONGEST_NS)
        frame = _keep(frame, possible, "bad_duration", "durations that are negative or impossibly long", log)
    ops = plan.rows(frame["slot"])
    both = [c for c in ops.columns if c in frame.columns]
    frame = frame.hstack([ops[c] for c in ops.columns if c not in both])
    if both:
        frame = frame.with_columns(pl.coalesce(pl.col(c), ops[c]) for c in both)
    frame = frame.with_columns(*_phase(frame), *_evaluated_laws(frame))
    return frame.select_seq(c for c in frame.columns if c in DTYPES)


def _keep(frame: pl.DataFrame, good: pl.Expr, id: str, message: str, log: Log) -> pl.DataFrame:
    """Return the rows that are good, and log the others."""
    kept = frame.filter(good)
    log.drop(id, message, count=frame.height - kept.height)
    return kept


def _phase(frame: pl.DataFrame) -> Iterator[pl.Expr]:
    """Yield the phase: that of the step where it has one, else that of the op."""
    if "line_phase" in frame.columns:
        yield pl.coalesce(c for c in ("line_phase", "phase") if c in frame.columns).alias("phase")


def _evaluated_laws(frame: pl.DataFrame) -> Iterator[pl.Expr]:
    """Yield flops and bytes of each row: a + b · min(context, window)."""
    for law in _LAWS:
        if f"{law}_a" in frame.columns:
            yield _evaluate(frame, law).alias(law)


def _evaluate(frame: pl.DataFrame, law: str) -> pl.Expr:
    """Return one law of each row: null, not zero, where it needs a context that the row lacks."""
    if f"{law}_b" not in frame.columns:
        return pl.col(f"{law}_a")
    context = next((pl.col(c) for c in ("line_context", "context") if c in frame.columns), pl.lit(None))
    reach = context.cast(pl.Float64)
    if "window" in frame.columns:
        reach = pl.when(reach.is_not_null()).then(pl.min_horizontal(reach, "window"))
    slope = pl.col(f"{law}_b").fill_null(0.0)
    return pl.col(f"{law}_a") + pl.when(slope == 0).then(0.0).otherwise(slope * reach)


def flat_frame(lines: Sequence[Flat], log: Log) -> pl.DataFrame:
    """Return the events of lines that hold one each."""
    columns = zip(_FLAT, zip(*map(_fields, lines), strict=True), strict=True)
    series = [
        pl.Series(name, values, dtype=DTYPES[name])
        for name, values in columns
        if values.count(None) < len(lines)
    ]
    return build("", {}, pl.DataFrame(series), log).events
