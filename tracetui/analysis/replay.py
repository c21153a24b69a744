"""A replay of host and device with other durations: when everything would have started and ended.

The host calls in its order, each call as long after the one before it as it was; a call that waited for the
device returns as long after the end of what it waited for as it did. A kernel starts when it is launched, its
stream is free, and what it depended on has ended: the later of its launch and the usual delay, and the end of
what let it start and the gap that was between them. Where the host told a stream to wait for others, it waits
for all that they had been given until then.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from tracetui.analysis.releases import NONE, released

EVERYTHING: Final = "DeviceSynchronize"  # in the name of a call that waits for all streams


@dataclass(frozen=True, eq=False)
class Recorded:
    """What happened: rows in the order of their starts, and the waits of the host in the order of their ends.

    `thread` is the number of the host's thread that launched a row, NONE where the launch is not known; `own`
    the row before it on its stream, `by` the one that let it start, NONE where the host did, and `joined`
    those on other streams that it was told to wait for. Of a wait, `awaited` is the row whose end it waited
    for, NONE for none; `every` are all rows that it may have waited for.
    """

    start: Sequence[int]
    end: Sequence[int]
    launch: Sequence[int]
    thread: Sequence[int]
    own: Sequence[int]
    by: Sequence[int]
    joined: dict[int, list[int]] = field(default_factory=dict)
    waits: Sequence[tuple[int, int, int, int, list[int]]] = ()  # thread, since, until, awaited, every
    delay: int = 0  # from a launch to its start where nothing stands before it


@dataclass
class _State:
    """How far the replay has come."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    earlier: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # thread → from when, by how much
    waits: int = 0  # that were replayed


def replay(was: Recorded, durations: Sequence[int], *, host: bool = True) -> tuple[list[int], list[int]]:
    """Return new starts and ends of the rows, had they taken these durations; without `host` as if all had
    been launched long before.
    """
    state = _State()
    for row, start in enumerate(was.start):
        while host and state.waits < len(was.waits) and was.waits[state.waits][2] <= start:
            _return_from_wait(was, state)
        begins = _begin(was, state, row, host=host)
        state.starts.append(begins)
        state.ends.append(begins + durations[row])
    return state.starts, state.ends


def _begin(was: Recorded, state: _State, row: int, *, host: bool) -> int:
    """Return when a row starts."""
    start, by, own = was.start[row], was.by[row], was.own[row]
    launched = was.thread[row] != NONE
    earlier = _earlier(state, was.thread[row], was.launch[row]) if launched else 0
    held: list[int] = [state.ends[other] for other in (own, *was.joined.get(row, ())) if other != NONE]
    if by == NONE:
        return max([start - earlier, *held]) if host or not held else max(held)
    ready = max([state.ends[by] + start - was.end[by], *held])
    if not (launched and host):
        return ready
    return max(ready, was.launch[row] - earlier + min(was.delay, start - was.launch[row]))


def _earlier(state: _State, thread: int, at: int) -> int:
    """Return by how much earlier than it did a thread comes to a moment of its own."""
    for since, much in reversed(state.earlier.get(thread, ())):
        if since <= at:
            return much
    return 0


def _return_from_wait(was: Recorded, state: _State) -> None:
    """Replay the next wait of the host."""
    thread, since, until, awaited, every = was.waits[state.waits]
    state.waits += 1
    if awaited == NONE or awaited >= len(state.ends):
        return
    after = until - max(since, was.end[awaited])
    ends = max(state.ends[row] for row in (awaited, *every))
    returns = max(since - _earlier(state, thread, since), ends) + after
    state.earlier.setdefault(thread, []).append((until, until - returns))


