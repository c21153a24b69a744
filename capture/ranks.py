"""Ranks: which track is which rank's, and how runs of one rank each become one run on one clock."""

import re
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from pathlib import PurePath
from typing import Final

import polars as pl

from capture.classify.positions import distinct
from capture.errors import UsageError
from capture.importlog import ImportLog, Log
from capture.native.ops import track_of
from capture.native.schema import TIMES
from capture.run import Run, tidy
from capture.text import clean

SAME_CLOCK_NS: Final = 1_000_000  # offsets this close are of one clock, read twice
_TRACK: Final = re.compile(r"rank (\d{1,9})(?: / |$)")
_NAMED: Final = re.compile(r"rank[ _.-]?(\d{1,9})", re.IGNORECASE)
_TRACKS: Final = ("track", "launcher")  # columns that name a track
_NUMBER: Final = re.compile(r"\d{1,9}")


def rank_of(track: str) -> int | None:
    """Return the rank that a track belongs to; None where it belongs to none."""
    match = _TRACK.match(track)
    return int(match[1]) if match else None


def ranks(run: Run) -> dict[str, int]:
    """Return track → rank for the tracks of a run that belong to one."""
    if not run.has("track"):
        return {}
    tracks = distinct(run.events["track"]).cast(pl.String)
    return {track: rank for track in tracks if (rank := rank_of(track)) is not None}


def merge_ranks(runs: Sequence[Run]) -> list[Run]:
    """Return one run for every launch: the first of each rank's runs together, then the second, and so on.

    A run that holds several ranks already stays as it is, and so does one alone. Raises UsageError where
    the ranks do not have as many runs each.
    """
    single = [run for run in runs if len(set(ranks(run).values())) < 2]
    if len(single) < 2:
        return list(runs)
    numbers, guess = _assign_ranks(single)
    launches = _launches(single, numbers)
    whole = [run for run in runs if run not in single]
    return whole + [_merge_launch(launch, guess) for launch in launches]


def _launches(runs: Sequence[Run], numbers: Sequence[int]) -> list[dict[int, Run]]:
    """Return rank → run for every launch; raise UsageError where the ranks do not have as many runs each."""
    by_rank: dict[int, list[Run]] = {}
    for number, run in zip(numbers, runs, strict=True):
        by_rank.setdefault(number, []).append(run)
    counts = {number: len(own) for number, own in sorted(by_rank.items())}
    if len(by_rank) < 2 or len(set(counts.values())) > 1:
        why = "there are " + ", ".join(f"{n} of rank {number}" for number, n in counts.items())
        todo = "name those that belong together"
        raise UsageError("these runs are not one of each rank", why=why, todo=todo)
    launches = zip(*(by_rank[number] for number in counts), strict=True)
    return [dict(zip(counts, launch, strict=True)) for launch in launches]


