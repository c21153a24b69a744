"""Host calls that wait for the device, and the operators that made them."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct
from tracetui.analysis.time.device_time import DEVICE, with_device
from tracetui.analysis.time.gpu_time import select_device_rows

STACK_DEPTH: Final = 2  # operators listed: the outermost, and the one it called
_ARROW: Final = " → "
_WAITING_CALLS: Final = r"Synchronize|hipMemcpyWithStream|^(?:cuda|hip|cu)Memcpy"
_ASYNC_CALLS: Final = r"Async|Peer|^cudaMemcpy.*Query"
_STREAM_WAIT_CALLS: Final = r"^(?:cuda|hip|cu)StreamWaitEvent"
_OPERATOR: Final = r"^[a-z_]\w*::\w"  # aten::item, c10d::allreduce_
_WAIT_SCHEMA: Final = {
    "launcher": pl.Categorical(), "since": pl.Int64(), "until": pl.Int64(), "call": pl.String(),
    "stack": pl.String(),
}  # fmt: skip


@cache_per_run
def find_waits(run: Run) -> pl.DataFrame:
    """Return each host call that waits for the device: `launcher`, `since`, `until`, `call`, `stack`.

    `launcher` is its thread; `stack` the operators around it, outermost first, else the call itself.
    """
    if not (run.has("t") and run.has("track") and run.has("dur")):
        return pl.DataFrame(schema=_WAIT_SCHEMA)
    names = list_distinct(run, "name").cast(pl.String)
    waiting_names = names.filter(names.str.contains(_WAITING_CALLS) & ~names.str.contains(_ASYNC_CALLS))
    is_on_host = (pl.col("kind") == "span") & pl.col("t").is_not_null() & pl.col("track").is_not_null()
    is_waiting = pl.col("name").is_in(waiting_names.cast(pl.Categorical()).implode())
    rows = run.events.lazy().filter(is_on_host & is_waiting)
    calls = rows.select("track", "t", "dur", "name").drop_nulls().collect()
    if calls.is_empty():
        return pl.DataFrame(schema=_WAIT_SCHEMA)
    operators = names.filter(names.str.contains(_OPERATOR)).cast(pl.Categorical())
    may_enclose = is_on_host & pl.col("name").is_in(operators.implode())
    may_enclose &= pl.col("dur") >= calls["dur"].min()
    tracks = calls["track"].unique()
    ops = run.events.lazy().filter(may_enclose & pl.col("track").is_in(tracks.implode()))
    enclosing = _select_enclosing_operators(ops.select("track", "t", "dur", "name").collect(), calls)
    stacks = _build_stacks(calls, enclosing)
    return calls.select(
        launcher="track", since="t", until=pl.col("t") + pl.col("dur"), call=pl.col("name").cast(pl.String),
        stack=pl.coalesce(stacks, pl.col("name").cast(pl.String)),
    ).sort("since")  # fmt: skip


@cache_per_run
def find_stream_waits(run: Run) -> pl.DataFrame:
    """Return calls that make a stream wait for others: `launcher`, their thread, and their time `at`."""
    if not (run.has("t") and run.has("track")):
        return pl.DataFrame(schema={"launcher": pl.Categorical(), "at": pl.Int64()})
    names = run.events["name"].unique().cast(pl.String).drop_nulls()
    waiting_names = names.filter(names.str.contains(_STREAM_WAIT_CALLS)).cast(pl.Categorical())
    is_wait = (pl.col("kind") == "span") & pl.col("name").is_in(waiting_names.implode())
    rows = run.events.lazy().filter(is_wait)
    return rows.select(launcher="track", at="t").drop_nulls().sort("at").collect()


def _select_enclosing_operators(operators: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that contain the next call of their thread; most contain none."""
    call_times = calls.select("track", at="t", until=pl.col("t") + pl.col("dur")).sort("at")
    with_next_call = operators.sort("t").join_asof(
        call_times, left_on="t", right_on="at", by="track", strategy="forward", check_sortedness=False
    )
    return with_next_call.filter(pl.col("until") <= pl.col("t") + pl.col("dur")).drop("at", "until")


def _build_stacks(calls: pl.DataFrame, operators: pl.DataFrame) -> pl.Series:
    """Return for each call its enclosing operators, outermost first; null without any."""
    from capture.interval_nesting import find_enclosing_scopes  # loads numpy, which most runs do not need

    rows = pl.concat([operators, calls.with_row_index("call")], how="diagonal_relaxed")
    rows = rows.with_columns(on=pl.col("track").to_physical().cast(pl.Int64), end=pl.col("t") + pl.col("dur"))
    rows = rows.sort("on", "t", "dur", descending=[False, False, True], maintain_order=True)
    thread, start, end = (rows[c].to_numpy() for c in ("on", "t", "end"))
    enclosing = find_enclosing_scopes(thread, start, end, rows["call"].is_null().to_numpy())
    names = rows["name"].cast(pl.String).to_list()
    texts: list[str | None] = [None] * calls.height
    for row, call in enumerate(rows["call"]):
        if call is not None:
            stack, scope = list[str](), int(enclosing[row])
            while scope >= 0:
                stack.append(names[scope])
                scope = int(enclosing[scope])
            texts[call] = _ARROW.join(stack[::-1][:STACK_DEPTH]) or None
    return pl.Series("stack", texts, dtype=pl.String)


@cache_per_run
def sum_waits_by_device(run: Run) -> pl.DataFrame:
    """Return the host's wait for each device per stack: `device`, `stack`, `count`, `wait_ns`, longest first.

    The device is the one to which the waiting thread launches most; null if it launches nothing.
    """
    calls = find_waits(run)
    schema = {DEVICE: pl.Categorical(), "stack": pl.String(), "count": pl.Int64(), "wait_ns": pl.Int64()}
    if calls.is_empty() or not run.has("launcher"):
        return pl.DataFrame(schema=schema)
    rows = with_device(run, select_device_rows(run)).select("launcher", DEVICE)
    launches = rows.drop_nulls().group_by("launcher", DEVICE).agg(pl.len()).sort("len", descending=True)
    threads = launches.unique("launcher", keep="first", maintain_order=True).drop("len").collect()
    by_stack = calls.join(threads, on="launcher", how="left").group_by(DEVICE, "stack")
    wait_ns = (pl.col("until") - pl.col("since")).sum()
    sums = by_stack.agg(count=pl.len().cast(pl.Int64), wait_ns=wait_ns)
    return sums.sort("wait_ns", "stack", descending=[True, False])


def describe_wait(wait: Mapping[str, Any]) -> str:
    """Describe a row of `sum_waits_by_device`."""
    device = f"for {wait['device']} " if wait["device"] else ""
    times = "once" if wait["count"] == 1 else f"{wait['count']:,} times"
    return f"the host waited {units.format_duration(wait['wait_ns'])} {device}in {wait['stack']}, {times}"
