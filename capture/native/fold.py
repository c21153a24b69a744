"""Steps that lie far back, folded: a block of them in the rows of one, with all that adds up still exact.

A folded row says how often it ran (`count`), for how long in all (`dur`), its shortest and its longest launch
(`min`, `max`), its work and its traffic; not when. A block goes by the number of its first step, and its step
row says how many steps and tokens it stands for, at their mean context. Of a counter's past the first sample
and the extremes stay, the others become means that say of how many.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.run import DTYPES, tidy

BLOCKS: Final = 64  # that folded steps may fill; when there are more, two become one
SAMPLES: Final = 256  # newest rows of a counter that stay as they were sampled, and rows of its past
CELLS: Final = 64  # parts of a counter's past
MARKS: Final = 4096  # newest lines of a class of marks that are kept

_TIMED: Final = ("kernel", "span")
_SAMPLED: Final = {"counter": "value", "memory": "bytes"}
_NAMES: Final = ("name", "phase", "layer", "op", "category", "lens", "track", "path", "shape")
_SCHEMA: Final = pl.Schema(DTYPES)
_BLANK: Final = pl.DataFrame(schema=_SCHEMA)


class Past:
    """What was folded so far: of a bounded size, however much there was."""

    def __init__(self) -> None:
        self.before: int | None = None  # the first step that is whole
        self.size = 1  # steps that a block takes in at most
        self.forgotten = 0  # marks that are in the file alone
        self.frame = _BLANK
        self._work = self._samples = _BLANK
        self._tells_steps: bool | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a reader of the rows must know; nothing while nothing is folded."""
        told = {"before": self.before, "steps": self.size, "lines": self.forgotten}
        return told if self.frame.height else {}

    @property
    def said(self) -> str:
        """The same as a sentence."""
        what = f"steps before {self.before:,}" if self.before is not None else "older events"
        lines = f", and {self.forgotten:,} lines of the log left out" if self.forgotten else ""
        return f"{what} are kept as sums of up to {self.size:,} steps{lines}; the file holds all of them"

    def take(self, frames: Sequence[pl.DataFrame], limit: int) -> list[pl.DataFrame]:
        """Folds all but the newest rows, about as many as the limit says; gives those that stay whole."""
        full = [frame.select(_full(frame)) for frame in frames]
        self.before = _cut(full, limit)
        parts = [_split(frame, self.before, limit) for frame in full]
        old = pl.concat([old for _, old in parts])
        kind = pl.col("kind")
        if self._tells_steps is None:
            self._tells_steps = any((frame["kind"] == "step").any() for frame in full)
        self.forgotten += old.filter(kind == "mark").height
        self._add_work(old.filter(kind.is_in(["step", *_TIMED])))
        self._samples = pl.concat(
            _thinned(pl.concat([self._samples, old.filter(kind.is_in(list(_SAMPLED)))]))
        )
        self.frame = tidy(pl.concat([self._work, self._samples]))
        return [whole.select(frame.columns) for (whole, _), frame in zip(parts, frames, strict=True)]

    def _add_work(self, rows: pl.DataFrame) -> None:
        counted = rows if self._tells_steps else pl.concat([rows, _step_rows(rows)])
        work = pl.concat([self._work, counted])
        heads = _heads(work, self.size)
        while heads["head"].n_unique() > BLOCKS and self.size < 1 << 40:
            self.size *= 2
            heads = _heads(work, self.size)
        self._work = _added_up(work.join(heads, on="step", how="left", maintain_order="left"))


def _full(frame: pl.DataFrame) -> list[pl.Expr]:
    """All columns of the schema."""
    return [
        pl.col(name) if name in frame.columns else pl.lit(None, type).alias(name)
        for name, type in DTYPES.items()
    ]


def _cut(frames: Sequence[pl.DataFrame], limit: int) -> int | None:
    """The first of the newest steps that hold as many rows as the limit says; at least the last one."""
    steps = pl.concat([frame["step"].drop_nulls() for frame in frames])
    sizes = steps.value_counts(name="rows").sort("step", descending=True)
    kept = sizes.filter((pl.col("rows").cum_sum() <= limit) | (pl.int_range(pl.len()) == 0))
    return None if kept.is_empty() else int(kept["step"][-1])


