"""The trend of the rows of a log: one point per run, the changes of level, and what else changed there.

A row is judged by its contrast, its time relative to the other rows of its run: a machine slows all rows of
a run together, a change of code does not. A step is judged by its time.

A load moves some rows, and some quantiles of their steps, far more than others, and each in company. So a
contrast is the estimate of generalised least squares: of all weights that sum to one over the quantiles of a
row, and to nothing over all rows, those that leave least noise. The noise is that of differences between
neighbouring runs, which a change of level hardly moves; its correlations are shrunk as by Ledoit and Wolf
(2004), so that a log of few runs has weights, too. Each place is tried with weights that do not know the
difference there. What follows the context of the runs is taken out of each series first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracetui.analysis.frames.name_filter import match_names
from tracetui.analysis.frames.statistics import MIN_SAMPLES, Floats, invert_by_blocks
from tracetui.compare import params
from tracetui.history.change_points import (
    MIN_RUNS,
    OUTLIER_SDS,
    ChangePoint,
    Ints,
    add_further,
    compute_shift,
    confirm_by_ranks,
    find_change_points,
    is_near_any,
    remove_context,
    select_discoveries,
)
from tracetui.history.part_index import LogTables, fill_gaps, pivot_lines
from tracetui.views import Answer

METHOD_COLUMNS: Final = ("versions", "options", "lens")  # of how a run was measured
MACHINE_COLUMNS: Final = ("device", "host")
LOAD_COUNTERS: Final = ("cpu_pressure", "process_cpu_usage", "host_cpu_usage")
MACHINE_COUNTERS: Final = (
    "fixed_loop_time",
    "cpu_frequency",
    "host_cpu_usage",
    "gpu_clock",
    "gpu_temperature",
)
MIN_PRESENCE: Final = 0.8  # share of the runs in which a row must be, to be judged
SWITCHED_SHARE: Final = 0.8  # of the runs on either side that agree on a fact
MIN_COUNTER_CHANGE: Final = 0.03  # of a counter of the machine
MIN_SHARE_CHANGE: Final = 0.2  # in logs, of what the process has of the host's busy time
OWN_SDS: Final = 3.5  # of its error and the moves of others, from which a change is a row's own; the bench
QUANTILES: Final = ("median_ns", "p05_ns", "p25_ns", "p75_ns", "p95_ns")  # of the steps of a row in a run
LEFT_OUT_P: Final = 1e-4  # chance from which a row is none of the others of a row
MAX_OTHERS: Final = 24  # the largest rows; the time to compute grows with the third power
MIN_OTHERS: Final = 3  # rows by which the machine is known
MIN_CHANGE: Final = 0.01  # below this a level is the same, as in a diff
_Z_95: Final = 1.96
_MEAN_DEVIATION_TO_SD: Final = 1.2533
_ROW_SCHEMA: Final[dict[str, Any]] = {
    "row": pl.String, "phase": pl.String, "trend": pl.List(pl.Float64), "median_ns": pl.Float64,
    "change_pct": pl.Float64, "low_pct": pl.Float64, "high_pct": pl.Float64, "what": pl.String,
    "since": pl.String, "earliest": pl.String, "latest": pl.String, "p": pl.Float64, "runs_before": pl.Int64,
    "runs_after": pl.Int64, "run_before": pl.String, "run_after": pl.String, "is_new": pl.Boolean,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RowSeries:
    """The rows of one phase over the runs, in log time."""

    names: list[str]
    level: Floats  # rows × runs: medians; NaN where a run lacks the row
    quantiles: Floats  # quantiles × rows × runs, the median first; without NaN
    share: Floats  # rows: of the time
    runs: pl.DataFrame  # a line per column of `level`, with `label` and `group`: the same for repeats
    is_loaded: NDArray[np.bool_] | None = None  # runs: whether others used the processor; None: all alike
    loads: tuple[ChangePoint, ...] = ()  # changes of that

    @property
    def state(self) -> Ints:
        """Return the state of each run, quiet or loaded; -1 where these are too few to tell anything."""
        state = np.zeros(self.runs.height, dtype=np.int64)
        if self.is_loaded is not None:
            masks = [mask for mask in (~self.is_loaded, self.is_loaded) if mask.sum() >= 2 * MIN_RUNS]
            state[:] = -1
            for code, mask in enumerate(masks):
                state[mask] = code
        return state

    def choose_sides(self, change: ChangePoint) -> tuple[Ints, Ints]:
        """Return the runs before and after a change, those of the state that tells most of it."""
        runs = np.arange(change.begin, change.end)
        if not change.is_under_one_load:
            return runs[runs < change.at], runs[runs >= change.at]
        by_state = [runs[self.state[runs] == code] for code in (0, 1)]
        sides = [(some[some < change.at], some[some >= change.at]) for some in by_state]
        return max(sides, key=lambda s: len(s[0]) * len(s[1]) / max(1, len(s[0]) + len(s[1])))

    @property
    def starts(self) -> Any:
        """Return the columns at which another group begins."""
        group = self.runs["group"].to_numpy()
        return np.flatnonzero(group[1:] != group[:-1]) + 1


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of several series from run to run."""

    sd: Floats
    correlation: Floats  # shrunk
    widening: float  # of errors, because weights chosen by the same runs fit these too well
    steps: Floats  # series × differences of neighbouring runs, of which the correlation is made
    step_weight: float  # of one difference in it


