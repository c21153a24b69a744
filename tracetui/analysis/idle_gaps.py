"""Gaps: the stretches in which nothing of a device ran, between its first and its last kernel."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import gpu_time, select
from tracetui.look import Look

GAP: Final = "gap"
_SCHEMA: Final = {"track": pl.Categorical(), "t": pl.Int64(), "end": pl.Int64()}


def idle_gaps(run: Run, look: Look) -> pl.DataFrame:
    """Return every gap of the whole run under the lens in use, by start: `t`, `end`, and the `track` of its
    device that has most kernels. Streams of one device fill each other's gaps.
    """
    if look.lens is None:
        return _of_run(run)
    return _gaps(run, select.lens_of(run, look))


@select.once
def _of_run(run: Run) -> pl.DataFrame:
    return _gaps(run, select.lens_of(run, Look()))


def _gaps(run: Run, lens: str | None) -> pl.DataFrame:
    if not (run.has("t") and run.has("dur")):
        return pl.DataFrame(schema=_SCHEMA)
    kernel = (pl.col("kind") == "kernel") & (pl.col("dur") > 0) & pl.col("t").is_not_null()
    rows = run.events.lazy().filter(kernel, *([pl.col("lens") == lens] if lens else []))
    track = pl.coalesce(*select.have(run, ("track", "lens")), "kind").cast(pl.Categorical())
    rows = rows.select("t", "dur", track=track)
    sizes = rows.group_by("track").agg(pl.len()).with_columns(pl.col("track").cast(pl.String))
    tracks = sizes.sort("len", "track", descending=[True, False]).collect()["track"].to_list()
    devices: dict[str, str] = {}
    for name in tracks:
        devices.setdefault(_device(run, name), name)
    largest = {name: devices[_device(run, name)] for name in tracks}
    if len(devices) > 1:
        names = pl.col("track").cast(pl.String).replace(largest).cast(pl.Categorical())
        found = gpu_time.gaps(rows.with_columns(track=names), ["track"])
    else:
        only = pl.lit(next(iter(devices.values()), ""), pl.Categorical())
        found = gpu_time.gaps(rows.drop("track")).with_columns(track=only)
    return found.select("track", t="begin", end="end").sort("t", "end", "track")


def _device(run: Run, track: str) -> str:
    """Return the device of a track: a rank, or what stands before the stream."""
    ranks = select.rank_tracks(run)
    if track in ranks:
        return f"rank {ranks[track]}"
    return track.rpartition("/stream")[0] or track.partition("/")[0]
