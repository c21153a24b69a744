"""Ranks: whose a track is, and how runs of one rank each become one run, a track a rank, on one clock."""

import re
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from pathlib import PurePath
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.importlog import ImportLog, Log
from capture.native.ops import track_of
from capture.run import Run, tidy
from capture.text import clean

SAME_CLOCK_NS: Final = 1_000_000  # clocks of one machine are read no closer together
_TRACK: Final = re.compile(r"rank (\d{1,9})(?: / |$)")
_NAMED: Final = re.compile(r"rank[ _.-]?(\d{1,9})", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,9}")


def rank_of(track: str) -> int | None:
    """The rank whose track this is."""
    found = _TRACK.match(track)
    return int(found[1]) if found else None


def ranks(run: Run) -> dict[str, int]:
    """The tracks of a run that are a rank's, each with its rank."""
    if not run.has("track"):
        return {}
    tracks = run.events["track"].unique().cast(pl.String).drop_nulls()
    found = {track: rank_of(track) for track in tracks}
    return {track: rank for track, rank in found.items() if rank is not None}


def merged(runs: Sequence[Run]) -> list[Run]:
    """One run for every launch: the first of each rank's runs together, then the second, and so on.

    What holds several ranks already stays as it is, and so does a run alone.
    """
    single = [run for run in runs if len(set(ranks(run).values())) < 2]
    if len(single) < 2:
        return list(runs)
    numbers, guess = _numbered(single)
    turns: dict[int, list[Run]] = {}
    for number, run in zip(numbers, single, strict=True):
        turns.setdefault(number, []).append(run)
    counts = {number: len(own) for number, own in sorted(turns.items())}
    if len(turns) < 2 or len(set(counts.values())) > 1:
        why = "there are " + ", ".join(f"{n} of rank {number}" for number, n in counts.items())
        todo = "name those that belong together"
        raise UsageError("these runs are not one of each rank", why=why, todo=todo)
    launches = zip(*(turns[number] for number in counts), strict=True)
    whole = [run for run in runs if run not in single]
    return whole + [_one(dict(zip(counts, launch, strict=True)), guess) for launch in launches]


def _numbered(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """The rank of each run: what it says, else what its file's name says, else its place; and any guess."""
    told = [_told(run) for run in runs]
    known = [number for number in told if number is not None]
    if len(known) == len(runs):
        return known, []
    files = list(dict.fromkeys(run.log.source for run in runs))
    by_name = _from_names([PurePath(file).name for file in files])
    numbers = by_name or list(range(len(files)))
    guess = "" if by_name else "which file is of which rank is not told: they are numbered in their order"
    place = dict(zip(files, numbers, strict=True))
    return [place[run.log.source] for run in runs], [guess] if guess else []


def _told(run: Run) -> int | None:
    own = set(ranks(run).values())
    stated = run.meta.get("rank")
    return own.pop() if own else stated if type(stated) is int and stated >= 0 else None


def _from_names(names: Sequence[str]) -> list[int] | None:
    """What stands behind `rank`, else the one number in which the names differ."""
    ranked = [int(found[1]) for name in names if (found := _NAMED.search(name))]
    if len(set(ranked)) == len(names):
        return ranked
    numbers = [[int(n) for n in _NUMBER.findall(name)] for name in names]
    if len({len(own) for own in numbers}) != 1:
        return None
    differing = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    return list(differing[0]) if len(differing) == 1 and len(set(differing[0])) == len(names) else None


def _one(launch: Mapping[int, Run], guess: Sequence[str]) -> Run:
    """The runs of one launch as one: moments on the clock of the first."""
    runs = list(launch.values())
    first = runs[0]
    shifts, clocks = _shifts(runs)
    frames = [_placed(run, rank, by) for (rank, run), by in zip(launch.items(), shifts, strict=True)]
    log = _account(runs)
    said = (run.meta.get(key) for run in runs for key in ("world_size", "ranks"))
    world = max((w for w in said if type(w) is int), default=0)
    if world > len(runs):
        log.note("ranks_missing", f"{len(runs)} of {world} ranks are here")
    guesses = [*first.meta.get("guess", ()), *guess, *clocks]
    meta = {**first.meta, "ranks": len(runs), **({"guess": guesses} if guesses else {})}
    meta.pop("rank", None)
    names = list(dict.fromkeys(run.name for run in runs))
    name = first.name if len(names) == 1 else _common(names)
    return Run(name, meta, tidy(pl.concat(frames, how="diagonal")).rechunk(), log.freeze(), _tables(launch))


def _shifts(runs: Sequence[Run]) -> tuple[list[int], list[str]]:
    """What brings the moments of each run to the clock of the first, and what of it is a guess."""
    known = [_behind_epoch(run) for run in runs]
    if not any(run.has("t") for run in runs):
        return [0] * len(runs), []
    offsets = [o for o in known if o is not None]
    if len(offsets) == len(runs):
        apart = [o - offsets[0] for o in offsets]
        return [a if abs(a) > SAME_CLOCK_NS else 0 for a in apart], []
    starts = [_start(run) for run in runs]
    return [starts[0] - s for s in starts], [
        "the clocks of the ranks are not told: their first events are put at the same moment"
    ]


def _behind_epoch(run: Run) -> int | None:
    """What a moment of the run lacks to Unix time, where the source tells it."""
    clock = run.meta.get("clock")
    if isinstance(clock, list) and len(clock) == 2 and all(type(c) is int for c in clock):
        return int(clock[1]) - int(clock[0])
    return 0 if "clock_base_ns" in run.meta else None


def _start(run: Run) -> int:
    return int(run.events["t"].min() or 0) if run.has("t") else 0  # type: ignore[arg-type]


def _placed(run: Run, rank: int, shift: int) -> pl.DataFrame:
    """The events under their rank's tracks, on the common clock."""
    events = run.events
    if shift and run.has("t"):
        events = events.with_columns(pl.col("t") + shift)
    if not run.has("track"):
        return events.with_columns(track=pl.lit(track_of(rank, None), dtype=pl.Categorical()))
    renamed = {t: t if rank_of(t) is not None else track_of(rank, t) for t in _tracks(run)}
    track = pl.col("track").cast(pl.String).replace(renamed).fill_null(f"rank {rank}")
    return events.with_columns(track.cast(pl.Categorical()))


def _tracks(run: Run) -> list[str]:
    return run.events["track"].unique().cast(pl.String).drop_nulls().to_list()


def _tables(launch: Mapping[int, Run]) -> dict[str, pl.DataFrame]:
    """What the sources tabulated, a column telling whose it is."""
    tables: dict[str, list[pl.DataFrame]] = {}
    for rank, run in launch.items():
        for name, table in run.tables.items():
            mine = table if "rank" in table.columns else table.select(pl.lit(rank).alias("rank"), pl.all())
            tables.setdefault(name, []).append(mine)
    return {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in tables.items()}


def _account(runs: Sequence[Run]) -> Log:
    """The accounts of all files as one."""
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


def _common(names: list[str]) -> str:
    """What the names begin with, without the word before their number."""
    stem = re.sub(r"[ _.-]*(rank)?[ _.-]*$", "", commonprefix(names), flags=re.IGNORECASE)  # noqa: RUF071 - names, not paths
    return clean(stem) or f"{len(names)} ranks"