def compute_trend(tables: LogTables, chosen: pl.DataFrame, pattern: str = "", recent: int = 10) -> Answer:
    """Return a line per change, the largest first, then one per row without a change.

    A change that began within the last `recent` runs, and is still there, is new.
    """
    lines = tables.read_lines(chosen["file"].to_list())
    rows = [row for phase in _list_phases(lines) for row in _judge_phase(lines, phase, chosen, recent)]
    table = pl.DataFrame(rows, schema=_ROW_SCHEMA, orient="row")
    if pattern:
        table = table.filter(match_names(table["row"], pattern))
    is_own = pl.col("what").eq_missing("code")
    table = table.sort(
        is_own,
        pl.col("p").is_null(),
        pl.col("change_pct").abs(),
        descending=[True, False, True],
        nulls_last=True,
    )
    return Answer(table, tuple(_describe(table, chosen)), ("row", "phase", "since"), leading_notes=1)


def _describe(table: pl.DataFrame, chosen: pl.DataFrame) -> Iterator[str]:
    """Yield the answer in a sentence, then how the words of `what` are meant."""
    changes = table.filter(pl.col("p").is_not_null())
    of_code = changes.filter(pl.col("what") == "code")
    if not changes.height:
        yield f"no row changed in {chosen.height} runs, with evidence"
        return
    first = (of_code if of_code.height else changes).row(0, named=True)
    more = f", and {changes.height - 1} more changes" if changes.height > 1 else ""
    where = f" in {first['phase']}" if first["phase"] else ""
    cause = "its own change" if first["what"] == "code" else f"with it: {first['what']}"
    yield f"{first['row']}{where} {first['change_pct']:+.1f}% since {first['since']} ({cause}){more}"
    yield "code: this row changed, far more than the others of its runs moved apart"
    if changes.filter(pl.col("what") != "code").height:
        yield "machine, method, all rows, drift: no evidence of a change of this row's own code"


def _list_phases(lines: pl.DataFrame) -> list[str | None]:
    """Return the phases with rows over the steps, that of most time first."""
    phases = lines.filter(pl.col("kind") == "row").group_by("phase").agg(pl.col("total_ns").sum())
    return phases.sort("total_ns", descending=True, nulls_last=True)["phase"].to_list()


def _judge_phase(
    lines: pl.DataFrame, phase: str | None, runs: pl.DataFrame, recent: int
) -> Iterator[dict[str, Any]]:
    series = build_series(lines, phase, runs)
    if series is None:
        return
    machine = _tabulate_counters(lines, runs, MACHINE_COUNTERS)
    series = _with_loads(series, _tabulate_counters(lines, runs, LOAD_COUNTERS))
    step = _find_step(lines, phase, runs)
    is_enough = runs.height >= 2 * MIN_RUNS  # for a change; one run has no noise
    changes, moves = _find_row_changes(series) if is_enough else ([[] for _ in series.names], series.level)
    changes.append(find_change_points(fill_gaps(step), series.starts) if step is not None else [])
    *by_row, of_step = select_discoveries(changes)
    lines_of_rows: list[dict[str, Any]] = []
    code_places: list[int] = []
    words_of_rows = classify_rows(by_row, series, moves, machine)
    for name, level, row_changes, words in zip(
        series.names, series.level, by_row, words_of_rows, strict=True
    ):
        code_places += [c.at for c, word in zip(row_changes, words, strict=True) if word == "code"]
        lines_of_rows += _describe_row(name, phase, series, level, row_changes, words, recent)
    yield from lines_of_rows
    if step is not None:
        words = [_classify_step(change, series, machine, code_places) for change in of_step]
        yield from _describe_row("step", phase, series, step, of_step, words, recent)


