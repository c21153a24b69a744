"""Steps of a report whose ranges mark none, opened where graphs are launched."""

import polars as pl

from capture.classify.replays import GRAPH_LAUNCH, NOTHING_MARKS_A_STEP, REPLAY, steps_of_replays
from capture.importlog import Log
from capture.loaders.nsys.tables import Tables


def with_graph_steps(calls: pl.DataFrame, tables: Tables, log: Log) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return API calls with the step in which they are made, and a row for each step; none where ranges have.

    Only graphs that one process launches, and whose kernels are in the file, open steps.
    """
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(GRAPH_LAUNCH))
    nothing = pl.DataFrame()
    if calls["step"].null_count() < calls.height or launches["pid"].n_unique() != 1:
        return calls, nothing
    kernels = tables.kernels.drop_nulls(["start", "end", "correlationId"]).select(
        key="correlationId",
        name=pl.coalesce(pl.col("graphNodeId").cast(pl.Int64), pl.col("name").cast(pl.Int64)),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )
    steps = steps_of_replays(launches.select(t="start", key="correlationId"), kernels)
    if steps.is_empty():
        return calls, nothing
    log.note("inferred_steps", NOTHING_MARKS_A_STEP, count=steps.height)
    placed = calls.drop("step").join_asof(
        steps.with_columns(ends=pl.col("t") + pl.col("dur")),
        left_on="start",
        right_on="t",
        strategy="backward",
    )
    step = pl.when(pl.col("start") < pl.col("ends")).then("step")
    mine = pl.col("pid") == launches["pid"][0]
    placed = placed.with_columns(step=pl.when(mine).then(step)).select(calls.columns)
    rows = steps.with_columns(
        kind=pl.lit("step"),
        name=pl.lit(REPLAY).cast(pl.Categorical()),
        lens=pl.lit("wall"),
        thread=pl.lit(launches["thread"][0], dtype=calls.schema["thread"]),
    )
    return placed, rows
