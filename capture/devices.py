"""Devices: whose a track is, and a run cut to what concerns one of several."""

from dataclasses import replace

import polars as pl

from capture.errors import UsageError
from capture.ranks import rank_of
from capture.run import Run, tidy


def device_of(track: str) -> str:
    """Return the device of a track: its rank, else what stands before its stream."""
    rank = rank_of(track)
    return track.partition("/")[0] if rank is None else f"rank {rank}"


def devices(run: Run) -> dict[str, list[str]]:
    """Return the devices of a run's GPU rows in the order of their names, each with its tracks."""
    if not (run.has("track") and run.has("lens")):
        return {}
    worked = run.events.lazy().filter(pl.col("kind") == "kernel", pl.col("lens") == "gpu")
    tracks = worked.select(pl.col("track").unique().drop_nulls()).collect()["track"].cast(pl.String)
    found: dict[str, list[str]] = {}
    for track in sorted(tracks):
        found.setdefault(device_of(track), []).append(track)
    return found


def of_device(run: Run, name: str) -> Run:
    """Return the run without the rows of its other devices; the host's stay. Raise UsageError where no device
    has the name.
    """
    known = devices(run)
    if name not in known:
        named = f"it has {', '.join(known)}" if known else "its rows name no device"
        raise UsageError(f"{run.name} has no device {name!r}", why=named)
    others = [track for device, tracks in known.items() if device != name for track in tracks]
    if not others:
        return run
    left_out = pl.col("track").cast(pl.String).is_in(others).fill_null(value=False)
    return replace(run, events=tidy(run.events.filter(~left_out)))
