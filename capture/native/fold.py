"""Folds steps that lie far back: a block of them becomes the rows of one, and all sums stay exact.

A folded row keeps how often it ran (`count`), for how long in all (`dur`), its shortest and longest launch
(`min`, `max`), its flops and bytes; not when. A block has the number of its first step, and its step row
keeps how many steps and tokens it stands for, at their mean context. Of a counter's older samples the first
and the extremes stay; the others become means with the number of their samples.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.frames import Chunks
from capture.pieces import Piece
from capture.run import DTYPES, tidy, widened
from capture.shelf import Shelf

BLOCKS: Final = 64  # of folded steps at most; when there are more, two become one
SAMPLES: Final = 256  # newest samples of a counter that stay whole, and rows of its older ones
CELLS: Final = 64  # parts into which a counter's older samples are put
MARKS: Final = 4096  # newest lines of a class of marks that are kept

_TIMED: Final = ("kernel", "span")
_SAMPLED: Final = {"counter": "value", "memory": "bytes"}
_NAMES: Final = ("name", "phase", "layer", "op", "category", "lens", "track", "path", "shape")
_SCHEMA: Final = pl.Schema(DTYPES)
_BLANK: Final = pl.DataFrame(schema=_SCHEMA)


class Folded:
    """What was folded so far: of a bounded size, however much it was."""

    def __init__(self, shelved: int = 0) -> None:
        """Keep so many launches packed beside the sums."""
        self.before: int | None = None  # the first step that is not folded
        self.size = 1  # steps in a block at most
        self.lines_left_out = 0  # marks that only the file holds
        self.piece = Piece(_BLANK)
        self.shelf = Shelf()
        self._shelved = shelved
        self._work = self._samples = _BLANK
        self._has_step_rows: bool | None = None  # None until something is folded

    @property
    def meta(self) -> dict[str, Any]:
        """What a reader of the rows must know, for the run's meta; empty while nothing is folded."""
        meta = {"before": self.before, "steps": self.size, "lines": self.lines_left_out}
        return meta if self.piece.events.height else {}

    @property
    def sentence(self) -> str:
        """The same as a sentence."""
        what = f"steps before {self.before:,}" if self.before is not None else "older events"
        lines = f", and {self.lines_left_out:,} lines of the log left out" if self.lines_left_out else ""
        return f"{what} are kept as sums of up to {self.size:,} steps{lines}; the file holds all of them"

    def fold(self, groups: Sequence[Chunks], limit: int) -> list[Chunks]:
        """Fold all but about `limit` of the newest rows, and return what stays whole of each group: pieces
        behind which nothing is folded stay as they are.
        """
        self.before = _first_whole_step([frame for group in groups for frame in group], limit)
        if self._has_step_rows is None:
            self._has_step_rows = any((frame["kind"] == "step").any() for group in groups for frame in group)
        rest, old = [], []
        for group in groups:
            first, behind = group.parted(self._keeps)
            if first.height:
                whole, folded = _split(widened(first, DTYPES), self.before, limit)
                first = whole.select(first.columns)
                old.append(folded)
            rest.append(group.with_first(first, behind))
        self._add(pl.concat([_BLANK, *old]))
        return rest

    def _keeps(self, frame: pl.DataFrame) -> bool:
        """Return whether a frame holds nothing but timed rows of steps that stay."""
        if self.before is None or "step" not in frame.columns or frame["step"].has_nulls():
            return False
        first: Any = frame["step"].min()
        return bool(first >= self.before and frame["kind"].is_in([*_TIMED]).all())

    def _add(self, old: pl.DataFrame) -> None:
        kind = pl.col("kind")
        self.lines_left_out += old.filter(kind == "mark").height
        work = old.filter(kind.is_in(["step", *_TIMED]))
        if self._shelved:
            self.shelf = self.shelf.with_rows(tidy(work.drop_nulls("step")), self._shelved)
        self._add_work(work)
        self._samples = pl.concat(
            _thin_samples(pl.concat([self._samples, old.filter(kind.is_in(list(_SAMPLED)))]))
        )
        self.piece = Piece(tidy(pl.concat([self._work, self._samples])))

    def _add_work(self, rows: pl.DataFrame) -> None:
        counted = rows if self._has_step_rows else pl.concat([rows, _step_rows(rows)])
        work = pl.concat([self._work, counted])
        blocks = _blocks(work, self.size)
        while blocks["head"].n_unique() > BLOCKS and self.size < 1 << 40:
            self.size *= 2
            blocks = _blocks(work, self.size)
        self._work = _sum_blocks(work.join(blocks, on="step", how="left", maintain_order="left"))


def _first_whole_step(frames: Sequence[pl.DataFrame], limit: int) -> int | None:
    """Return the first of the newest steps that hold `limit` rows, at least the last; None without steps."""
    known = [frame["step"].drop_nulls() for frame in frames if "step" in frame.columns]
    steps = pl.concat([_BLANK["step"], *known])
    sizes = steps.value_counts(name="rows").sort("step", descending=True)
    kept = sizes.filter((pl.col("rows").cum_sum() <= limit) | (pl.int_range(pl.len()) == 0))
    return None if kept.is_empty() else int(kept["step"][-1])