def _find_row_changes(series: RowSeries) -> tuple[list[list[ChangePoint]], Floats]:
    """Return the changes of the contrast of each row, and how each row moved over the runs.

    Runs under load and the others have levels and noise of their own: that of a busy host would hide changes
    on a quiet one. Of all runs alike only changes where the load changed are taken: they are the machine's.
    """
    alike = np.zeros(series.runs.height, dtype=np.int64)
    if series.is_loaded is None:
        return _find_changes_by_state(series, alike)
    changes, moves = _find_changes_by_state(series, alike, least_others=MAX_OTHERS)
    of_machine = [[c for c in row if is_near_any(c, series.loads)] for row in changes]
    if (series.state < 0).all():
        return of_machine, moves
    changes, moves = _find_changes_by_state(series, series.state)
    by_row = [[replace(c, is_under_one_load=True) for c in row] for row in changes]
    add_further(by_row, of_machine)
    return [sorted(row, key=lambda change: change.at) for row in by_row], moves


def _find_changes_by_state(
    series: RowSeries, state: Ints, least_others: int = MIN_OTHERS
) -> tuple[list[list[ChangePoint]], Floats]:
    """Return the changes and moves of runs of some states, each with noise of its own.

    A row that evidently changed is left out of the others of each row, whose contrast it would move, down to
    least_others. Of few rows contrasts mirror each other: then the times say which of them moved.
    """
    is_other = np.argsort(np.argsort(-series.share)) < MAX_OTHERS
    parts = [np.flatnonzero(state == code) for code in np.unique(state[state >= 0])]
    offset, noises = series.quantiles.copy(), []
    for runs in parts:
        offset[..., runs] = remove_context(offset[..., runs], series.runs["context"].to_numpy()[runs])
        offset[..., runs] -= np.median(offset[..., runs], axis=-1, keepdims=True)
        noises.append(estimate_noise(offset[..., runs].reshape(-1, len(runs))))
    widening = np.array([noise.widening for noise in noises])
    while True:
        contrast = np.zeros_like(offset[0])
        for runs, noise in zip(parts, noises, strict=True):
            contrast[:, runs] = compute_contrasts(offset[..., runs], noise, is_other)
        changes = [_find_changes(row, series.starts, widening, state) for row in contrast]
        candidates = [i for i in np.flatnonzero(is_other) if _measure_clearness(changes[i])]
        if not candidates or is_other.sum() <= least_others:
            return changes, contrast if len(contrast) > MIN_OTHERS else offset[0]
        is_other[max(candidates, key=lambda i: _measure_clearness(changes[i]))] = False


def _measure_clearness(changes: Sequence[ChangePoint]) -> float:
    """Return the largest change of a row in its errors; 0 if none is clear."""
    return max((abs(c.size) / c.error for c in changes if c.p < LEFT_OUT_P), default=0.0)


def _find_changes(contrast: Floats, starts: Any, widening: Floats, state: Ints) -> list[ChangePoint]:
    """Return the changes of one row of many: by ranks, too, since the oddest of many rows has long tails."""
    changes = find_change_points(contrast, starts, state=state)
    return [confirm_by_ranks(contrast, change, state, widening) for change in changes]


