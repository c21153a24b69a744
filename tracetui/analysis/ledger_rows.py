"""The rows that a ledger accounts for: those of the steps under one lens, on the busiest device."""

from typing import Final

import polars as pl

from capture.classify.short_names import short_names
from capture.run import Run
from tracetui.analysis import device_time, gpu_time, select
from tracetui.analysis.lookup import looked_up
from tracetui.look import Look

_INTS: Final = ("step", "t", "count", "layer")
_WORK: Final = ("flops", "bytes")
_MOST: Final = 4096  # names that are shortened; those beyond weigh nothing


def timed_rows(run: Run, look: Look) -> pl.LazyFrame:
    """Return the rows of a phase and window under one lens, those of its steps where it has steps: step, t,
    dur, count, layer, op (else the short name), flops, bytes, class, track; `device` on a GPU's timeline, of
    which only the busiest in each step is kept; `asked`, whether a filter and focus ask for a row.
    """
    rows = _asked(run, look)
    ints = [(pl.col(c) if run.has(c) else pl.lit(None, pl.Int64)).alias(c) for c in _INTS]
    work = [(pl.col(c) if run.has(c) else pl.lit(None, pl.Float64)).alias(c) for c in _WORK]
    kept = select.have(run, ("track", *gpu_time.LAUNCH))
    on_gpu = select.lens_of(run, look) == "gpu" and device_time.watched(run)
    kind = gpu_time.class_of(run) if on_gpu else pl.lit(gpu_time.COMPUTE, gpu_time.CLASS)
    rows = rows.select("dur", "asked", _op(run).alias("op"), *ints, *work, *kept, kind.alias("class"))
    rows = rows.with_columns(pl.col("count").fill_null(1))
    if device_time.has_steps(run):
        rows = rows.filter(pl.col("step").is_not_null())  # what lies between steps is no part of one
    return of_the_busiest(run, device_time.with_device(run, rows)) if on_gpu else rows


def _asked(run: Run, look: Look) -> pl.LazyFrame:
    """Return all rows of the phase and window, with `asked`, whether the filter and the focus fit."""
    whole = Look(phase=look.phase, window=look.window, lens=look.lens)
    rows = select.timed(run, whole).filter(pl.col("dur") > 0)
    if not (look.filter or look.focus):
        return rows.with_columns(asked=pl.lit(value=True))
    rows = rows.with_row_index("row")
    asked = select.narrowed(rows, run, look).select("row", asked=pl.lit(value=True))
    return rows.join(asked, on="row", how="left").with_columns(pl.col("asked").fill_null(value=False))


def _op(run: Run) -> pl.Expr:
    """Return the op of each row, and where it has none its short name."""
    table = _names(run)
    if run.has("op") and not table["open"].any():
        return pl.col("op")
    whole = table["name"].cast(pl.String).to_list()
    beyond = set(whole[_MOST:])
    short = {name: as_ for name, as_ in short_names(whole[:_MOST]).items() if as_ not in beyond}
    shown = pl.Series("op", [short.get(name, name) for name in whole], dtype=pl.String)
    name = looked_up("name", table["name"], shown.cast(pl.Categorical()))
    return pl.coalesce("op", name) if run.has("op") else name


@select.once
def _names(run: Run) -> pl.DataFrame:
    """Return each `name` and whether it leaves the op of some row `open`; those that do come first, and among
    them those whose rows take the longest.
    """
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & (pl.col("dur") > 0))
    left_open = pl.col("op").is_null().any() if run.has("op") else pl.lit(value=True)
    sums = rows.group_by("name").agg(pl.col("dur").sum(), open=left_open).collect().drop_nulls("name")
    return sums.sort("open", "dur", "name", descending=[True, True, False]).select("name", "open")


def of_the_busiest(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows (`step`, `device`) of the device that stands for their step; those of a step without
    windows all.
    """
    chosen = device_time.busiest(run)
    if "step" not in chosen.columns:
        return (
            rows.filter(pl.col("device").eq_missing(pl.lit(chosen["device"][0]))) if chosen.height else rows
        )
    if (only := device_time.only_device(run)) is not None:
        return rows.filter(pl.col("device") == only)
    stands = chosen.lazy().select("step", stands="device")
    rows = rows.join(stands, on="step", how="left", maintain_order="left")
    here = pl.col("stands").is_null() | pl.col("stands").eq_missing(pl.col("device"))
    return rows.filter(here).drop("stands")