def _split(frame: pl.DataFrame, cut: int | None, limit: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that stay whole, and those that are to be folded."""
    kind, step = pl.col("kind"), pl.col("step")
    timed = kind.is_in(["step", *_TIMED])
    behind = (timed & step.is_null()).cum_sum(reverse=True) > limit
    far = pl.when(step.is_not_null()).then(step < cut).otherwise(behind) if cut is not None else behind
    newer = pl.int_range(pl.len(), 0, -1)
    sample = newer.over("kind", "name", "unit", "track") > SAMPLES
    mark = newer.over("kind", "path") > MARKS
    old = pl.when(timed).then(far).when(kind == "mark").then(mark).otherwise(sample)
    known = pl.when(timed | (step >= (cut or 0))).then(step).alias("step")  # a word alone makes no step
    flagged = frame.with_columns(known, _old=old)
    return flagged.filter(~pl.col("_old")).drop("_old"), flagged.filter("_old").drop("_old")


def _step_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """A row for every step, where the source tells none: how many there were must not be lost."""
    steps = rows.filter(pl.col("step").is_not_null()).group_by("step", maintain_order=True)
    told = steps.agg(_phase()).select("step", "phase", kind=pl.lit("step"), name=pl.lit("step"))
    return told.select(_full(told)).cast(_SCHEMA)


def _phase() -> pl.Expr:
    """The phase of a step: as its own row says, else as its rows do."""
    phase = pl.col("phase")
    stated = phase.filter(pl.col("kind") == "step").drop_nulls().first()
    return pl.coalesce(stated, phase.drop_nulls().first()).alias("phase")


def _heads(work: pl.DataFrame, size: int) -> pl.DataFrame:
    """step → head, the first step of its block and phase."""
    steps = work.filter(pl.col("step").is_not_null()).group_by("step").agg(_phase())
    return steps.select("step", head=pl.col("step").min().over(pl.col("step") // size, "phase"))


def _added_up(work: pl.DataFrame) -> pl.DataFrame:
    """Rows of the same work in the same block become one; so do the step rows of a block on one track."""
    known = pl.col("dur").is_not_null().alias("_known")
    timed = work.filter(pl.col("kind") != "step").group_by(
        "kind", "head", *_NAMES, known, maintain_order=True
    )
    steps = work.filter(pl.col("kind") == "step").group_by("kind", "head", "track", maintain_order=True)
    first = [pl.col(name).first() for name in ("name", "phase", "lens")]
    count = pl.col("count").fill_null(1)
    context = ((pl.col("context") * count).sum() / count.sum()).round()
    context = pl.when(pl.col("context").null_count() == 0).then(context).alias("context")
    frames = [
        timed.agg(*_totals(), _sum("flops"), _sum("bytes")).drop("_known"),
        steps.agg(*_totals(), *first, _sum("tokens"), context, pl.col("batch").max()),
    ]
    named = [frame.rename({"head": "step"}) for frame in frames]
    return pl.concat([frame.select(_full(frame)).cast(_SCHEMA) for frame in named])


def _totals() -> Iterator[pl.Expr]:
    """Count, duration and extremes; an extreme stands only where every row knows it."""
    count = pl.col("count").fill_null(1)
    yield count.sum().alias("count")
    yield _sum("dur")
    once = pl.when(count == 1).then("dur")
    for name, extreme in (("min", pl.Expr.min), ("max", pl.Expr.max)):
        each = pl.coalesce(name, once)
        yield pl.when(each.null_count() == 0).then(extreme(each)).alias(name)


def _sum(name: str) -> pl.Expr:
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)


def _thinned(samples: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The past of every counter in few rows: a part of it by its extremes and the mean of the rest."""
    yield _BLANK
    keys = ("kind", *_NAMES, "unit")
    for own in samples.partition_by(keys, maintain_order=True):
        value = _SAMPLED[str(own["kind"][0])]
        yield own if own.height <= SAMPLES else _in_cells(own, value)


def _in_cells(own: pl.DataFrame, value: str) -> pl.DataFrame:
    """The first sample stays, in each cell the lowest and the highest; all others join a mean."""
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