def estimate_noise(values: Floats) -> Noise:
    """Estimate the noise of some series × runs.

    Differences count as at most OUTLIER_SDS; SDs are moderated, as if each had MIN_RUNS runs of all others.
    """
    steps = np.diff(values, axis=1) / np.sqrt(2)
    n = steps.shape[1]
    sd = 1.4826 * np.median(np.abs(steps), axis=1)
    sd = np.sqrt((n * sd**2 + MIN_RUNS * np.median(sd) ** 2) / (n + MIN_RUNS)) + params.FLOAT_NOISE
    scaled = np.clip(steps / sd[:, None], -OUTLIER_SDS, OUTLIER_SDS)
    rms = np.sqrt((scaled**2).mean(axis=1)) + params.FLOAT_NOISE
    scaled /= rms[:, None]
    correlation = scaled @ scaled.T / n
    correlation += np.diag(np.diag(correlation) == 0)  # of a series that never varies
    target = np.eye(len(sd)) * np.trace(correlation) / len(sd)
    distance = ((correlation - target) ** 2).sum()
    error = (((scaled**2).sum(axis=0) ** 2).sum() - n * (correlation**2).sum()) / n**2
    weight = min(1.0, error / distance) if distance > 0 else 1.0
    shrunk = weight * target + (1 - weight) * correlation
    spent = _count_spent(scaled, weight * target[0, 0], 1 - weight) / n
    widening = float(np.sqrt((1 + spent) / (1 - spent))) if spent < 1 else np.inf
    return Noise(sd * rms, shrunk, widening, scaled, (1 - weight) / n)


def _count_spent(values: Floats, floor: float, share: float) -> float:
    """Sum the part of each eigenvalue of floor + share · correlation that is above the floor.

    The correlations of series and those of runs have the same eigenvalues: the fewer of either are enough.
    """
    fewer = values if len(values) < values.shape[1] else values.T
    shrunk = floor * np.eye(len(fewer)) + share * (fewer @ fewer.T) / values.shape[1]
    return len(fewer) - floor * float(np.trace(invert_by_blocks(shrunk, len(QUANTILES))))


def compute_contrasts(offset: Floats, noise: Noise, is_other: NDArray[np.bool_]) -> Floats:
    """Compute for each row its contrast over the runs.

    `offset` is quantiles × rows × runs. Without another row the contrast is the time itself.
    """
    count, rows, runs = offset.shape
    unit = 1 / noise.sd
    data = np.column_stack([unit, unit[:, None] * offset.reshape(-1, runs), noise.steps])
    places = np.arange(rows)[:, None] + rows * np.arange(count)  # rows × quantiles: of the series
    others = places[is_other].ravel()
    inverse = invert_by_blocks(noise.correlation[np.ix_(others, others)], count)
    weighted = inverse @ data[others]
    all_sums, step_sums = unit[others] @ weighted, noise.steps[others].T @ weighted
    contrast = np.empty((rows, runs))
    for row, cells in enumerate(places):
        if is_other[row]:
            at = np.searchsorted(np.flatnonzero(is_other), row) * count + np.arange(count)
            weight = float(unit[cells] @ inverse[np.ix_(at, at)] @ unit[cells])
            sums = unit[cells] @ weighted[at], all_sums, step_sums
        else:  # what the others leave of it needs small matrices only
            from_others = noise.correlation[np.ix_(cells, others)]
            left = np.column_stack([unit[cells], data[cells] - from_others @ weighted])
            noise_left = noise.correlation[np.ix_(cells, cells)] - from_others @ inverse @ from_others.T
            solved = np.linalg.solve(noise_left, left)
            weight, further = float(unit[cells] @ solved[:, 0]), left[:, 1:].T @ solved[:, 1:]
            sums = unit[cells] @ solved[:, 1:], all_sums + further[0], step_sums + further[1 + runs :]
        is_alone = is_other[row] and len(others) == count
        contrast[row] = sums[0][1 : 1 + runs] / sums[0][0] if is_alone else _fit_row(noise, weight, *sums)
    return contrast


def _fit_row(noise: Noise, weight: float, row_sums: Floats, all_sums: Floats, step_sums: Floats) -> Floats:
    """Return the contrast of a row by the noise without the difference at which its step is clearest.

    A change is one of the differences: weights that make it small, too, spread it over the runs around it.
    The normal equations are those of the row's own level and that of all. The first of the sums are
    coefficients, then come right-hand sides for the runs, and for the differences.
    """
    runs = len(step_sums) + 1
    values, steps = slice(1, 1 + runs), slice(1 + runs, None)
    gain = noise.step_weight / (1 - noise.step_weight * np.diagonal(step_sums[:, steps]))
    row_gain, all_gain = gain * row_sums[steps], gain * all_sums[steps]
    mixed, total = row_sums[0] + row_gain * step_sums[:, 0], all_sums[0] + all_gain * step_sums[:, 0]
    determinant = (weight + row_gain * row_sums[steps]) * total - mixed**2
    factors = np.stack([total, -mixed, total * row_gain - mixed * all_gain])[..., None] / determinant[:, None]
    contrasts = factors[0] * row_sums[values] + factors[1] * all_sums[values]
    contrasts += factors[2] * step_sums[:, values]
    before = np.arange(1, runs)
    means = contrasts.mean(axis=1)
    offset_sums = np.einsum("ij,ij->i", contrasts, np.tri(runs - 1, runs)) - before * means
    squares = np.einsum("ij,ij->i", contrasts, contrasts) - runs * means**2
    clearness = offset_sums**2 / (before * before[::-1] * np.maximum(squares, params.FLOAT_NOISE))
    is_inner = np.minimum(before, before[::-1]) >= MIN_RUNS / 2
    return np.asarray(contrasts[np.where(is_inner, clearness, 0).argmax()])


