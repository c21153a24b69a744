"""Compact old steps into blocks: the rows of a block become those of one step; all sums stay exact.

A compacted row keeps how often it ran (`count`), its total time (`dur`), shortest and longest launch
(`min`, `max`), FLOPs and bytes, but not when it ran. A block has the number of its first step; its step row
keeps the number of steps and tokens that it represents, at their mean context. Of a counter's older samples
the first and the extremes stay; the others become means with their number of samples.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.launch_archive import LaunchArchive
from capture.run import DTYPES, Chunk, ChunkList, drop_empty_columns, select_or_null

MAX_BLOCKS: Final = 64  # beyond which neighbouring blocks are merged in pairs
RECENT_SAMPLES: Final = 256  # of a counter that stay single; also the limit for rows of its older ones
SAMPLE_CELLS: Final = 64  # into which the older samples of a counter are divided
RECENT_MARKS: Final = 4096  # of a class that are retained

_TIMED_KINDS: Final = ("kernel", "span")
_SAMPLE_VALUES: Final = {"counter": "value", "memory": "bytes"}
_NAME_COLUMNS: Final = ("name", "phase", "layer", "op", "category", "lens", "track", "path", "shape", "dtype")
_SCHEMA: Final = pl.Schema(DTYPES)
_EMPTY: Final = pl.DataFrame(schema=_SCHEMA)


class CompactedSteps:
    """The steps compacted so far; its size is bounded."""

    def __init__(self, archived_launches: int = 0) -> None:
        """Archive this many launches besides the sums."""
        self.first_recent_step: int | None = None  # the first step that is not compacted
        self.block_steps = 1  # steps per block
        self.dropped_marks = 0  # marks that only the file contains
        self.chunk = Chunk(_EMPTY)
        self.archive = LaunchArchive()
        self._archived_launches = archived_launches
        self._work = self._samples = _EMPTY
        self._has_step_rows: bool | None = None  # None until something is compacted

    @property
    def meta(self) -> dict[str, Any]:
        """What readers of the rows must know, for the run's meta; empty if nothing is compacted."""
        meta = {"before": self.first_recent_step, "steps": self.block_steps, "lines": self.dropped_marks}
        return meta if self.chunk.events.height else {}

    @property
    def message(self) -> str:
        """The compaction as a sentence for the import log."""
        first = self.first_recent_step
        what = "older events" if first is None else f"steps before {first:,}"
        lines = f", and {self.dropped_marks:,} lines of the log dropped" if self.dropped_marks else ""
        return f"{what} are kept as sums of up to {self.block_steps:,} steps{lines}; the file has all of them"

    def compact(self, groups: Sequence[ChunkList], limit: int) -> list[ChunkList]:
        """Compact all but about `limit` recent rows; return the retained rows of each group.

        Chunks after the last compacted row are returned unchanged: results cached for them stay valid.
        """
        frames = [frame for group in groups for frame in group]
        self.first_recent_step = _find_first_recent_step(frames, limit)
        if self._has_step_rows is None:
            self._has_step_rows = any((frame["kind"] == "step").any() for frame in frames)
        retained_groups, old = [], []
        for group in groups:
            first, later_chunks = group.split_off_retained(self._is_fully_retained)
            if first.height:
                rows = select_or_null(first, DTYPES)
                retained, old_rows = _split_recent(rows, self.first_recent_step, limit)
                first = retained.select(first.columns)
                old.append(old_rows)
            retained_groups.append(group.prepend_frame(first, later_chunks))
        self._add_compacted(pl.concat([_EMPTY, *old]))
        return retained_groups

    def _is_fully_retained(self, frame: pl.DataFrame) -> bool:
        """Return whether a frame has only timed rows of recent steps."""
        if self.first_recent_step is None or "step" not in frame.columns or frame["step"].has_nulls():
            return False
        first: Any = frame["step"].min()
        return bool(first >= self.first_recent_step and frame["kind"].is_in([*_TIMED_KINDS]).all())

    def _add_compacted(self, old: pl.DataFrame) -> None:
        kind = pl.col("kind")
        self.dropped_marks += old.filter(kind == "mark").height
        work = old.filter(kind.is_in(["step", *_TIMED_KINDS]))
        if self._archived_launches:
            launches = drop_empty_columns(work.drop_nulls("step"))
            self.archive = self.archive.append(launches, self._archived_launches)
        self._add_work(work)
        samples = pl.concat([self._samples, old.filter(kind.is_in(list(_SAMPLE_VALUES)))])
        self._samples = pl.concat(_downsample_counters(samples))
        self.chunk = Chunk(drop_empty_columns(pl.concat([self._work, self._samples])))

    def _add_work(self, rows: pl.DataFrame) -> None:
        counted = rows if self._has_step_rows else pl.concat([rows, _build_step_rows(rows)])
        work = pl.concat([self._work, counted])
        blocks = _assign_blocks(work, self.block_steps)
        while blocks["head"].n_unique() > MAX_BLOCKS and self.block_steps < 1 << 40:
            self.block_steps *= 2
            blocks = _assign_blocks(work, self.block_steps)
        self._work = _sum_blocks(work.join(blocks, on="step", how="left", maintain_order="left"))


def _find_first_recent_step(frames: Sequence[pl.DataFrame], limit: int) -> int | None:
    """Return the first of the last steps with `limit` rows together (at least one step), or None."""
    steps_by_frame = [frame["step"].drop_nulls() for frame in frames if "step" in frame.columns]
    steps = pl.concat([_EMPTY["step"], *steps_by_frame])
    sizes = steps.value_counts(name="rows").sort("step", descending=True)
    recent = sizes.filter((pl.col("rows").cum_sum() <= limit) | (pl.int_range(pl.len()) == 0))
    return None if recent.is_empty() else int(recent["step"][-1])