def _split(frame: pl.DataFrame, first: int | None, limit: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that stay whole, those of the step `first` and later, and those to be folded."""
    kind, step = pl.col("kind"), pl.col("step")
    timed = kind.is_in(["step", *_TIMED])
    behind = (timed & step.is_null()).cum_sum(reverse=True) > limit
    old = pl.when(step.is_not_null()).then(step < first).otherwise(behind) if first is not None else behind
    if not frame["kind"].is_in(["step", *_TIMED]).all():  # else nobody asks which are the newest of their own
        newer = pl.int_range(pl.len(), 0, -1)
        sample = newer.over("kind", "name", "unit", "track") > SAMPLES
        mark = newer.over("kind", "path") > MARKS
        old = pl.when(timed).then(old).when(kind == "mark").then(mark).otherwise(sample)
    kept_step = pl.when(timed | (step >= (first or 0))).then(step).alias("step")  # a mark makes no step
    flagged = frame.with_columns(kept_step, _old=old)
    return flagged.filter(~pl.col("_old")).drop("_old"), flagged.filter("_old").drop("_old")


def _step_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row for every step, for a source without such rows: their number must not be lost."""
    steps = rows.filter(pl.col("step").is_not_null()).group_by("step", maintain_order=True)
    rows = steps.agg(_phase()).select("step", "phase", kind=pl.lit("step"), name=pl.lit("step"))
    return widened(rows, DTYPES).cast(_SCHEMA)


def _phase() -> pl.Expr:
    """Return the phase of a step: that of its step row, else that of its other rows."""
    phase = pl.col("phase")
    stated = phase.filter(pl.col("kind") == "step").drop_nulls().first()
    return pl.coalesce(stated, phase.drop_nulls().first()).alias("phase")


def _blocks(work: pl.DataFrame, size: int) -> pl.DataFrame:
    """Return step → head, the first step of its block and phase."""
    steps = work.filter(pl.col("step").is_not_null()).group_by("step").agg(_phase())
    return steps.select("step", head=pl.col("step").min().over(pl.col("step") // size, "phase"))


def _sum_blocks(work: pl.DataFrame) -> pl.DataFrame:
    """Return one row for the same work in the same block, and one for the step rows of a block and track."""
    has_duration = pl.col("dur").is_not_null().alias("_has_duration")
    timed = work.filter(pl.col("kind") != "step").group_by(
        "kind", "head", *_NAMES, has_duration, maintain_order=True
    )
    steps = work.filter(pl.col("kind") == "step").group_by("kind", "head", "track", maintain_order=True)
    first = [pl.col(name).first() for name in ("name", "phase", "lens")]
    count = pl.col("count").fill_null(1)
    context = ((pl.col("context") * count).sum() / count.sum()).round()
    context = pl.when(pl.col("context").null_count() == 0).then(context).alias("context")
    frames = [
        timed.agg(*_totals(), _sum("flops"), _sum("bytes")).drop("_has_duration"),
        steps.agg(*_totals(), *first, _sum("tokens"), context, pl.col("batch").max()),
    ]
    named = [frame.rename({"head": "step"}) for frame in frames]
    return pl.concat([widened(frame, DTYPES).cast(_SCHEMA) for frame in named])


def _totals() -> Iterator[pl.Expr]:
    """Yield count, duration and extremes; an extreme is null unless every row has it."""
    count = pl.col("count").fill_null(1)
    yield count.sum().alias("count")
    yield _sum("dur")
    once = pl.when(count == 1).then("dur")
    for name, extreme in (("min", pl.Expr.min), ("max", pl.Expr.max)):
        each = pl.coalesce(name, once)
        yield pl.when(each.null_count() == 0).then(extreme(each)).alias(name)


def _sum(name: str) -> pl.Expr:
    """Return the sum of a column; null unless every row has a value."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)


def _thin_samples(samples: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the older samples of every counter in few rows: extremes of each part, and means of the rest."""
    yield _BLANK
    keys = ("kind", *_NAMES, "unit")
    for own in samples.partition_by(keys, maintain_order=True):
        value = _SAMPLED[str(own["kind"][0])]
        yield own if own.height <= SAMPLES else _reduce_to_cells(own, value)


def _reduce_to_cells(own: pl.DataFrame, value: str) -> pl.DataFrame:
    """Return the first sample and the lowest and highest of each cell; all others join a mean."""
    count = pl.col("count").fill_null(1)
    before = count.cum_sum() - count
    cell = pl.when(before == 0).then(-1).otherwise(before * CELLS // count.sum())
    single = pl.when(count == 1).then(value)
    placed = own.with_columns(_cell=cell, _single=single, _i=pl.int_range(pl.len()))
    lowest, highest = (
        pl.col("_i").gather(at).first().over("_cell")
        for at in (pl.col("_single").arg_min(), pl.col("_single").arg_max())
    )
    role = pl.when(pl.col("_i") == lowest).then(0).when(pl.col("_i") == highest).then(1).otherwise(2)
    value_of = (pl.col(value) * count).sum() / count.sum()
    kept = [c for c in own.columns if c not in (value, "count")]
    return (
        placed.with_columns(_role=role)
        .group_by("_cell", "_role", maintain_order=True)
        .agg(*(pl.col(c).first() for c in kept), value_of.alias(value), count.sum().alias("count"))
        .select(own.columns)
        .cast(_SCHEMA)
    )
