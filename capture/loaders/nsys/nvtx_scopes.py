"""Nest NVTX ranges; find the innermost open range of a thread at any time.

A range is a row of `thread, pid, start, end, name, seq, free`; `free` ranges (start/end style) may overlap
others without nesting.
"""

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.classify.name_rules import find_layer, find_phase
from capture.import_log import Log
from capture.loaders.nsys.backward_owner import reparent_backward_ops
from capture.native.schema import MAX_PATH_DEPTH, PATH_SEPARATOR

OPEN_END_NS: Final = 1 << 62
OTHER_THREAD: Final = "[launched from another thread]"

_MAX_NEST_ROUNDS: Final = 8
_NUMBERED_STEP: Final = re.compile(r"(?i)(?:step|iter(?:ation)?|decode)[ _#:=-]*(\d{1,9})(?!\d)")
_UNNUMBERED_STEP: Final = re.compile(
    r"(?i)prefill|decode|(?:train|training|decode|generation)?[ _]?(?:step|iteration)"
)
_PREFILL: Final = re.compile(r"(?i)prefill")


@dataclass(frozen=True)
class NvtxScopes:
    """Ranges with what their names say, and the times at which the innermost open range changes."""

    ranges: pl.DataFrame  # input columns, id, parent_path, path, own_step, outer_step, step, phase, layer
    changes: pl.DataFrame  # thread, pid, t, scope (id of the range open from t on), sorted by t
    main_threads: pl.DataFrame  # pid, thread: one thread per process


def build_scopes(ranges: pl.DataFrame, log: Log) -> NvtxScopes:
    """Nest ranges by their times, each thread separately."""
    ranges = ranges.with_row_index("id").with_columns(
        pl.col("id").cast(pl.Int64),
        ends=pl.max_horizontal(pl.col("end").fill_null(OPEN_END_NS), pl.col("start") + 1),
    )
    nested, changes = _nest(ranges)
    if crossing_count := ranges.height - nested.height:
        log.note("nvtx_crossing", "NVTX ranges that cross others, left out of paths", count=crossing_count)
    if deep_count := nested.filter(pl.col("depth") >= MAX_PATH_DEPTH).height:
        message = f"NVTX ranges nested deeper than {MAX_PATH_DEPTH}, left out of paths"
        log.note("nvtx_deep", message, count=deep_count)
    main_threads = _find_main_threads(ranges)
    ranges_with_paths = _build_paths(_number_steps(nested))
    nested_ranges = reparent_backward_ops(ranges_with_paths, changes, main_threads, log)
    nested_ranges = _with_phase_and_layer(nested_ranges)
    unnested_ranges = ranges.join(nested_ranges.select("id"), on="id", how="anti")
    is_nested = pl.col("scope").is_in(nested_ranges["id"].implode())
    changes = changes.with_columns(pl.when(is_nested).then("scope"))
    all_ranges = pl.concat([nested_ranges, _with_phase_and_layer(unnested_ranges)], how="diagonal")
    return NvtxScopes(all_ranges.sort("start", maintain_order=True), changes, main_threads)


def _find_main_threads(ranges: pl.DataFrame) -> pl.DataFrame:
    """Find the main thread of each process if it has ranges, else its thread with most ranges."""
    is_main = (pl.col("thread") & 0xFFFFFF) == (pl.col("pid") & 0xFFFFFF)
    threads = ranges.group_by("pid", "thread").agg(n=pl.len()).with_columns(main=is_main)
    by_rank = threads.sort("pid", "main", "n", "thread", descending=[False, True, True, False])
    return by_rank.unique("pid", keep="first", maintain_order=True).select("pid", "thread")


