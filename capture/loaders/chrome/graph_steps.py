"""Steps of a trace that marks none, opened where graphs are launched."""

import polars as pl

from capture.classify.replays import GRAPH_LAUNCH, NOTHING_MARKS_A_STEP, REPLAY, steps_of_replays
from capture.importlog import Log
from capture.loaders.chrome.tables import DEVICE, Complete


def opened_by_graphs(complete: Complete, log: Log) -> Complete:
    """Return the events with a row for each step that launches of graphs open, where no label opens one."""
    labels = complete.labels
    if labels["opens"].any():
        return complete
    launch = labels["name"].str.contains(GRAPH_LAUNCH).gather(complete.rows["label"])
    if not launch.any():
        return complete
    kernel = labels["cat"].is_in(DEVICE).fill_null(value=False).gather(complete.rows["label"])
    rows = complete.rows.with_columns(launch=launch, kernel=kernel).drop_nulls(["t", "dur", "correlation"])
    launches = rows.filter("launch").select("t", "label", key="correlation")
    kernels = rows.filter("kernel").select("t", "dur", key="correlation", name="label")
    steps = steps_of_replays(launches.drop("label"), kernels)
    if steps.is_empty():
        return complete
    log.note("inferred_steps", NOTHING_MARKS_A_STEP, count=steps.height)
    place = labels["place"][int(launches["label"][0])]
    label = {"cat": "user_annotation", "name": REPLAY, "place": place, "opens": True, "stated": False}
    opening = steps.with_columns(label=pl.lit(labels.height, dtype=pl.UInt32))
    return Complete(
        pl.concat([complete.rows, opening], how="diagonal_relaxed"),
        pl.concat([labels, pl.DataFrame(label)], how="diagonal_relaxed"),
    )
