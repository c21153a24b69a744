"""Align the steps of several runs: by context length where all know it, else by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.compare.at_once import of_each
from tracetui.analysis.step_sums import in_stretches
from tracetui.look import Look

WARM_FACTOR: Final = 1.5
WARM_LOOK: Final = 10
MOST_WARM: Final = 0.1


@dataclass(frozen=True, eq=False)
class Alignment:
    """Steps of one phase that all runs have, and how they were brought together, in words."""

    sides: tuple[pl.DataFrame, ...]  # of each run: step, tokens; row i of one belongs to row i of all
    how: str
    warm: tuple[int, ...]  # of each run: leading steps left out

    @property
    def height(self) -> int:
        """Return how many steps are aligned."""
        return self.sides[0].height


def align(runs: Sequence[Run], phase: str | None, by: str = "context") -> Alignment:
    """Return the steps of a phase that belong together, without the leading warm-up steps of each run."""
    trimmed = of_each(lambda run: settled(steps(run, phase)), runs)
    tables, warm = [table for table, _ in trimmed], tuple(n for _, n in trimmed)
    fewest = min(table.height for table in tables)
    if by == "context" and all(map(_grows, tables)):
        shared = set.intersection(*(set(table["context"]) for table in tables))
        if len(shared) * 2 >= fewest:
            kept = pl.col("context").is_in(sorted(shared))
            return Alignment(
                tuple(_named(t.filter(kept).sort("context")) for t in tables),
                "steps of equal context length",
                warm,
            )
    return Alignment(tuple(_named(t.head(fewest)) for t in tables), "steps of equal number", warm)


def steps(run: Run, phase: str | None) -> pl.DataFrame:
    """Return step, tokens, context and kernel total of each step of a phase, in order; no folded steps."""
    if not (run.has("step") and run.has("dur")):
        return pl.DataFrame(
            schema={"step": pl.Int64, "tokens": pl.Int64, "context": pl.Int64, "total": pl.Int64}
        )
    asked = Look(phase=phase)
    work, marks = (select.narrowed(table.lazy(), run, asked) for table in _by_phase(run))
    totals = work.group_by("step").agg(pl.col("total").sum()).sort("step")
    largest = marks.group_by("step").agg(pl.col("tokens", "context").max())
    joined = totals.join(largest, on="step", how="left", maintain_order="left").collect()
    return joined.select("step", pl.col("tokens").fill_null(1).clip(1), "context", "total")


@select.once
def _by_phase(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the `total` of the kernels, and the marks, of each `step` and `phase` in parts."""
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.Categorical).alias("phase")
    rows = run.events.lazy().filter(pl.col("step").is_not_null() & select.whole(run))
    kernels = rows.filter(pl.col("kind") == "kernel").select("step", phase, "dur").collect()
    said = (pl.col(c) if run.has(c) else pl.lit(None, pl.Int64).alias(c) for c in ("tokens", "context"))
    marks = rows.filter(pl.col("kind") == "step").select("step", phase, *said)
    return in_stretches(kernels).rename({"dur": "total"}), marks.collect()


def settled(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the steps without warm-up, and how many were left out."""
    per_token = (table["total"] / table["tokens"]).to_list()
    most = int(len(per_token) * MOST_WARM)
    warm = 0
    while warm < most:
        after = sorted(per_token[warm + 1 : warm + 1 + WARM_LOOK])
        if not after or per_token[warm] <= WARM_FACTOR * after[len(after) // 2]:
            break
        warm += 1
    return table.slice(warm), warm


def _grows(table: pl.DataFrame) -> bool:
    context = table["context"]
    return table.height > 0 and context.null_count() == 0 and context.n_unique() == table.height


def _named(table: pl.DataFrame) -> pl.DataFrame:
    return table.select("step", "tokens")
