"""Align the steps of several runs: by context length if all report it, else by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from capture.parallel import run_parallel
from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.time.step_table import sum_adjacent_rows
from tracetui.compare import params
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class StepAlignment:
    """Steps of one phase that all runs have."""

    sides: tuple[pl.DataFrame, ...]  # per run: step, tokens; row i of each belongs together
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
    totals = run_parallel([partial(compute_step_totals, run, phase) for run in runs])
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


@cache_per_run
def _sum_by_phase(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sum the kernels of adjacent rows by step and phase; also select the step events, with their sizes."""
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.Categorical).alias("phase")
    rows = run.events.lazy().filter(pl.col("step").is_not_null() & selection.is_unfolded(run))
    kernels = rows.filter(pl.col("kind") == "kernel").select("step", phase, "dur").collect()
    sizes = (pl.col(c) if run.has(c) else pl.lit(None, pl.Int64).alias(c) for c in ("tokens", "context"))
    marks = rows.filter(pl.col("kind") == "step").select("step", phase, *sizes)
    return sum_adjacent_rows(kernels).rename({"dur": "total"}), marks.collect()


def drop_warm_up(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop leading steps that are slower per token than those after them; also return how many."""
    per_token = (table["total"] / table["tokens"]).to_list()
    limit = int(len(per_token) * params.MAX_WARM_UP_SHARE)
    count = 0
    while count < limit:
        following = sorted(per_token[count + 1 : count + 1 + params.WARM_UP_LOOKAHEAD_STEPS])
        if not following or per_token[count] <= params.WARM_UP_RATIO * following[len(following) // 2]:
            break
        count += 1
    return table.slice(count), count


def _has_distinct_contexts(table: pl.DataFrame) -> bool:
    context = table["context"]
    return table.height > 0 and context.null_count() == 0 and context.n_unique() == table.height
