"""Align the steps of several runs, read their sizes, and tabulate the time of each row in each step.

Steps are aligned by context length if the runs report it, else by number. Tables are dense for one run
(`tabulate_per_step`) and sparse for a pair (`SparseTimes`).
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from capture.tasks import run_parallel
from tracetui.analysis.frames import ragged, selection
from tracetui.analysis.frames.ragged import Bools, EncodedColumn, Ints, compute_sort_order
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.statistics import MIN_SAMPLES, Floats
from tracetui.analysis.time.step_table import sum_adjacent_rows
from tracetui.compare import params
from tracetui.compare.pairing.run_work import ONNX, count_numbers, list_image_counts, read_shape_sizes
from tracetui.look import Look

RowNames = Sequence[Sequence[str]]  # per row of a table: its names in a run
NO_NAME: Final = "–"
_INSERTED_NUMBER: Final = r"_token_\d+"  # of ONNX, which may be another one in each run
STEP_SIZES: Final = ("batch", "context", "tokens")  # of a step, as its source reports them
_EMPTY_SCHEMA: Final = dict.fromkeys(("name", "phase", "step", "dur", "count"), pl.Int64)


@dataclass(frozen=True, eq=False)
class StepAlignment:
    """Steps of one phase that all runs have."""

    sides: tuple[pl.DataFrame, ...]  # per run: step, tokens; equal row numbers are aligned
    how: str  # what the aligned steps have in common: `steps of equal number`
    warm_up_counts: tuple[int, ...]  # per run: leading steps that were excluded

    @property
    def height(self) -> int:
        """Number of aligned steps."""
        return self.sides[0].height


def align_steps(runs: Sequence[Run], phase: str | None, by: str = "context") -> StepAlignment:
    """Align the steps of a phase, without the leading warm-up steps of each run.

    `by` is context or step. Contexts are used if at least half of the steps of the shortest run share theirs.
    """
    return _align_tables([partial(compute_step_totals, run, phase) for run in runs], by)


def align_timed_steps(runs: Sequence[Run], phase: str | None, by: str = "context") -> StepAlignment:
    """Align all steps of a phase whose time is known, also those of which no kernel was recorded."""
    return _align_tables([partial(compute_step_times, run, phase) for run in runs], by)


def _align_tables(compute: Sequence[Callable[[], pl.DataFrame]], by: str) -> StepAlignment:
    totals = run_parallel(compute)
    tables, warm_up_counts = zip(*map(drop_warm_up, totals), strict=True)
    height, how = min(table.height for table in tables), "steps of equal number"
    sides = [table.head(height) for table in tables]
    if by == "context" and all(map(_has_distinct_contexts, tables)):
        shared = set.intersection(*(set(table["context"]) for table in tables))
        if len(shared) * 2 >= height:
            is_shared, how = pl.col("context").is_in(sorted(shared)), "steps of equal context length"
            sides = [table.filter(is_shared).sort("context") for table in tables]
    return StepAlignment(tuple(side.select("step", "tokens") for side in sides), how, warm_up_counts)


def compute_step_totals(run: Run, phase: str | None) -> pl.DataFrame:
    """Compute step, tokens, context and total (ns of kernels) per step of a phase, without folded steps."""
    if not (run.has("step") and run.has("dur")):
        return pl.DataFrame(schema=dict.fromkeys(("step", "tokens", "context", "total"), pl.Int64))
    of_phase = Look(phase=phase)
    kernels, marks = (selection.filter_rows(table.lazy(), run, of_phase) for table in _sum_by_phase(run))
    totals = kernels.group_by("step").agg(pl.col("total").sum()).sort("step")
    sizes = marks.group_by("step").agg(pl.col("tokens", "context").max())
    joined = totals.join(sizes, on="step", how="left", maintain_order="left").collect()
    return joined.select("step", pl.col("tokens").fill_null(1).clip(1), "context", "total")


def compute_step_times(run: Run, phase: str | None) -> pl.DataFrame:
    """Compute the table of `compute_step_totals` by the time of whole steps, if few of them have kernels.

    Steps whose kernels were timed one by one, which takes longer, are then left out.
    """
    totals = compute_step_totals(run, phase)
    if not (run.has("step") and run.has("dur")):
        return totals
    _, marks = _sum_by_phase(run)
    timed = selection.filter_rows(marks.lazy(), run, Look(phase=phase)).drop_nulls("dur")
    steps = timed.group_by("step").agg(pl.col("tokens", "context", "dur").max()).sort("step")
    others = steps.join(totals.lazy(), on="step", how="anti", maintain_order="left").collect()
    if others.height <= totals.height:
        return totals
    return others.select("step", pl.col("tokens").fill_null(1).clip(1), "context", total="dur")


def read_step_sizes(run: Run, steps: pl.Series, phase: str | None = None) -> dict[str, list[int]]:
    """Read the sizes of these steps that the run reports for all of them.

    A prefill whose sequences have equally many tokens reports the context behind it, which is its prompt.
    """
    columns = [c for c in STEP_SIZES if run.has(c)]
    if not run.has("step") or not columns or steps.is_empty():
        return {}
    marks = run.events.lazy().filter((pl.col("kind") == "step") & pl.col("step").is_in(steps.implode()))
    table = marks.group_by("step").agg(pl.col(columns).max()).collect()
    sizes = {c: table[c].to_list() for c in columns if not table[c].null_count()}
    return _divide_by_sequences(sizes) if phase == "prefill" and "context" not in sizes else sizes


def _divide_by_sequences(sizes: dict[str, list[int]]) -> dict[str, list[int]]:
    """Replace tokens by the context of each sequence, if all sequences of a step have equally many."""
    pairs = [*zip(sizes.get("tokens", ()), sizes.get("batch", ()), strict=False)]
    if not pairs or not all(batch and tokens % batch == 0 for tokens, batch in pairs):
        return sizes
    return {"batch": sizes["batch"], "context": [tokens // batch for tokens, batch in pairs]}


def read_sources(
    sides: Sequence[tuple[Run, pl.DataFrame]], phase: str | None
) -> list[list[dict[str, list[int]]]]:
    """Read the sizes of both sides' steps: those that they report, of their shapes, images and metadata."""
    reported = [read_step_sizes(run, side["step"], phase) for run, side in sides]
    shapes = [read_shape_sizes(run, phase, side["step"]) for run, side in sides]
    images = ({"batch": list_image_counts(run, phase)} for run, _ in sides)
    batches = ([n] if type(n := run.meta.get("batch")) is int else [] for run, _ in sides)
    return [reported, shapes, [*images], [{"batch": batch} for batch in batches]]