def _nest(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add depth and parent to ranges; also return the changes of the innermost open range.

    Ranges that cross others are removed, start/end ranges first.
    """
    for _ in range(_MAX_NEST_ROUNDS):
        edges = _list_range_changes(ranges)
        crossing = edges.filter((pl.col("sign") < 0) & pl.col("id").ne_missing(pl.col("previous")))
        if crossing.is_empty():
            break
        crossing_ranges = ranges.join(crossing.select("id"), on="id", how="semi")
        free_ranges = crossing_ranges.filter("free")
        ranges = ranges.join(free_ranges if free_ranges.height else crossing_ranges, on="id", how="anti")
    else:
        ranges = ranges.clear()
        edges = _list_range_changes(ranges)
    starts = edges.filter(pl.col("sign") > 0).select("id", parent="previous", depth=pl.col("level") - 1)
    changes = edges.select("thread", "pid", "t", scope="innermost").sort("t", maintain_order=True)
    return ranges.join(starts, on="id", how="left"), changes


def _list_range_changes(ranges: pl.DataFrame) -> pl.DataFrame:
    """List starts and ends in time order, with the innermost range before and after each."""
    ids = ("thread", "pid", "id")
    starts = ranges.select(*ids, t="start", sign=pl.lit(1), outer=-pl.col("ends"), tie="id")
    ends = ranges.select(*ids, t="ends", sign=pl.lit(-1), outer=-pl.col("start"), tie=-pl.col("id"))
    # at equal times: ends, inner first; then starts, outer first
    edges = pl.concat([starts, ends]).sort("thread", "t", "sign", "outer", "tie")
    opened_id = pl.when(pl.col("sign") > 0).then("id")
    edges = edges.with_columns(level=pl.col("sign").cum_sum().over("thread"))
    edges = edges.with_columns(innermost=opened_id.forward_fill().over("thread", "level"))
    return edges.with_columns(previous=pl.col("innermost").shift(1).over("thread"))


def _number_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """Number the ranges whose name starts a step: by the number in it, else in order of start."""
    names = ranges["name"].unique().drop_nulls().to_list()
    schema = {"name": pl.String, "number": pl.Int64, "is_unnumbered": pl.Boolean, "label": pl.String}
    steps_by_name = pl.DataFrame(list(map(_parse_step_name, names)), schema=schema, orient="row")
    ranges = ranges.join(steps_by_name, on="name", how="left")
    ordinals = (
        ranges.filter(pl.col("is_unnumbered") & pl.col("number").is_null())
        .sort("start")
        .select("id", ordinal=pl.int_range(1, pl.len() + 1).over("thread", "name"))
    )
    ranges = ranges.join(ordinals, on="id", how="left")
    ranges = ranges.with_columns(own_step=pl.coalesce("number", "ordinal"))
    return ranges.drop("number", "is_unnumbered", "ordinal")


def _parse_step_name(name: str) -> tuple[str, int | None, bool, str]:
    """Parse the number of a step, whether the name is a step's without one, and the name without its number.

    In a path a number would split every row by step.
    """
    is_unnumbered = _UNNUMBERED_STEP.fullmatch(name.strip()) is not None
    match = _NUMBERED_STEP.search(name)
    label = name[: match.start(1)].rstrip(" _#:=-") + name[match.end(1) :] if match else name
    number = int(match[1]) if match else None
    return name, 0 if is_unnumbered and _PREFILL.search(name) else number, is_unnumbered, label


def _build_paths(ranges: pl.DataFrame) -> pl.DataFrame:
    """Build paths and steps level by level, from the outermost ranges inwards."""
    parents = pl.DataFrame(schema={"parent": pl.Int64, "parent_path": pl.String, "outer_step": pl.Int64})
    levels = []
    for depth in range(MAX_PATH_DEPTH):
        level = ranges.filter(pl.col("depth") == depth)
        if level.is_empty():
            break
        level = level.join(parents, on="parent", how="left").with_columns(
            path=pl.concat_str(["parent_path", "label"], separator=PATH_SEPARATOR, ignore_nulls=True),
            step=pl.coalesce("outer_step", "own_step"),
        )
        parents = level.select(parent="id", parent_path="path", outer_step="step")
        levels.append(level)
    empty = {"parent_path": pl.String, "outer_step": pl.Int64, "path": pl.String, "step": pl.Int64}
    no_rows = ranges.clear().with_columns(pl.lit(None, dtype=t).alias(c) for c, t in empty.items())
    return pl.concat([no_rows, *levels])


def _with_phase_and_layer(ranges: pl.DataFrame) -> pl.DataFrame:
    """Add the phase and layer that a path contains, its own name included."""
    column = "path" if "path" in ranges.columns else "name"
    paths = ranges[column].unique().drop_nulls().to_list()
    phases_and_layers = pl.DataFrame(
        {column: paths, "phase": [find_phase(p) for p in paths], "layer": [find_layer(p) for p in paths]},
        schema={column: pl.String, "phase": pl.String, "layer": pl.Int32},
    )
    return ranges.join(phases_and_layers, on=column, how="left")
