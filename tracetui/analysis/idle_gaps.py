"""Gaps: the stretches in which nothing of a device ran, between its first and its last kernel."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.laid_out import Axis
from tracetui.analysis.lookup import looked_up
from tracetui.look import Look

GAP: Final = "gap"
_SCHEMA: Final = {"track": pl.Categorical(), "t": pl.Int64(), "end": pl.Int64()}


def idle_gaps(run: Run, look: Look, least: float, window: tuple[int, int] | None) -> pl.DataFrame:
    """Return every gap of a length or more under the lens in use that reaches into a window, else of the
    whole run, by start: `t`, `end`, and the `track` of its device that has most kernels. Streams of one
    device fill each other's gaps.
    """
    found = _of_run(run) if look.lens is None else _gaps(run, select.lens_of(run, look))
    found = found.filter(pl.col("end") - pl.col("t") >= least)
    if window is not None:
        found = found.filter((pl.col("t") < window[1]) & (pl.col("end") > window[0]))
    return found.sort("t", "end", "track")


def with_causes(run: Run, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with `name`, which tells the cause where one is known, and `by`, the stack that waited."""
    from tracetui.analysis import gap_causes  # numpy loads with the first question

    least, lowest, highest = (gaps["end"] - gaps["t"]).min(), gaps["t"].min(), gaps["t"].max()
    near = (pl.col("gap_ns") >= pl.lit(least, pl.Int64)) & pl.col("begin").is_between(
        pl.lit(lowest, pl.Int64), pl.lit(highest, pl.Int64)
    )  # few of millions
    known = [gap_causes.gaps(run).filter(near), gap_causes.between(run).filter(near)]
    told = pl.concat(known).select(
        "begin",
        "end",
        pl.col("by").cast(pl.String),
        cause=pl.when(pl.col("cause") != gap_causes.UNKNOWN).then(pl.col("cause").cast(pl.String)),
    )
    told = told.unique(["begin", "end"], keep="first", maintain_order=True)
    found = gaps.join(
        told, left_on=["t", "end"], right_on=["begin", "end"], how="left", maintain_order="left"
    )
    return found.with_columns(name=pl.concat_str(pl.lit(GAP), "cause", separator=": ", ignore_nulls=True))


@select.once
def _of_run(run: Run) -> pl.DataFrame:
    return _gaps(run, select.lens_of(run, Look()))


def _gaps(run: Run, lens: str | None) -> pl.DataFrame:
    """Return every gap under a lens, device by device."""
    if not (run.has("t") and run.has("dur")):
        return pl.DataFrame(schema=_SCHEMA)
    kernel = (pl.col("kind") == "kernel") & (pl.col("dur") > 0) & pl.col("t").is_not_null()
    if lens:
        kernel &= pl.col("lens") == lens if run.has("lens") else pl.lit(value=False)
    rows = run.events.lazy().filter(kernel)
    track = pl.coalesce(*select.have(run, ("track", "lens")), "kind").cast(pl.Categorical())
    rows = rows.select("t", "dur", track=track)
    sizes = rows.group_by("track").agg(pl.len()).with_columns(name=pl.col("track").cast(pl.String))
    table = sizes.sort("len", "name", descending=[True, False]).collect()
    largest: dict[str, str] = {}
    for name in table["name"]:
        largest.setdefault(_device(run, name), name)
    names = pl.Series("track", [largest[_device(run, name)] for name in table["name"]], dtype=pl.String)
    standing = looked_up("track", table["track"], names.cast(pl.Categorical()))
    axis = Axis.of(rows.with_columns(standing).collect(), ["track"])
    found = axis.rows.select("track", axis.gaps, end="t").filter(pl.col("gap") > 0)
    return found.select("track", t=pl.col("end") - pl.col("gap"), end="end")


def _device(run: Run, track: str) -> str:
    """Return the device of a track: a rank, or what stands before the stream."""
    ranks = select.rank_tracks(run)
    if track in ranks:
        return f"rank {ranks[track]}"
    return track.rpartition("/stream")[0] or track.partition("/")[0]
