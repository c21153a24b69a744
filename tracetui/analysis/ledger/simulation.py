"""Simulate host and device with other kernel durations: when each row would have started and ended.

The host calls in its order, each call as long after the one before as recorded; a call that waited for the
device returns as long after the end of what it waited for as recorded. A kernel starts when it is launched,
its stream is free and its dependency has ended: the later of its launch and the launch delay, and the end of
its dependency and the gap recorded between them. A stream told to wait for others waits for all they had
been given until then.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from tracetui.analysis.time.gpu_time import NO_ROW, find_start_dependencies

DEVICE_WAIT: Final = "DeviceSynchronize"  # in the name of calls that wait for all streams

Wait = tuple[int, int, int, int, list[int]]  # thread, since, until, awaited, every
Advances = Mapping[int, list[tuple[int, int]]]  # thread → since when it is how much ahead of the recording


@dataclass(frozen=True, eq=False)
class Schedule:
    """A recorded schedule: rows by start, and the host's waits by end.

    `thread` is the host thread that launched a row, NO_ROW if the launch is unknown; `previous` the row
    before on its stream, `predecessor` its start dependency, NO_ROW if that was the host, and `joined` rows
    on other streams it was told to wait for. Of a wait, `awaited` is the row whose end it waited for, else
    NO_ROW, and `every` are all rows it may have waited for.
    """

    start: Sequence[int]
    end: Sequence[int]
    launch: Sequence[int]
    thread: Sequence[int]
    previous: Sequence[int]
    predecessor: Sequence[int]
    joined: dict[int, list[int]] = field(default_factory=dict)
    waits: Sequence[Wait] = ()
    launch_delay: int = 0  # from a launch to its start on an idle device


def simulate_schedule(
    schedule: Schedule, durations: Sequence[int], *, host: bool = True
) -> tuple[list[int], list[int]]:
    """Return new starts and ends of the rows if they took these durations.

    Without `host`, all rows count as launched long before.
    """
    starts, ends = list[int](), list[int]()
    advances = defaultdict[int, list[tuple[int, int]]](list)
    waits = deque(schedule.waits if host else ())
    for row, recorded_start in enumerate(schedule.start):
        while waits and waits[0][2] <= recorded_start:
            thread, since, until, awaited, every = waits.popleft()
            if awaited != NO_ROW and awaited < len(ends):
                delay_after = until - max(since, schedule.end[awaited])
                last_end = max(ends[other] for other in (awaited, *every))
                returns = max(since - _compute_advance(advances, thread, since), last_end) + delay_after
                advances[thread].append((until, until - returns))
        starts.append(_compute_start(schedule, ends, advances, row, host=host))
        ends.append(starts[-1] + durations[row])
    return starts, ends


def _compute_start(
    schedule: Schedule, ends: Sequence[int], advances: Advances, row: int, *, host: bool
) -> int:
    start, predecessor, previous = schedule.start[row], schedule.predecessor[row], schedule.previous[row]
    is_launched = schedule.thread[row] != NO_ROW
    advance = _compute_advance(advances, schedule.thread[row], schedule.launch[row]) if is_launched else 0
    others = (previous, *schedule.joined.get(row, ()))
    busy_until: list[int] = [ends[other] for other in others if other != NO_ROW]
    if predecessor == NO_ROW:
        return max([start - advance, *busy_until]) if host or not busy_until else max(busy_until)
    ready = max([ends[predecessor] + start - schedule.end[predecessor], *busy_until])
    if not (is_launched and host):
        return ready
    delay = min(schedule.launch_delay, start - schedule.launch[row])
    return max(ready, schedule.launch[row] - advance + delay)


def _compute_advance(advances: Advances, thread: int, at: int) -> int:
    """Return the ns by which a thread is ahead of the recording at one of its times."""
    for since, advance in reversed(advances.get(thread, ())):
        if since <= at:
            return advance
    return 0


def build_schedule(rows: pl.DataFrame, waits: pl.DataFrame, joins: pl.DataFrame, delay: int) -> Schedule:
    """Build a schedule from rows (`t`, `dur`, perhaps `track`, `launch`, `launcher`) by start.

    `waits` are the host's waits, `joins` its stream waits (`launcher`, `at`); `delay` is the launch delay.
    """
    has_launches = "launch" in rows.columns and "launcher" in rows.columns
    dependencies = find_start_dependencies(rows if has_launches else rows.drop("launch", strict=False), delay)
    thread = pl.col("launcher").to_physical().cast(pl.Int64) if has_launches else pl.lit(NO_ROW, pl.Int64)
    launch = pl.col("launch") if has_launches else pl.lit(None, pl.Int64)
    stream = pl.col("track").to_physical().cast(pl.Int64) if "track" in rows.columns else pl.lit(0, pl.Int64)
    table = rows.select(
        start="t",
        end=pl.col("t") + pl.col("dur"),
        launch=launch.fill_null(0),
        thread=pl.when(launch.is_not_null()).then(thread).fill_null(NO_ROW),
        stream=stream.fill_null(NO_ROW),
    )
    predecessor = pl.when(~pl.col("is_late")).then("predecessor").fill_null(NO_ROW)
    table = table.hstack(dependencies.select("previous", predecessor=predecessor))
    queues = _StreamQueues(table)
    columns = {c: table[c].to_list() for c in ("start", "end", "launch", "thread", "previous", "predecessor")}
    joined, waited = _find_joined_rows(table, joins, queues), _list_waits(table, waits, queues)
    return Schedule(**columns, joined=joined, waits=waited, launch_delay=delay)


class _StreamQueues:
    """Rows given to each stream, in the order of their launches."""

    def __init__(self, table: pl.DataFrame) -> None:
        rows = table.with_row_index("row").filter(pl.col("thread") != NO_ROW)
        parts = rows.sort("launch", "row").partition_by("stream", as_dict=True)
        self.streams = {
            int(stream): (part["launch"].to_list(), part["row"].to_list(), part["end"].to_list())
            for (stream,), part in parts.items()
        }

    def find_last_ended(self, launched_before: int, ended_by: int, excluded: int | None = None) -> list[int]:
        """Return the last row launched before a time on each stream but one, if it ended by another time."""
        last_rows = []
        for stream, (launches, rows, ends) in self.streams.items():
            last = bisect_left(launches, launched_before) - 1
            if stream != excluded and last >= 0 and ends[last] <= ended_by:
                last_rows.append(rows[last])
        return last_rows


def _find_joined_rows(
    table: pl.DataFrame, joins: pl.DataFrame, queues: _StreamQueues
) -> dict[int, list[int]]:
    """Return for each row of a stream told to wait: the last rows the other streams had been given."""
    if joins.is_empty() or len(queues.streams) < 2:
        return {}
    launches = table.filter(pl.col("thread") != NO_ROW).select("thread", "launch").unique().sort("launch")
    calls = joins.select("at", thread=pl.col("launcher").to_physical().cast(pl.Int64)).sort("at")
    waiting = launches.join_asof(calls, left_on="launch", right_on="at", by="thread", check_sortedness=False)
    waiting = waiting.sort("thread", "launch").with_columns(before=pl.col("launch").shift(1).over("thread"))
    is_new = pl.col("at") > pl.col("before").fill_null(pl.col("at") - 1)
    waiting = waiting.filter(is_new).select("thread", "launch", "at")
    rows = table.with_row_index("row").join(waiting, on=["thread", "launch"])
    rows = rows.select("row", "at", "start", "stream")
    return {row: queues.find_last_ended(at, start, stream) for row, at, start, stream in rows.iter_rows()}


def _list_waits(table: pl.DataFrame, waits: pl.DataFrame, queues: _StreamQueues) -> list[Wait]:
    """Return the host's waits by end, with the rows that each waited for."""
    ends = table.select("end", awaited=pl.int_range(pl.len())).sort("end")
    calls = waits.sort("until").join_asof(ends, left_on="until", right_on="end")
    launcher = pl.col("launcher").to_physical().cast(pl.Int64)
    calls = calls.select(launcher, "since", "until", pl.col("awaited").fill_null(NO_ROW), "call")
    return [
        (thread, since, until, awaited, queues.find_last_ended(since, until) if DEVICE_WAIT in call else [])
        for thread, since, until, awaited, call in calls.iter_rows()
    ]