def recorded(rows: pl.DataFrame, waits: pl.DataFrame, joins: pl.DataFrame, delay: int) -> Recorded:
    """Return rows (`t`, `dur`, perhaps `track`, `launch`, `launcher`) by start as a replay takes them, with
    the waits of the host and its `joins` (`launcher`, `at`), which tell a stream to wait for others.
    """
    known = "launch" in rows.columns and "launcher" in rows.columns
    found = released(rows if known else rows.drop("launch", strict=False), delay)
    thread = pl.col("launcher").to_physical().cast(pl.Int64) if known else pl.lit(NONE, pl.Int64)
    launch = pl.col("launch") if known else pl.lit(None, pl.Int64)
    stream = pl.col("track").to_physical().cast(pl.Int64) if "track" in rows.columns else pl.lit(0, pl.Int64)
    table = rows.select(
        start="t",
        end=pl.col("t") + pl.col("dur"),
        launch=launch.fill_null(0),
        thread=pl.when(launch.is_not_null()).then(thread).fill_null(NONE),
        on=stream.fill_null(NONE),
    ).with_columns(
        own=found["own"], by=found.select(pl.when(~pl.col("late")).then("by").fill_null(NONE))["by"]
    )
    given = _Given(table)
    columns = {c: table[c].to_list() for c in ("start", "end", "launch", "thread", "own", "by")}
    return Recorded(
        **columns,
        joined=_joined(table, joins, given),
        waits=_waits(table, waits, given),
        delay=delay,
    )


class _Given:
    """What each stream was given, in the order of the launches."""

    def __init__(self, table: pl.DataFrame) -> None:
        rows = table.with_row_index("row").filter(pl.col("thread") != NONE)
        parts = rows.sort("launch", "row").partition_by("on", as_dict=True)
        self.streams = {
            int(on): (part["launch"].to_list(), part["row"].to_list(), part["end"].to_list())
            for (on,), part in parts.items()
        }

    def until(self, launched: int, ended: int, *, but: int | None = None) -> list[int]:
        """Return the last row of each stream, except one, that was launched before one moment, if it had
        ended by another.
        """
        found = []
        for on, (launches, rows, ends) in self.streams.items():
            last = bisect_left(launches, launched) - 1
            if on != but and last >= 0 and ends[last] <= ended:
                found.append(rows[last])
        return found


def _joined(table: pl.DataFrame, joins: pl.DataFrame, given: _Given) -> dict[int, list[int]]:
    """Return for each row of a stream that was told to wait the last rows that others had been given then."""
    if joins.is_empty() or len(given.streams) < 2:
        return {}
    launches = table.filter(pl.col("thread") != NONE).select("thread", "launch").unique()
    launches = launches.sort("thread", "launch")
    calls = joins.select("at", thread=pl.col("launcher").to_physical().cast(pl.Int64)).sort("at")
    told = launches.sort("launch").join_asof(
        calls, left_on="launch", right_on="at", by="thread", check_sortedness=False
    )
    told = told.sort("thread", "launch").with_columns(before=pl.col("launch").shift(1).over("thread"))
    told = told.filter(pl.col("at") > pl.col("before").fill_null(pl.col("at") - 1)).select(
        "thread", "launch", "at"
    )
    rows = table.with_row_index("row").join(told, on=["thread", "launch"])
    return {
        row: given.until(at, start, but=on)
        for row, on, at, start in rows.select("row", "on", "at", "start").rows()
    }


def _waits(
    table: pl.DataFrame, waits: pl.DataFrame, given: _Given
) -> list[tuple[int, int, int, int, list[int]]]:
    """Return the waits of the host by their ends, with the rows that each waited for."""
    ends = table.with_row_index("awaited").select("awaited", "end").sort("end")
    calls = waits.select(pl.col("launcher").to_physical().cast(pl.Int64), "since", "until", "call").sort(
        "until"
    )
    calls = calls.join_asof(ends, left_on="until", right_on="end").with_columns(
        pl.col("awaited").cast(pl.Int64).fill_null(NONE)
    )
    return [
        (thread, since, until, awaited, given.until(since, until) if EVERYTHING in call else [])
        for thread, since, until, awaited, call in calls.select(
            "launcher", "since", "until", "awaited", "call"
        ).rows()
    ]
