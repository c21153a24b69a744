"""A replay of host and device with other durations: when everything would have started and ended.

The host calls in its order, each call as long after the one before it as it was; a call that waited for the
device returns as long after the end of what it waited for as it did. A kernel starts when it is launched, its
stream is free, and what it depended on has ended: the later of its launch and the usual delay, and its
predecessor's end and the gap that was between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

NONE: Final = -1
_WAIT: Final = ("launcher", "since", "until", "awaited")


@dataclass(frozen=True, eq=False)
class Recorded:
    """What happened: rows in the order of their starts, and the waits of the host in the order of their ends.

    `on` is the number of a row's stream, `thread` that of the host's thread that launched it, NONE where the
    launch is not known. `awaited` is the row whose end a wait waited for, NONE for none.
    """

    start: Sequence[int]
    end: Sequence[int]
    on: Sequence[int]
    launch: Sequence[int]
    thread: Sequence[int]
    waits: Sequence[tuple[int, int, int, int]] = ()  # thread, since, until, awaited
    delay: int = 0  # from a launch to its start where nothing stands before it


@dataclass
class _State:
    """How far the replay has come."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    earlier: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # thread → from when, by how much
    last: dict[int, int] = field(default_factory=dict)  # stream → its latest row
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
        latest = state.last.get(was.on[row], NONE)
        if latest == NONE or was.end[row] >= was.end[latest]:
            state.last[was.on[row]] = row
    return state.starts, state.ends


def _begin(was: Recorded, state: _State, row: int, *, host: bool) -> int:
    """Return when a row starts."""
    start, before = was.start[row], state.last.get(was.on[row], NONE)
    launched = was.thread[row] != NONE
    called = was.launch[row]
    if before == NONE:
        return start - (_earlier(state, was.thread[row], called) if launched else 0)
    free = was.end[before]
    late = launched and called + was.delay > free
    if late:
        new = called - _earlier(state, was.thread[row], called)
        return max(new + start - called if host else 0, state.ends[before])
    depends = _dependency(was, state, row, before)
    ready = state.ends[depends] + start - was.end[depends]
    ready = max(ready, state.ends[before])
    if not (launched and host):
        return ready
    new = called - _earlier(state, was.thread[row], called)
    return max(ready, new + min(was.delay, start - called))


def _dependency(was: Recorded, state: _State, row: int, before: int) -> int:
    """Return the row whose end let this one start: the latest to end before it, on any stream."""
    found, start = before, was.start[row]
    for other in state.last.values():
        if was.end[found] < was.end[other] <= start:
            found = other
    return found


def _earlier(state: _State, thread: int, at: int) -> int:
    """Return by how much earlier than it did a thread comes to a moment of its own."""
    for since, much in reversed(state.earlier.get(thread, ())):
        if since <= at:
            return much
    return 0


def _return_from_wait(was: Recorded, state: _State) -> None:
    """Replay the next wait of the host."""
    thread, since, until, awaited = was.waits[state.waits]
    state.waits += 1
    if awaited == NONE or awaited >= len(state.ends):
        return
    after = until - max(since, was.end[awaited])
    returns = max(since - _earlier(state, thread, since), state.ends[awaited]) + after
    state.earlier.setdefault(thread, []).append((until, until - returns))


def recorded(rows: pl.DataFrame, waits: pl.DataFrame, delay: int) -> Recorded:
    """Return rows (`t`, `dur`, and perhaps `track`, `launch`, `launcher`) by start and the waits of the host
    as a replay takes them.
    """
    end = pl.col("t") + pl.col("dur")
    known = "launch" in rows.columns and "launcher" in rows.columns
    unknown = pl.lit(NONE, pl.Int64)
    threads = pl.col("launcher").to_physical().cast(pl.Int64) if known else unknown
    stream = pl.col("track").to_physical().cast(pl.Int64) if "track" in rows.columns else pl.lit(0)
    called = pl.col("launch").is_not_null() if known else pl.lit(value=False)
    found = rows.select(
        start="t",
        end=end,
        on=stream.fill_null(NONE),
        launch=pl.col("launch").fill_null(0) if known else unknown,
        thread=pl.when(called).then(threads).otherwise(unknown).fill_null(NONE),
    )
    ends = found.with_row_index("awaited").select("awaited", "end").sort("end")
    calls = waits.select(pl.col("launcher").to_physical().cast(pl.Int64), "since", "until").sort("until")
    calls = calls.join_asof(ends, left_on="until", right_on="end").with_columns(
        pl.col("awaited").cast(pl.Int64).fill_null(NONE)
    )
    start, ends_of, on, launch, thread = (found[c].to_list() for c in found.columns)
    return Recorded(start, ends_of, on, launch, thread, calls.select(*_WAIT).rows(), delay)