def build_series(lines: pl.DataFrame, phase: str | None, runs: pl.DataFrame) -> RowSeries | None:
    """Return the rows of a phase that most runs have; None without any."""
    rows = lines.filter((pl.col("kind") == "row") & pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    rows = rows.filter(pl.col("median_ns") > 0)
    often = rows.group_by("name").agg(pl.len(), pl.col("total_ns").mean(), samples=_count_samples().median())
    often = often.filter(pl.col("samples") >= MIN_SAMPLES)
    often = often.filter(pl.col("len") >= MIN_PRESENCE * runs.height).sort(
        "total_ns", "name", descending=[True, False], nulls_last=True
    )
    if not often.height:
        return None
    names = often["name"].to_list()
    level, *others = (pivot_lines(rows, names, runs, column) for column in QUANTILES)
    quantiles = np.log(np.stack([level, *(np.where(other > 0, other, level) for other in others)]))
    filled = np.stack([[fill_gaps(row) for row in each] for each in quantiles])
    typical = np.nanmedian(level, axis=1)
    contexts = rows.group_by("file").agg(pl.col("context").cast(pl.Float64).max())
    runs = runs.join(contexts, on="file", how="left", maintain_order="left")
    return RowSeries(names, np.log(level), filled, typical / typical.sum(), runs)


def _count_samples() -> pl.Expr:
    """Return the number of times that a median rests on: steps, or launches."""
    return pl.when(pl.col("per") == "launch").then("launches").otherwise("steps")


def _find_step(lines: pl.DataFrame, phase: str | None, runs: pl.DataFrame) -> Floats | None:
    """Return the log of the step time over the runs; None if fewer than all have it."""
    rows = lines.filter((pl.col("kind") == "phase") & pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    rows = rows.filter(pl.col("median_ns") > 0)
    step, context = (pivot_lines(rows, ["step"], runs, column)[0] for column in ("median_ns", "context"))
    return None if np.isnan(step).any() else remove_context(np.log(step), context)


def _tabulate_counters(lines: pl.DataFrame, runs: pl.DataFrame, names: Sequence[str]) -> Floats:
    """Return some counters of the machine × runs; NaN where a run lacks one."""
    return pivot_lines(lines.filter(pl.col("kind") == "machine"), names, runs, "value")


def _with_loads(series: RowSeries, counters: Floats) -> RowSeries:
    """Return the series with the runs in which other programs held the processor up, if their counters tell.

    Too many threads of the process itself raise the pressure, too, but its share of the host does not fall.
    """
    if np.isnan(counters).any():
        return series
    pressure, process, host = counters
    share = np.log(np.maximum(process, 1) / np.maximum(host, 1))
    is_loaded = pressure >= pressure.min() + params.MIN_PRESSURE_CHANGE_PCT
    if not is_loaded.any() or np.median(share[~is_loaded]) - np.median(share[is_loaded]) < MIN_SHARE_CHANGE:
        return series
    changes = find_change_points(is_loaded.astype(np.float64), series.starts)
    return replace(series, is_loaded=is_loaded, loads=tuple(changes))


def _describe_row(
    name: str, phase: str | None, series: RowSeries, level: Floats, changes: Sequence[ChangePoint],
    words: Sequence[str], recent: int,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a line per change of a row, or one without a change."""
    trend = [None if np.isnan(x) else float(np.exp(x)) for x in level]
    newest = next((t for t in trend[::-1] if t), None)
    line: dict[str, Any] = {"row": name, "phase": phase, "trend": trend, "median_ns": newest}
    labels, files = series.runs["label"], series.runs["file"]
    count = 0
    for change, what in zip(changes, words, strict=True):
        if abs(np.expm1(change.size)) < MIN_CHANGE:
            continue
        count += 1
        low, high = (100 * float(np.expm1(change.size + s * _Z_95 * change.error)) for s in (-1, 1))
        yield line | {
            "change_pct": 100 * float(np.expm1(change.size)), "low_pct": low, "high_pct": high, "what": what,
            "since": labels[change.at], "earliest": labels[change.earliest], "latest": labels[change.latest],
            "p": change.p, "runs_before": change.at - change.begin, "runs_after": change.end - change.at,
            "run_before": files[change.at - 1], "run_after": files[change.at],
            "is_new": change is changes[-1] and change.end == len(level) and change.end - change.at <= recent,
        }  # fmt: skip
    if not count:
        yield line


def classify_rows(
    by_row: Sequence[Sequence[ChangePoint]], series: RowSeries, moves: Floats, machine: Floats
) -> list[list[str]]:
    """Classify the changes of all rows: method, machine, all rows, drift; code if the others moved far less.

    A load moves all rows, and some of them apart from the others. The clearest changes are classified first:
    a row whose code changed there says nothing of a load.
    """
    words = [[""] * len(changes) for changes in by_row]
    code: list[tuple[int, int]] = []  # places and rows
    places = [(row, i) for row, changes in enumerate(by_row) for i in range(len(changes))]
    for row, i in sorted(places, key=lambda p: -abs(by_row[p[0]][p[1]].size) / by_row[p[0]][p[1]].error):
        change = by_row[row][i]
        if word := _find_other_cause(change, series):
            words[row][i] = word
            continue
        rows_of_code = [other for at, other in code if change.earliest - 1 <= at <= change.latest + 1]
        before, after = series.choose_sides(change)
        shifts = np.median(moves[:, after], axis=1) - np.median(moves[:, before], axis=1)
        others = np.abs(np.delete(shifts, [row, *rows_of_code] if len(moves) > MIN_OTHERS else row))
        typical = _MEAN_DEVIATION_TO_SD * float(others.mean()) if len(others) else 0.0
        if abs(change.size) > OWN_SDS * np.hypot(change.error, typical):
            words[row][i] = "code"
            code.append((change.at, row))
        else:
            words[row][i] = "machine" if _has_machine_changed(machine, before, after) else "all rows"
    return words


def _classify_step(
    change: ChangePoint, series: RowSeries, machine: Floats, code_places: Sequence[int]
) -> str:
    """Classify the change of a step: code only if that of a row there is."""
    if word := _find_other_cause(change, series):
        return word
    if any(change.earliest - 1 <= place <= change.latest + 1 for place in code_places):
        return "code"
    return "machine" if _has_machine_changed(machine, *series.choose_sides(change)) else "all rows"


def _find_other_cause(change: ChangePoint, series: RowSeries) -> str:
    """Find what else is another there, or that it is a drift; empty if nothing is."""
    for word, columns in (("method", METHOD_COLUMNS), ("machine", MACHINE_COLUMNS)):
        if any(_is_switched(series.runs[column], change) for column in columns):
            return word
    if not change.is_under_one_load and is_near_any(change, series.loads):
        return "machine"
    return "drift" if change.is_drift else ""


def _is_switched(values: pl.Series, change: ChangePoint) -> bool:
    """Return whether a fact of the runs is another one from about the change on."""
    before, after = (values[side].drop_nulls() for side in change.sides)
    if not len(before) or not len(after):
        return False
    earlier, later = before.mode().sort()[0], after.mode().sort()[0]
    shares = (before == earlier).mean(), (after == later).mean()
    return bool(earlier != later) and all(share is not None and share > SWITCHED_SHARE for share in shares)


def _has_machine_changed(machine: Floats, before: Ints, after: Ints) -> bool:
    """Return whether a counter of the machine moved by MIN_COUNTER_CHANGE, evidently."""
    for counter in machine:
        size, error = compute_shift(counter, before, after)
        level = float(np.nanmedian(counter[before])) if (~np.isnan(counter[before])).any() else 0.0
        if level and abs(size / level) > MIN_COUNTER_CHANGE and abs(size) > 3 * error:
            return True
    return False
