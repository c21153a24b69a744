"""Devices of a run: group its tracks by device, restrict it to one of them."""

import polars as pl

from capture.errors import UsageError
from capture.merge_ranks import parse_rank
from capture.run import Run, drop_empty_columns


def parse_device(track: str) -> str:
    """Return the device of a track: `rank N`, or the part before its stream."""
    rank = parse_rank(track)
    return track.partition("/")[0] if rank is None else f"rank {rank}"


def group_tracks_by_device(run: Run) -> dict[str, list[str]]:
    """Return device → tracks of the GPU rows, sorted by name."""
    if not (run.has("track") and run.has("lens")):
        return {}
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel", pl.col("lens") == "gpu")
    tracks = kernels.select(pl.col("track").unique().drop_nulls()).collect()["track"].cast(pl.String)
    tracks_by_device: dict[str, list[str]] = {}
    for track in sorted(tracks):
        tracks_by_device.setdefault(parse_device(track), []).append(track)
    return tracks_by_device


def select_device(run: Run, name: str) -> Run:
    """Return the run without the GPU rows of its other devices; host rows stay.

    Raises UsageError if the run has no such device.
    """
    tracks_by_device = group_tracks_by_device(run)
    if name not in tracks_by_device:
        reason = f"it has {', '.join(tracks_by_device)}" if tracks_by_device else "its rows name no device"
        raise UsageError(f"{run.name} has no device {name!r}", why=reason)
    others = [track for device, tracks in tracks_by_device.items() if device != name for track in tracks]
    if not others:
        return run
    is_other = pl.col("track").cast(pl.String).is_in(others).fill_null(value=False)
    return run.with_events(drop_empty_columns(run.events.filter(~is_other)))
