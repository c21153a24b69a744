"""Which steps of two runs belong together: by context length where both know it, else by number."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select

WARM_FACTOR: Final = 1.5
WARM_LOOK: Final = 10
MOST_WARM: Final = 0.1


@dataclass(frozen=True, eq=False)
class Alignment:
    """Pairs of steps of one phase, and the words that say how they were made."""

    pairs: pl.DataFrame  # step_a, step_b, tokens_a, tokens_b, context
    how: str
    warm_a: int  # leading steps left out
    warm_b: int


def align(a: Run, b: Run, phase: str | None, by: str = "context") -> Alignment:
    """Steps of a phase paired, leading warm-up steps left out on either side."""
    left, warm_a = settled(steps(a, phase))
    right, warm_b = settled(steps(b, phase))
    if by == "context" and _grows(left) and _grows(right):
        pairs = left.join(right, on="context", how="inner", suffix="_b")
        if pairs.height * 2 >= min(left.height, right.height):
            return Alignment(_named(pairs), "steps of equal context length", warm_a, warm_b)
    pairs = left.with_row_index("n").join(right.with_row_index("n"), on="n", suffix="_b")
    return Alignment(_named(pairs), "steps of equal number", warm_a, warm_b)


def steps(run: Run, phase: str | None) -> pl.DataFrame:
    """step, tokens, context and kernel total of every step of a phase, in order; folded ones are no steps."""
    if not run.has("step"):
        return pl.DataFrame(
            schema={"step": pl.Int64, "tokens": pl.Int64, "context": pl.Int64, "total": pl.Int64}
        )
    rows = run.events.lazy().filter(pl.col("step").is_not_null() & select.whole(run))
    if phase is not None:
        rows = rows.filter(pl.col("phase") == phase)
    work = (
        rows.filter(pl.col("kind") == "kernel").group_by("step").agg(total=pl.col("dur").sum()).sort("step")
    )
    marks = (
        rows.filter(pl.col("kind") == "step")
        .group_by("step")
        .agg(
            (pl.col(c).max() if run.has(c) else pl.lit(None, dtype=pl.Int64)).alias(c)
            for c in ("tokens", "context")
        )
    )
    joined = work.join(marks, on="step", how="left", maintain_order="left").collect()
    return joined.select("step", pl.col("tokens").fill_null(1).clip(1), "context", "total")


def settled(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Without leading steps that took over 1.5 times the median of the ten after them, a tenth at most."""
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


def _named(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.select(
        step_a="step", step_b="step_b", tokens_a="tokens", tokens_b="tokens_b", context="context"
    )
