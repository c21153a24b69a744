"""Map tracks to ranks; merge one run per rank into one run on one clock."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from pathlib import PurePath
from typing import Final

import msgspec
import polars as pl

from capture.clean_text import clean
from capture.dense_lookup import find_distinct
from capture.errors import UsageError
from capture.import_log import ImportLog, Log
from capture.native.schema import TIME_COLUMNS
from capture.run import Run, drop_empty_columns

SAME_CLOCK_TOLERANCE_NS: Final = 1_000_000  # offsets this close stem from one clock, read twice
_RANK_TRACK: Final = re.compile(r"rank (\d{1,9})(?: / |$)")
_RANK_IN_NAME: Final = re.compile(r"rank[ _.-]?(\d{1,9})", re.IGNORECASE)
_INFERRED_STEPS: Final = "inferred_steps"  # id of the notice, and key of the run's meta
_TRACK_COLUMNS: Final = ("track", "launcher")
_NUMBER: Final = re.compile(r"\d{1,9}")


def parse_rank(track: str) -> int | None:
    """Return the rank of a track, or None if it has none."""
    match = _RANK_TRACK.match(track)
    return int(match[1]) if match else None


def prefix_track_with_rank(rank: int | None, track: str | None) -> str | None:
    """Return a track below the track of its rank, or the track itself without a rank."""
    if rank is None:
        return track
    return f"rank {rank} / {track}" if track else f"rank {rank}"


def map_tracks_to_ranks(run: Run) -> dict[str, int]:
    """Return track → rank for the tracks that have a rank."""
    if not run.has("track"):
        return {}
    tracks = find_distinct(run.events["track"]).cast(pl.String)
    return {track: rank for track in tracks if (rank := parse_rank(track)) is not None}


def merge_ranks(runs: Sequence[Run]) -> list[Run]:
    """Return one run per launch: the first runs of all ranks merged, then the second, and so on.

    A run of several ranks, and a single run, are returned unchanged.
    Raises UsageError if the ranks have different numbers of runs.
    """
    single = [run for run in runs if len(set(map_tracks_to_ranks(run).values())) < 2]
    if len(single) < 2:
        return list(runs)
    ranks, guesses = _assign_ranks(single)
    launches = _group_launches(single, ranks)
    unmerged = [run for run in runs if run not in single]
    return unmerged + [_merge_launch(launch, guesses) for launch in launches]


def are_all_ranks(runs: Sequence[Run]) -> bool:
    """Whether runs state that they are the ranks of one launch: each rank once, and none is missing."""
    world = {run.meta.get("world_size") for run in runs}
    return world == {len(runs)} and {run.meta.get("rank") for run in runs} == set(range(len(runs)))


def _group_launches(runs: Sequence[Run], ranks: Sequence[int]) -> list[dict[int, Run]]:
    """Return rank → run for each launch; raise UsageError if the numbers of runs differ."""
    by_rank: dict[int, list[Run]] = {}
    for rank, run in zip(ranks, runs, strict=True):
        by_rank.setdefault(rank, []).append(run)
    counts = {rank: len(group) for rank, group in sorted(by_rank.items())}
    if len(by_rank) < 2 or len(set(counts.values())) > 1:
        why = "there are " + ", ".join(f"{n} of rank {rank}" for rank, n in counts.items())
        todo = "name the files of one launch"
        raise UsageError("the ranks have different numbers of runs", why=why, todo=todo)
    launches = zip(*(by_rank[rank] for rank in counts), strict=True)
    return [dict(zip(counts, launch, strict=True)) for launch in launches]


def _assign_ranks(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """Return the rank of each run by its metadata, file name or position, and what is a guess."""
    ranks = [rank for run in runs if (rank := find_rank(run)) is not None]
    if len(ranks) == len(runs):
        return ranks, []
    files = list(dict.fromkeys(run.log.source for run in runs))
    by_name = parse_ranks_from_names([PurePath(file).name for file in files])
    file_ranks = by_name or list(range(len(files)))
    guess = "" if by_name else "the ranks of the files are unknown: they are numbered in order"
    rank_by_file = dict(zip(files, file_ranks, strict=True))
    return [rank_by_file[run.log.source] for run in runs], [guess] if guess else []


def find_rank(run: Run) -> int | None:
    """Return the rank of a run by its tracks or metadata, or None if it has none or several."""
    ranks = set(map_tracks_to_ranks(run).values())
    if len(ranks) > 1:
        return None
    rank = run.meta.get("rank")
    return ranks.pop() if ranks else rank if type(rank) is int and rank >= 0 else None


def parse_ranks_from_names(names: Sequence[str]) -> list[int] | None:
    """Return the number after `rank` in each name, else the only number that differs, else None."""
    ranked = [int(match[1]) for name in names if (match := _RANK_IN_NAME.search(name))]
    if len(set(ranked)) == len(names):
        return ranked
    numbers = [[int(n) for n in _NUMBER.findall(name)] for name in names]
    if len({len(row) for row in numbers}) != 1:
        return None
    differing = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    return list(differing[0]) if len(differing) == 1 and len(set(differing[0])) == len(names) else None


def _merge_launch(launch: Mapping[int, Run], guess: Sequence[str]) -> Run:
    """Return the runs of one launch as one run, on the clock of the first."""
    launch = _drop_uneven_steps(launch)
    runs = list(launch.values())
    first = runs[0]
    offsets, clocks = _compute_clock_offsets(runs)
    frames = list(map(move_to_rank_tracks, runs, launch, offsets))
    log = merge_logs(runs)
    sizes = (run.meta.get(key) for run in runs for key in ("world_size", "ranks"))
    world_size = max((w for w in sizes if type(w) is int), default=0)
    if world_size > len(runs):
        log.note("ranks_missing", f"{len(runs)} of {world_size} ranks are present")
    guesses = [*first.meta.get("guess", ()), *guess, *clocks]
    meta = {**first.meta, "ranks": len(runs), **({"guess": guesses} if guesses else {})}
    meta.pop("rank", None)
    names = list(dict.fromkeys(run.name for run in runs))
    name = first.name if len(names) == 1 else _find_common_name(names)
    events = drop_empty_columns(pl.concat(frames, how="diagonal")).rechunk()
    return Run(name, meta, events, log.freeze(), _merge_tables(launch))


def _drop_uneven_steps(launch: Mapping[int, Run]) -> Mapping[int, Run]:
    """Return the runs without steps that are inferred, if not all ranks have as many."""
    counts = {run.events["step"].n_unique() if run.has("step") else 0 for run in launch.values()}
    return launch if len(counts) == 1 else {rank: _drop_inferred_steps(run) for rank, run in launch.items()}


def _drop_inferred_steps(run: Run) -> Run:
    if _INFERRED_STEPS not in run.meta:
        return run
    meta = {key: value for key, value in run.meta.items() if key != _INFERRED_STEPS}
    log = msgspec.structs.replace(
        run.log, notices=tuple(n for n in run.log.notices if n.id != _INFERRED_STEPS)
    )
    events = run.events.filter(pl.col("kind") != "step").drop("step")
    return replace(run, meta=meta, log=log, events=events)


def _compute_clock_offsets(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """Compute the offset of each run to the clock of the first, and a note if it is a guess."""
    clocks = [find_epoch_offset(run) for run in runs]
    if not any(run.has("t") for run in runs):
        return [0] * len(runs), []
    offsets = [offset for offset in clocks if offset is not None]
    if len(offsets) == len(runs):
        differences = [offset - offsets[0] for offset in offsets]
        return [ns if abs(ns) > SAME_CLOCK_TOLERANCE_NS else 0 for ns in differences], []
    starts = [_find_start(run) for run in runs]
    guess = "the clocks of the ranks are unknown: their first events are aligned"
    return [starts[0] - start for start in starts], [guess]


def find_epoch_offset(run: Run) -> int | None:
    """Return the offset from the times of a run to Unix time, or None if the source does not report it."""
    clock = run.meta.get("clock")
    if isinstance(clock, list) and len(clock) == 2 and all(type(c) is int for c in clock):
        return int(clock[1]) - int(clock[0])
    return 0 if "clock_base_ns" in run.meta else None


def _find_start(run: Run) -> int:
    return int(run.events["t"].min() or 0) if run.has("t") else 0  # type: ignore[arg-type]


def move_to_rank_tracks(run: Run, rank: int, offset: int) -> pl.DataFrame:
    """Return the events on the tracks of their rank, shifted to the common clock."""
    events = run.events
    if offset:
        events = events.with_columns(pl.col(c) + offset for c in TIME_COLUMNS if run.has(c))
    if not run.has("track"):
        return events.with_columns(track=pl.lit(prefix_track_with_rank(rank, None), dtype=pl.Categorical()))
    columns = [c for c in _TRACK_COLUMNS if run.has(c)]
    tracks = [track for c in columns for track in find_distinct(run.events[c]).cast(pl.String)]
    renamed = {track: prefix_track_with_rank(rank, track) for track in tracks if parse_rank(track) is None}
    events = events.with_columns(pl.col(c).cast(pl.String).replace(renamed) for c in columns)
    events = events.with_columns(pl.col("track").fill_null(f"rank {rank}"))
    return events.with_columns(pl.col(columns).cast(pl.Categorical()))


def _merge_tables(launch: Mapping[int, Run]) -> dict[str, pl.DataFrame]:
    """Return the tables of all ranks by name, with a rank column."""
    tables: dict[str, list[pl.DataFrame]] = {}
    for rank, run in launch.items():
        for name, table in run.tables.items():
            ranked = table if "rank" in table.columns else table.select(pl.lit(rank).alias("rank"), pl.all())
            tables.setdefault(name, []).append(ranked)
    return {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in tables.items()}


def merge_logs(runs: Sequence[Run]) -> Log:
    """Return the import logs of all files as one."""
    logs: dict[str, ImportLog] = {run.log.source: run.log for run in runs}
    first = next(iter(logs.values()))
    parents = {str(PurePath(source).parent) for source in logs}
    source = parents.pop() if len(parents) == 1 and len(logs) > 1 else first.source
    log = Log(source, first.format)
    for each in logs.values():
        log.add(each)
    return log


def _find_common_name(names: list[str]) -> str:
    """Return the common prefix of the names, without a trailing `rank`."""
    stem = re.sub(r"[ _.-]*(rank)?[ _.-]*$", "", commonprefix(names), flags=re.IGNORECASE)  # noqa: RUF071 - names, not paths
    return clean(stem) or f"{len(names)} ranks"
