"""The time of the kernels of each step, found in one pass over all rows and asked for again and again."""

from functools import partial

import polars as pl

from capture import pieces
from capture.run import Run
from tracetui.analysis import kept, select, stretches
from tracetui.analysis.packed import grouped
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
            known[lens] = _sums_of_all(run, lens)
        sums = select.narrowed(known[lens].lazy(), run, Look(phase=look.phase, window=look.window)).collect()
    if not select.rank_numbers(run):
        return sums.group_by("step").agg(pl.col("dur").sum())
    by_rank = grouped(sums.lazy(), ("step", "rank"), (pl.col("dur").sum(),))
    return by_rank.group_by("step").agg(pl.col("dur").max())


@select.once
def _known(run: Run) -> dict[str | None, pl.DataFrame]:
    """Return for each lens that was asked for the sums of all rows."""
    return {}


def _sums(run: Run, look: Look, lens: str | None, events: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return `step`, `phase`, where there are ranks `rank`, and the `dur` of their rows; several rows may be
    of the same.
    """
    rows = select.timed(run, look, lens=lens, events=events).filter(pl.col("step").is_not_null())
    rows = rows if run.has("phase") else rows.with_columns(phase=pl.lit(None, pl.Categorical))
    if select.rank_numbers(run):  # which take turns
        return grouped(select.with_rank(run, rows), ("step", "phase", "rank"), (pl.col("dur").sum(),))
    return in_stretches(rows.select("step", "phase", "dur").collect())


def _sums_of_all(run: Run, lens: str | None) -> pl.DataFrame:
    """Return the same of all rows; of a run that grows each piece is added up once."""
    if not pieces.of(run) or select.rank_numbers(run):
        return _sums(run, Look(), lens)
    about = "stretches", lens or select.lens_of(run, Look())
    return pl.concat(kept.of_pieces(run, about, partial(_sums, run, Look(), lens)))


def in_stretches(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows (`step`, `phase`, `dur`) with those added up that stand together, as most of a step do."""
    begins = (select.changes(rows["step"]) | select.changes(rows["phase"])).arg_true()
    return rows[begins].with_columns(dur=stretches.sums(rows["dur"], begins))