def list_operands(run: Run, steps: pl.Series) -> dict[str, list[str]]:
    """List the sizes that each node of ONNX gets in these steps, in their order; empty for other runs."""
    if run.meta.get("producer") != ONNX or not (run.has("shape") and run.has("step")):
        return {}
    rows = run.events.filter((pl.col("kind") == "kernel") & pl.col("step").is_in(steps.implode()))
    rows = rows.drop_nulls("shape").sort("step", "t")
    name = pl.col("name").cast(pl.String).str.replace(_INSERTED_NUMBER, "")
    shapes = rows.group_by(name, maintain_order=True)
    return dict(shapes.agg(pl.col("shape").cast(pl.String)).iter_rows())


def find_other_operands(
    x: Mapping[str, Sequence[str]], y: Mapping[str, Sequence[str]]
) -> tuple[str, str, str] | None:
    """Find in what the operands of the nodes of one graph differ: batch, or the first node with others.

    None for another graph, and if no node gets more or fewer numbers.
    """
    changed = [name for name in x if x.keys() == y.keys() and _have_other_sizes(x[name], y[name])]
    pairs = {name: pair for name in changed if all(pair := (_find_main(x[name]), _find_main(y[name])))}
    if not changed or (len(pairs) == len(changed) and _are_renamed(pairs)):
        return None
    if batches := _find_batches(pairs):
        return "batch", *batches
    name = next((name for name, pair in pairs.items() if "=" not in pair[0]), changed[0])
    before, after = x[name], y[name]
    return f"operands of {name}", before[len(before) // 2], after[len(after) // 2]


def _are_renamed(pairs: Mapping[str, tuple[str, str]]) -> bool:
    """Whether operands have the same numbers of elements on both sides, under other names."""
    before, after = (sorted(map(count_numbers, side)) for side in zip(*pairs.values(), strict=True))
    return before == after


def _find_batches(pairs: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Find the two sizes of the first dimension, if all operands differ in it alone; None of recurrent nodes.

    Those have their steps in it.
    """
    sizes = [(a.split("×"), b.split("×")) for a, b in pairs.values() if "=" not in a + b]
    batches = {(a[0], b[0]) for a, b in sizes}
    is_recurrent = any(re.search("GRU|LSTM|RNN", name) for name in pairs)
    is_batch = len(batches) == 1 and all(a[1:] == b[1:] for a, b in sizes) and not is_recurrent
    return batches.pop() if is_batch else None


def _have_other_sizes(x: Sequence[str], y: Sequence[str]) -> bool:
    """Whether a node gets other numbers of elements in most steps, or on average if they vary.

    Numbers that grow, as a cache does, are no others if most of them are those of the other run.
    """
    main, main_b = _find_main(x), _find_main(y)
    if main and main_b:
        return count_numbers(main) != count_numbers(main_b)
    means = [sum(map(count_numbers, shapes)) / len(shapes) for shapes in (x, y)]
    is_shifted = 2 * len({*x} & {*y}) >= min(len({*x}), len({*y}))
    return not is_shifted and max(means) >= params.STEP_SIZE_RATIO * min(means)


def _find_main(shapes: Sequence[str]) -> str:
    """Find the sizes that most of these are; empty if they vary."""
    ((shape, count),) = Counter(shapes).most_common(1)
    return shape if 2 * count > len(shapes) else ""


def sum_tokens(run: Run, phase: str | None) -> int:
    """Sum the tokens that the steps of a phase read, as the run reports them; 0 if it does not."""
    if not (run.has("step") and run.has("dur")):
        return 0
    _, marks = _sum_by_phase(run)
    return int(marks.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.Categorical)))["tokens"].sum())


def has_phases_within_steps(run: Run) -> bool:
    """Whether most steps hold kernels of several phases, as those of training: their time is no phase's."""
    if not (run.has("step") and run.has("dur") and run.has("phase")):
        return False
    kernels, _ = _sum_by_phase(run)
    counts = kernels.drop_nulls("phase").group_by("step").agg(count=pl.col("phase").n_unique())["count"]
    return 2 * int((counts > 1).sum()) > counts.len()


@cache_per_run
def _sum_by_phase(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sum the kernels of adjacent rows by step and phase; also select the step events, with their sizes."""
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.Categorical).alias("phase")
    rows = run.events.lazy().filter(pl.col("step").is_not_null() & selection.is_unfolded(run))
    kernels = rows.filter(pl.col("kind") == "kernel").select("step", phase, "dur").collect()
    sizes = (pl.col(c) if run.has(c) else pl.lit(None, pl.Int64).alias(c) for c in ("tokens", "context"))
    marks = rows.filter(pl.col("kind") == "step").select("step", phase, "dur", *sizes)
    return sum_adjacent_rows(kernels).rename({"dur": "total"}), marks.collect()


def drop_warm_up(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop leading steps that are slower per token than those after them; also return how many."""
    per_token = (table["total"] / table["tokens"]).to_list()
    limit = int(len(per_token) * params.MAX_WARM_UP_SHARE)
    count = 0
    while count < limit:
        following = sorted(per_token[count + 1 : count + 1 + MIN_SAMPLES])
        if not following or per_token[count] <= params.WARM_UP_RATIO * following[len(following) // 2]:
            break
        count += 1
    return table.slice(count), count


def _has_distinct_contexts(table: pl.DataFrame) -> bool:
    context = table["context"]
    return table.height > 0 and context.null_count() == 0 and context.n_unique() == table.height


@dataclass(frozen=True, eq=False)
class SparseTimes:
    """Rows × steps of a pair of runs in COO form: a run of thousands of kernels has few of them in a step.

    Cells are sorted by row and step. A cell has time on either side; NaN is a step excluded on that side, and
    a step excluded on both sides has no cells.
    """

    row: Ints
    step: Ints
    a: Floats  # ns
    b: Floats
    step_count: int
    valid_steps: Ints  # per row: steps that are not excluded on both sides

    @classmethod
    def from_dense(cls, a: Floats, b: Floats) -> "SparseTimes":
        """Convert dense tables, rows × steps."""
        excluded = np.isnan(a) & np.isnan(b)
        row, step = np.nonzero(((a != 0) | (b != 0)) & ~excluded)
        valid_steps = a.shape[1] - excluded.sum(axis=1)
        return cls(row, step, a[row, step], b[row, step], a.shape[1], valid_steps)

    @property
    def row_count(self) -> int:
        """Number of rows, with or without cells."""
        return len(self.valid_steps)

    def select_steps(self, selected: Bools) -> "SparseTimes":
        """Exclude all steps that are not selected."""
        if selected.all():
            return self
        cells = selected[self.step]
        columns = {c: getattr(self, c)[cells] for c in ("row", "step", "a", "b")}
        return replace(self, **columns, valid_steps=self.valid_steps - int((~selected).sum()))

    def compute_cliffs_delta(self) -> Floats:
        """Compute P(b > a) − P(b < a) over all pairs of steps, −1 to 1; an excluded step counts as 0 ns."""
        n, rows = self.step_count, self.row_count
        if not n:
            return np.full(rows, np.nan)
        a, b = np.nan_to_num(self.a), np.nan_to_num(self.b)
        counts = np.bincount(self.row, minlength=rows)
        absent = n - counts  # steps without time on either side
        zeros_a, zeros_b = (np.bincount(self.row[side == 0], minlength=rows) for side in (a, b))
        pairs_of_absent = absent * (counts - zeros_b / 2) + absent * zeros_a / 2 + absent * absent / 2
        return np.asarray(2 * (ragged.count_pairs_above(a, b, counts) + pairs_of_absent) / (n * n) - 1)


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The timed rows of a run: each has a key (`make_row_key`), a phase, a step and a time."""

    run: Run
    look: Look
    name: EncodedColumn  # the keys
    phase: EncodedColumn
    step: EncodedColumn
    dur: Ints
    count: Ints  # launches

    def list_names(self, phase: str | None) -> set[str]:
        """List the keys of the rows of a phase."""
        codes = np.unique(self.name.codes[self.index_phase(phase)])
        return {str(n) for n in _fill_missing_names(self.name).gather(codes)}

    def index_phase(self, phase: str | None) -> Ints | slice:
        """Index the rows of a phase."""
        return self._rows_by_phase.get(phase, slice(0))

    @cached_property
    def _rows_by_phase(self) -> Mapping[str | None, Ints | slice]:
        values, codes = self.phase.values.cast(pl.String).to_list(), self.phase.codes
        counts = np.bincount(codes, minlength=len(values))
        phases = [(phase, int(n)) for phase, n in zip(values, counts, strict=True) if n]
        if len(phases) < 2:
            return {phase: slice(None) for phase, _ in phases}
        parts = np.split(compute_sort_order(codes, len(values)), np.cumsum([n for _, n in phases])[:-1])
        return {phase: rows for (phase, _), rows in zip(phases, parts, strict=True)}


def select_keyed_rows(run: Run, look: Look) -> pl.LazyFrame:
    """Select timed rows with `name` (of the look's grouping), `phase` and `rank`; each may be null.

    Only comparisons that keep ranks apart fill `rank`.
    """
    rows = selection.select_timed(run, replace(look, per="total", sort=None, limit=None))
    group = look.group or "name"
    name = pl.col(group) if run.has(group) else pl.lit(None, pl.String)
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.String)
    rows = rows.with_columns(name.alias("name"), phase.alias("phase"))
    if look.terms.ranks_apart:
        return selection.with_rank(run, rows)
    return rows.with_columns(rank=pl.lit(None, pl.Int64))


def make_row_key(name: str, rank: int | None) -> str:
    """Make the key of a row's samples: its name, with its rank if ranks are kept apart."""
    return name if rank is None else f"{name}\n{rank}"


def build_step_times(run: Run, look: Look) -> StepTimes:
    """Build the timed rows of a run in one pass over its events."""
    rows = pl.DataFrame(schema=_EMPTY_SCHEMA)
    if run.has("dur"):
        count = pl.col("count").fill_null(1) if run.has("count") else pl.lit(1)
        step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
        key = ["name", "rank"] if look.terms.ranks_apart else ["name"]
        keyed = select_keyed_rows(run, look)
        rows = keyed.select(*key, "phase", step.alias("step"), "dur", count=count).collect()
    name, phase, steps = (EncodedColumn.from_series(rows[c]) for c in ("name", "phase", "step"))
    if "rank" in rows.columns:
        name = _encode_row_keys(name, EncodedColumn.from_series(rows["rank"]))
    dur, counts = (rows[c].cast(pl.Int64).to_numpy() for c in ("dur", "count"))
    return StepTimes(run, look, name, phase, steps, dur, counts)


def _encode_row_keys(name: EncodedColumn, rank: EncodedColumn) -> EncodedColumn:
    codes, names, ranks = name.encode_pairs(rank)
    keys = map(make_row_key, _fill_missing_names(name).gather(names), rank.values.gather(ranks))
    return EncodedColumn(pl.Series([*keys, None], dtype=pl.String), codes)


def build_sparse_times(
    times: Sequence[StepTimes], phase: str | None, sides: Sequence[pl.DataFrame], names: Sequence[RowNames]
) -> SparseTimes:
    """Build rows × aligned steps of both sides, in ns per token: `tabulate_per_step` in sparse form."""
    rows, steps = len(names[0]), sides[0].height

    def sum_side(side: int) -> tuple[Ints, Floats]:
        indexed = _index_rows_and_steps(times[side], phase, sides[side], names[side])
        cells, sums = _sum_cells(*indexed, (rows, steps))
        return cells, sums / sides[side]["tokens"].to_numpy()[cells % max(1, steps)]

    (cells_a, a), (cells_b, b) = run_parallel([partial(sum_side, side) for side in range(2)])
    cells = cells_a
    if not np.array_equal(cells_a, cells_b):
        cells = np.union1d(cells_a, cells_b)
        a, b = _scatter_values(cells, cells_a, a), _scatter_values(cells, cells_b, b)
    return SparseTimes(*np.divmod(cells, max(1, steps)), a, b, steps, np.full(rows, steps))


def _sum_cells(row: Ints, step: Ints, dur: Ints, shape: tuple[int, int]) -> tuple[Ints, Floats]:
    """Sum durations by cell; return sorted flat indices (row · steps + step) and sums of cells with time."""
    rows, steps = shape
    if rows * steps <= params.SPARSE_CELLS_PER_TIMED_ROW * len(dur):
        sums = np.bincount(row * steps + step, weights=dur, minlength=rows * steps)
        cells = np.asarray(np.flatnonzero(sums), dtype=np.int64)
        return cells, np.asarray(sums[cells], dtype=np.float64)
    from scipy.sparse import coo_array

    table = coo_array((dur, (row, step)), shape=shape).tocsr()
    table.sum_duplicates()
    row_starts = np.repeat(np.arange(rows, dtype=np.int64) * steps, np.diff(table.indptr))
    return row_starts + table.indices, table.data.astype(np.float64)


def _scatter_values(cells: Ints, own_cells: Ints, values: Floats) -> Floats:
    """Scatter the values of some cells over all cells, 0 elsewhere."""
    out = np.zeros(len(cells))
    out[np.searchsorted(cells, own_cells)] = values
    return out


def tabulate_per_step(times: StepTimes, phase: str | None, aligned: pl.DataFrame, names: RowNames) -> Floats:
    """Tabulate rows × aligned steps in ns per token; 0 if a row is absent from a step."""
    row, step, dur = _index_rows_and_steps(times, phase, aligned, names)
    out = np.bincount(row * aligned.height + step, weights=dur, minlength=len(names) * aligned.height)
    return np.asarray(out.reshape(len(names), aligned.height) / aligned["tokens"].to_numpy())


def _index_rows_and_steps(
    times: StepTimes, phase: str | None, aligned: pl.DataFrame, names: RowNames
) -> tuple[Ints, Ints, Ints]:
    """Index table row and aligned step of each timed row of a phase that has both; add its duration."""
    in_phase = times.index_phase(phase)
    steps = times.step.map_codes(_index_in(times.step.values, aligned["step"]), in_phase)
    rows, dur = _index_rows(times, phase, names), times.dur[in_phase]
    has_both = (rows >= 0) & (steps >= 0)
    return (rows, steps, dur) if has_both.all() else (rows[has_both], steps[has_both], dur[has_both])


def _index_in(values: pl.Series, steps: pl.Series) -> Ints:
    """Index each value among the steps; −1 if it is not among them."""
    indices = steps.rename("value").to_frame().with_row_index("index")
    joined = values.rename("value").to_frame().join(indices, on="value", how="left", maintain_order="left")
    return np.asarray(joined["index"].cast(pl.Int64).fill_null(-1).to_numpy(), dtype=np.int64)


def tabulate_per_launch(times: StepTimes, phase: str | None, names: RowNames) -> Floats:
    """Tabulate rows × 1: mean ns per launch; 0 if a row is absent, NaN if it has time but no launches."""
    rows, in_phase = _index_rows(times, phase, names), times.index_phase(phase)
    has_row = rows >= 0
    sums, counts = (
        np.bincount(rows[has_row], weights=column[in_phase][has_row], minlength=len(names))
        for column in (times.dur, times.count)
    )
    is_present = np.bincount(rows[has_row], minlength=len(names)) > 0
    mean = np.divide(sums, counts, out=np.full(len(names), np.nan), where=counts > 0)
    return np.where(is_present, mean, 0.0)[:, None]


def count_launches(times: StepTimes, phase: str | None, names: RowNames) -> Ints:
    """Count the launches of each row."""
    rows = _index_rows(times, phase, names)
    has_row = rows >= 0
    count = times.count[times.index_phase(phase)][has_row]
    return np.bincount(rows[has_row], weights=count, minlength=len(names)).astype(np.int64)


def compute_launch_errors(times: StepTimes, phase: str | None, names: RowNames) -> Floats:
    """Compute the standard error of each row's mean ns per launch; infinite for too few launches.

    It is large if one launch is not like the others, as the first call of a program.
    """
    rows, in_phase = _index_rows(times, phase, names), times.index_phase(phase)
    has_launches = (rows >= 0) & (times.count[in_phase] > 0)
    rows, dur, count = (x[has_launches] for x in (rows, times.dur[in_phase], times.count[in_phase]))
    launches, sums = (np.bincount(rows, weights=x, minlength=len(names)) for x in (count, dur))
    mean = sums / np.maximum(launches, 1)
    squares = np.bincount(rows, weights=count * (dur / count - mean[rows]) ** 2, minlength=len(names))
    is_enough = launches >= MIN_SAMPLES
    return np.where(is_enough, np.sqrt(squares / np.maximum(1, launches * (launches - 1))), np.inf)


def _index_rows(times: StepTimes, phase: str | None, names: RowNames) -> Ints:
    """Index the table row of each timed row of a phase; −1 if it has none."""
    index = {name: i for i, group in enumerate(names) for name in group}
    indices = [index.get(name, -1) for name in _fill_missing_names(times.name)]
    return times.name.map_codes(indices, times.index_phase(phase))


def _fill_missing_names(names: EncodedColumn) -> pl.Series:
    return names.values.cast(pl.String).fill_null(NO_NAME)
