"""The time of the kernels of each step, found in one pass over all rows and asked for again and again."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look


def kernel_sums(run: Run, look: Look, lens: str | None) -> pl.DataFrame:
    """Return `step` and `dur`, the time of its kernels under a lens in the phase, window and filter asked
    for; of ranks, which run at once, the one that takes longest stands.
    """
    if not (run.has("dur") and run.has("step")):
        return pl.DataFrame(schema={"step": pl.Int64, "dur": pl.Int64})
    if look.filter or look.focus:
        sums = _sums(run, look, lens)
    else:
        known = _known(run)
        if lens not in known:
            known[lens] = _sums(run, Look(), lens)
        sums = select.narrowed(known[lens].lazy(), run, Look(phase=look.phase, window=look.window)).collect()
    by_rank = sums.group_by("step", "rank").agg(pl.col("dur").sum())
    return by_rank.group_by("step").agg(pl.col("dur").max())


@select.once
def _known(run: Run) -> dict[str | None, pl.DataFrame]:
    """Return for each lens that was asked for the sums of all rows."""
    return {}


def _sums(run: Run, look: Look, lens: str | None) -> pl.DataFrame:
    """Return `step`, `phase`, `rank` and the `dur` of their rows; several rows may be of the same."""
    rows = select.timed(run, look, lens=lens).filter(pl.col("step").is_not_null())
    rows = rows if run.has("phase") else rows.with_columns(phase=pl.lit(None, pl.Categorical))
    ranks = select.rank_numbers(run)
    rows = select.with_rank(run, rows) if ranks else rows.with_columns(rank=pl.lit(None, pl.Int64))
    return in_stretches(rows.select("step", "phase", "rank", "dur").collect(), ranks)


def in_stretches(rows: pl.DataFrame, ranks: Sequence[int] = ()) -> pl.DataFrame:
    """Return rows (`step`, `phase`, `dur`, and `rank` where there are ranks) with those added up that stand
    together, as most of a step do.
    """
    begins = select.changes(rows["step"]) | select.changes(rows["phase"])
    stretch = begins.cast(pl.UInt32).cum_sum().set_sorted().rename("stretch")
    rows = rows.with_columns(stretch)
    if ranks:  # which take turns: one number is sooner grouped by than two
        rank = pl.col("rank").fill_null(ranks[-1] + 1) - ranks[0]
        rows = rows.with_columns(stretch=pl.col("stretch").cast(pl.Int64) * (ranks[-1] - ranks[0] + 2) + rank)
    sums = rows.group_by("stretch", maintain_order=not ranks)
    return sums.agg(pl.exclude("dur").first(), pl.col("dur").sum()).drop("stretch")
