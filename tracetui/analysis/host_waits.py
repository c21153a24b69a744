"""Calls of the host that wait for the device, and the operators that made them."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, facts, gpu_time, select

NAMED: Final = 2  # operators of a stack that are told: the outermost, and what it called
_ARROW: Final = " → "
_WAITING: Final = r"Synchronize|hipMemcpyWithStream|^(?:cuda|hip|cu)Memcpy"
_RETURNING: Final = r"Async|Peer|^cudaMemcpy.*Query"
_JOINING: Final = r"^(?:cuda|hip|cu)StreamWaitEvent"
_OPERATOR: Final = r"^[a-z_]\w*::\w"  # aten::item, c10d::allreduce_

_SCHEMA: Final = {
    "launcher": pl.Categorical(), "since": pl.Int64(), "until": pl.Int64(), "call": pl.String(),
    "stack": pl.String(),
}  # fmt: skip


@select.once
def waits(run: Run) -> pl.DataFrame:
    """Return each call of the host that waits for the device: its thread `launcher`, `since`, `until`, the
    `call`, and `stack`: the operators around it, outermost first; the call itself where there is none.
    """
    if not (run.has("t") and run.has("track") and run.has("dur")):
        return pl.DataFrame(schema=_SCHEMA)
    names = facts.names(run).cast(pl.String)
    waiting = names.filter(names.str.contains(_WAITING) & ~names.str.contains(_RETURNING))
    on_host = (pl.col("kind") == "span") & pl.col("t").is_not_null() & pl.col("track").is_not_null()
    rows = run.events.lazy().filter(on_host & pl.col("name").is_in(waiting.cast(pl.Categorical()).implode()))
    calls = rows.select("track", "t", "dur", "name").drop_nulls().collect()
    if calls.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    operators = names.filter(names.str.contains(_OPERATOR)).cast(pl.Categorical())
    holding = on_host & (pl.col("dur") >= calls["dur"].min()) & pl.col("name").is_in(operators.implode())
    threads = calls["track"].unique()
    ops = run.events.lazy().filter(holding & pl.col("track").is_in(threads.implode()))
    stacks = _stacks(calls, _around(ops.select("track", "t", "dur", "name").collect(), calls))
    return calls.select(
        launcher="track", since="t", until=pl.col("t") + pl.col("dur"), call=pl.col("name").cast(pl.String),
        stack=pl.coalesce(stacks, pl.col("name").cast(pl.String)),
    ).sort("since")  # fmt: skip


@select.once
def joins(run: Run) -> pl.DataFrame:
    """Return the calls that tell a stream to wait for others: their thread (`launcher`) and moment (`at`)."""
    if not (run.has("t") and run.has("track")):
        return pl.DataFrame(schema={"launcher": pl.Categorical(), "at": pl.Int64()})
    names = run.events["name"].unique().cast(pl.String).drop_nulls()
    joining = names.filter(names.str.contains(_JOINING)).cast(pl.Categorical())
    rows = run.events.lazy().filter((pl.col("kind") == "span") & pl.col("name").is_in(joining.implode()))
    return rows.select(launcher="track", at="t").drop_nulls().sort("at").collect()


def _around(operators: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that contain the next call of their thread, without the many that contain none."""
    ends = calls.select("track", at="t", until=pl.col("t") + pl.col("dur")).sort("at")
    ahead = operators.sort("t").join_asof(
        ends, left_on="t", right_on="at", by="track", strategy="forward", check_sortedness=False
    )
    return ahead.filter(pl.col("until") <= pl.col("t") + pl.col("dur")).drop("at", "until")


def _stacks(calls: pl.DataFrame, operators: pl.DataFrame) -> pl.Series:
    """Return for each call the operators that contain it, outermost first; null where none does."""
    from tracetui.analysis.nesting import holders  # brings numpy, which most runs do without

    rows = pl.concat([operators.with_columns(call=pl.lit(None, pl.Int64)), calls.with_row_index("call")],
                     how="diagonal_relaxed")  # fmt: skip
    on = pl.col("track").to_physical().cast(pl.Int64)
    rows = rows.with_columns(on=on).sort(
        "on", "t", "dur", descending=[False, False, True], maintain_order=True
    )
    is_scope = rows["call"].is_null().to_numpy()
    end = (rows["t"] + rows["dur"]).to_numpy()
    holder = holders(rows["on"].to_numpy(), rows["t"].to_numpy(), end, is_scope)
    names = rows["name"].cast(pl.String).to_list()
    texts: list[str | None] = [None] * calls.height
    for place in rows.with_row_index("place").filter(pl.col("call").is_not_null())["place"].to_list():
        chain, above = list[str](), int(holder[place])
        while above >= 0:
            chain.append(names[above])
            above = int(holder[above])
        texts[rows["call"][place]] = _ARROW.join(chain[::-1][:NAMED]) or None
    return pl.Series("stack", texts, dtype=pl.String)


@select.once
def by_device(run: Run) -> pl.DataFrame:
    """Return how long the host waited for each device in each stack: `device`, `stack`, `count`, `wait_ns`,
    the longest first. The device is the one to which the waiting thread launches; null where there is none.
    """
    calls = waits(run)
    schema = {
        device_time.DEVICE: pl.Categorical(),
        "stack": pl.String(),
        "count": pl.Int64(),
        "wait_ns": pl.Int64(),
    }
    if calls.is_empty() or not run.has("launcher"):
        return pl.DataFrame(schema=schema)
    rows = device_time.with_device(run, gpu_time.device_rows(run)).select("launcher", device_time.DEVICE)
    most = (
        rows.drop_nulls().group_by("launcher", device_time.DEVICE).agg(pl.len()).sort("len", descending=True)
    )
    threads = most.unique("launcher", keep="first", maintain_order=True).drop("len").collect()
    placed = calls.join(threads, on="launcher", how="left")
    sums = placed.group_by(device_time.DEVICE, "stack").agg(
        count=pl.len().cast(pl.Int64), wait_ns=(pl.col("until") - pl.col("since")).sum()
    )
    return sums.sort("wait_ns", "stack", descending=[True, False])


def sentence(wait: Mapping[str, Any]) -> str:
    """Return in words one row of `by_device`."""
    whom = f"for {wait['device']} " if wait["device"] else ""
    times = "once" if wait["count"] == 1 else f"{wait['count']:,} times"
    return f"the host waited {units.duration(wait['wait_ns'])} {whom}in {wait['stack']}, {times}"