def _assign_ranks(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """Return the rank of each run, as it, its file's name or its place says, and what of that is a guess."""
    stated = [rank for run in runs if (rank := stated_rank(run)) is not None]
    if len(stated) == len(runs):
        return stated, []
    files = list(dict.fromkeys(run.log.source for run in runs))
    by_name = ranks_in_names([PurePath(file).name for file in files])
    numbers = by_name or list(range(len(files)))
    guess = "" if by_name else "which file is of which rank is not told: they are numbered in their order"
    place = dict(zip(files, numbers, strict=True))
    return [place[run.log.source] for run in runs], [guess] if guess else []


def stated_rank(run: Run) -> int | None:
    """Return the one rank that a run says it is of; None where it says none, or holds several."""
    own = set(ranks(run).values())
    if len(own) > 1:
        return None
    stated = run.meta.get("rank")
    return own.pop() if own else stated if type(stated) is int and stated >= 0 else None


def ranks_in_names(names: Sequence[str]) -> list[int] | None:
    """Return the number behind `rank` in each name, else the one in which the names differ; else None."""
    ranked = [int(match[1]) for name in names if (match := _NAMED.search(name))]
    if len(set(ranked)) == len(names):
        return ranked
    numbers = [[int(n) for n in _NUMBER.findall(name)] for name in names]
    if len({len(own) for own in numbers}) != 1:
        return None
    differing = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    return list(differing[0]) if len(differing) == 1 and len(set(differing[0])) == len(names) else None


def _merge_launch(launch: Mapping[int, Run], guess: Sequence[str]) -> Run:
    """Return the runs of one launch as one, on the clock of the first."""
    runs = list(launch.values())
    first = runs[0]
    shifts, clocks = _shifts(runs)
    frames = [on_rank_tracks(run, rank, by) for (rank, run), by in zip(launch.items(), shifts, strict=True)]
    log = merge_logs(runs)
    sizes = (run.meta.get(key) for run in runs for key in ("world_size", "ranks"))
    world = max((w for w in sizes if type(w) is int), default=0)
    if world > len(runs):
        log.note("ranks_missing", f"{len(runs)} of {world} ranks are here")
    guesses = [*first.meta.get("guess", ()), *guess, *clocks]
    meta = {**first.meta, "ranks": len(runs), **({"guess": guesses} if guesses else {})}
    meta.pop("rank", None)
    names = list(dict.fromkeys(run.name for run in runs))
    name = first.name if len(names) == 1 else _common_name(names)
    events = tidy(pl.concat(frames, how="diagonal")).rechunk()
    return Run(name, meta, events, log.freeze(), _merge_tables(launch))


def _shifts(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """Return what to add to the times of each run to be on the first's clock, and what of it is a guess."""
    clocks = [to_epoch(run) for run in runs]
    if not any(run.has("t") for run in runs):
        return [0] * len(runs), []
    offsets = [o for o in clocks if o is not None]
    if len(offsets) == len(runs):
        apart = [o - offsets[0] for o in offsets]
        return [a if abs(a) > SAME_CLOCK_NS else 0 for a in apart], []
    starts = [_start(run) for run in runs]
    return [starts[0] - s for s in starts], [
        "the clocks of the ranks are not told: their first events are put at the same moment"
    ]


def to_epoch(run: Run) -> int | None:
    """Return what to add to the times of a run for Unix time; None where the source does not say."""
    clock = run.meta.get("clock")
    if isinstance(clock, list) and len(clock) == 2 and all(type(c) is int for c in clock):
        return int(clock[1]) - int(clock[0])
    return 0 if "clock_base_ns" in run.meta else None


def _start(run: Run) -> int:
    return int(run.events["t"].min() or 0) if run.has("t") else 0  # type: ignore[arg-type]


def on_rank_tracks(run: Run, rank: int, shift: int) -> pl.DataFrame:
    """Return the events under their rank's tracks, moved to the common clock."""
    events = run.events
    if shift:
        events = events.with_columns(pl.col(c) + shift for c in TIMES if run.has(c))
    if not run.has("track"):
        return events.with_columns(track=pl.lit(track_of(rank, None), dtype=pl.Categorical()))
    columns = [c for c in _TRACKS if run.has(c)]
    renamed = {track: _under(rank, track) for c in columns for track in _words(run, c)}
    events = events.with_columns(pl.col(c).cast(pl.String).replace(renamed) for c in columns)
    events = events.with_columns(pl.col("track").fill_null(f"rank {rank}"))
    return events.with_columns(pl.col(columns).cast(pl.Categorical()))


def _under(rank: int, track: str) -> str | None:
    return track if rank_of(track) is not None else track_of(rank, track)


def _words(run: Run, column: str) -> list[str]:
    return distinct(run.events[column]).cast(pl.String).to_list()


def _merge_tables(launch: Mapping[int, Run]) -> dict[str, pl.DataFrame]:
    """Return the tables of all ranks by name, with a column of the rank."""
    tables: dict[str, list[pl.DataFrame]] = {}
    for rank, run in launch.items():
        for name, table in run.tables.items():
            mine = table if "rank" in table.columns else table.select(pl.lit(rank).alias("rank"), pl.all())
            tables.setdefault(name, []).append(mine)
    return {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in tables.items()}


def merge_logs(runs: Sequence[Run]) -> Log:
    """Return the import logs of all files as one."""
    logs: dict[str, ImportLog] = {run.log.source: run.log for run in runs}
    first = next(iter(logs.values()))
    parents = {str(PurePath(source).parent) for source in logs}
    source = parents.pop() if len(parents) == 1 and len(logs) > 1 else first.source
    log = Log(source, first.format)
    for each in logs.values():
        log.read, log.repaired = log.read + each.read, log.repaired + each.repaired
        log.dropped += each.dropped
        for n in each.notices:
            log.note(n.id, n.message, count=n.count, severity=n.severity)
    return log


def _common_name(names: list[str]) -> str:
    """Return what the names begin with, without the word before their number."""
    stem = re.sub(r"[ _.-]*(rank)?[ _.-]*$", "", commonprefix(names), flags=re.IGNORECASE)  # noqa: RUF071 - names, not paths
    return clean(stem) or f"{len(names)} ranks"