def _split_recent(frame: pl.DataFrame, first: int | None, limit: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows to retain (of the step `first` and later) and the rows to compact."""
    kind, step = pl.col("kind"), pl.col("step")
    timed = kind.is_in(["step", *_TIMED_KINDS])
    is_old = (timed & step.is_null()).cum_sum(reverse=True) > limit
    if first is not None:
        is_old = pl.when(step.is_not_null()).then(step < first).otherwise(is_old)
    # the ranks within each counter are costly
    if not frame["kind"].is_in(["step", *_TIMED_KINDS]).all():
        newer_rows = pl.int_range(pl.len(), 0, -1)
        is_old_sample = newer_rows.over("kind", "name", "unit", "track") > RECENT_SAMPLES
        is_old_mark = newer_rows.over("kind", "path") > RECENT_MARKS
        is_old = pl.when(timed).then(is_old).when(kind == "mark").then(is_old_mark).otherwise(is_old_sample)
    # a mark alone does not make a step
    retained_step = pl.when(timed | (step >= (first or 0))).then(step).alias("step")
    flagged = frame.with_columns(retained_step, _old=is_old)
    return flagged.filter(~pl.col("_old")).drop("_old"), flagged.filter("_old").drop("_old")


def _build_step_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per step, for sources without step rows: their number must not be lost."""
    steps = rows.filter(pl.col("step").is_not_null()).group_by("step", maintain_order=True)
    rows = steps.agg(_step_phase()).select("step", "phase", kind=pl.lit("step"), name=pl.lit("step"))
    return select_or_null(rows, DTYPES).cast(_SCHEMA)


def _step_phase() -> pl.Expr:
    """Return the phase of a step: that of its step row, else of its other rows."""
    phase = pl.col("phase")
    step_row_phase = phase.filter(pl.col("kind") == "step").drop_nulls().first()
    return pl.coalesce(step_row_phase, phase.drop_nulls().first()).alias("phase")


def _assign_blocks(work: pl.DataFrame, size: int) -> pl.DataFrame:
    """Return step → head, the first step of its block and phase."""
    steps = work.filter(pl.col("step").is_not_null()).group_by("step").agg(_step_phase())
    return steps.select("step", head=pl.col("step").min().over(pl.col("step") // size, "phase"))


def _sum_blocks(work: pl.DataFrame) -> pl.DataFrame:
    """Return one row per block for identical work, and one for the step rows of a block and track."""
    is_step = pl.col("kind") == "step"
    keys = ("kind", "head", *_NAME_COLUMNS, pl.col("dur").is_not_null().alias("_has_duration"))
    timed = work.filter(~is_step).group_by(keys, maintain_order=True)
    steps = work.filter(is_step).group_by("kind", "head", "track", maintain_order=True)
    first = [pl.col(name).first() for name in ("name", "phase", "lens")]
    count = pl.col("count").fill_null(1)
    context = ((pl.col("context") * count).sum() / count.sum()).round()
    context = pl.when(pl.col("context").null_count() == 0).then(context).alias("context")
    frames = [
        timed.agg(*_make_totals(), _sum_if_complete("flops"), _sum_if_complete("bytes")),
        steps.agg(*_make_totals(), *first, _sum_if_complete("tokens"), context, pl.col("batch").max()),
    ]
    named = [frame.rename({"head": "step"}) for frame in frames]
    return pl.concat([select_or_null(frame, DTYPES).cast(_SCHEMA) for frame in named])


def _make_totals() -> Iterator[pl.Expr]:
    """Yield count, duration and extremes; an extreme is null unless every row has it."""
    count = pl.col("count").fill_null(1)
    yield count.sum().alias("count")
    yield _sum_if_complete("dur")
    single = pl.when(count == 1).then("dur")
    for name, extreme in (("min", pl.Expr.min), ("max", pl.Expr.max)):
        instance = pl.coalesce(name, single)
        yield pl.when(instance.null_count() == 0).then(extreme(instance)).alias(name)


def _sum_if_complete(name: str) -> pl.Expr:
    """Return the sum of a column, null unless every row has a value."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)


def _downsample_counters(samples: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the older samples of every counter in few rows: extremes per cell, means of the rest."""
    yield _EMPTY
    keys = ("kind", *_NAME_COLUMNS, "unit")
    for counter in samples.partition_by(keys, maintain_order=True):
        value = _SAMPLE_VALUES[str(counter["kind"][0])]
        yield counter if counter.height <= RECENT_SAMPLES else _reduce_to_cells(counter, value)


def _reduce_to_cells(counter: pl.DataFrame, value: str) -> pl.DataFrame:
    """Return the first sample and the lowest and highest of each cell; the others become a mean."""
    count = pl.col("count").fill_null(1)
    before = count.cum_sum() - count
    cell = pl.when(before == 0).then(-1).otherwise(before * SAMPLE_CELLS // count.sum())
    single = pl.when(count == 1).then(value)
    cells = counter.with_columns(_cell=cell, _single=single, _i=pl.int_range(pl.len()))
    extremes = (pl.col("_single").arg_min(), pl.col("_single").arg_max())
    lowest, highest = (pl.col("_i").gather(at).first().over("_cell") for at in extremes)
    role = pl.when(pl.col("_i") == lowest).then(0).when(pl.col("_i") == highest).then(1).otherwise(2)
    mean = (pl.col(value) * count).sum() / count.sum()
    other_columns = [c for c in counter.columns if c not in (value, "count")]
    parts = cells.with_columns(_role=role).group_by("_cell", "_role", maintain_order=True)
    first = (pl.col(c).first() for c in other_columns)
    sums = parts.agg(*first, mean.alias(value), count.sum().alias("count"))
    return sums.select(counter.columns).cast(_SCHEMA)
