"""NVTX ranges as scopes: how they nest, and which one stands open where and when.

A range is a row of `thread, pid, start, end, name, seq, free`; `free` ranges (start/end style) may cross
others.
"""

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.classify.names import layer_of, phase_of
from capture.importlog import Log
from capture.loaders.nsys.autograd import led_through_modules
from capture.native.schema import PATH_SEPARATOR

DEEPEST: Final = 64
NEVER: Final = 1 << 62
ELSEWHERE: Final = "[launched from another thread]"

_ROUNDS: Final = 8
_NUMBERED: Final = re.compile(r"(?i)(?:step|iter(?:ation)?|decode)[ _#:=-]*(\d{1,9})(?!\d)")
_UNNUMBERED: Final = re.compile(
    r"(?i)prefill|decode|(?:train|training|decode|generation)?[ _]?(?:step|iteration)"
)
_PREFILL: Final = re.compile(r"(?i)prefill")


@dataclass(frozen=True)
class Scopes:
    """The ranges with what they mean, and the moments at which the innermost open range changes."""

    ranges: pl.DataFrame  # as given, with id, parent_path, path, own_step, outer_step, step, phase, layer
    moments: pl.DataFrame  # thread, pid, t, scope: by t; scope is the id of the range open from then on
    homes: pl.DataFrame  # pid, thread: the thread of each process whose ranges speak for all of it


def scopes(ranges: pl.DataFrame, log: Log) -> Scopes:
    """Return ranges nested by their times, each thread by itself."""
    ranges = ranges.with_row_index("id").with_columns(
        pl.col("id").cast(pl.Int64),
        ends=pl.max_horizontal(pl.col("end").fill_null(NEVER), pl.col("start") + 1),
    )
    nested, moments = _nest(ranges)
    crossing = ranges.height - nested.height
    if crossing:
        log.note("nvtx_crossing", "NVTX ranges that cross others and so give no path", count=crossing)
    deep = nested.filter(pl.col("depth") >= DEEPEST).height
    if deep:
        log.note("nvtx_deep", f"NVTX ranges nested more than {DEEPEST} deep, which give no path", count=deep)
    homes = _homes(ranges)
    named = _meaning(led_through_modules(_paths(_steps(nested)), moments, homes, log))
    left_out = ranges.join(named.select("id"), on="id", how="anti")
    moments = moments.with_columns(pl.when(pl.col("scope").is_in(named["id"].implode())).then("scope"))
    labelled = pl.concat([named, _meaning(left_out)], how="diagonal").sort("start", maintain_order=True)
    return Scopes(labelled, moments, homes)


def _homes(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the main thread of a process where it has ranges, else the thread that has most."""
    main = (pl.col("thread") & 0xFFFFFF) == (pl.col("pid") & 0xFFFFFF)
    threads = ranges.group_by("pid", "thread").agg(n=pl.len()).with_columns(main=main)
    best = threads.sort("pid", "main", "n", "thread", descending=[False, True, True, False])
    return best.unique("pid", keep="first", maintain_order=True).select("pid", "thread")


def _nest(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return every range with its depth and parent, without those that cross others.

    And the moments of change.
    """
    for _ in range(_ROUNDS):
        edges = _edges(ranges)
        crossed = edges.filter((pl.col("way") < 0) & pl.col("id").ne_missing(pl.col("before")))
        if crossed.is_empty():
            break
        guilty = ranges.join(crossed.select("id"), on="id", how="semi")
        free = guilty.filter("free")
        ranges = ranges.join(free if free.height else guilty, on="id", how="anti")
    else:
        ranges = ranges.clear()
        edges = _edges(ranges)
    starts = edges.filter(pl.col("way") > 0).select("id", parent="before", depth=pl.col("level") - 1)
    moments = edges.select("thread", "pid", "t", scope="now").sort("t", maintain_order=True)
    return ranges.join(starts, on="id", how="left"), moments


def _edges(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return starts and ends in the order of time, with the innermost range before and after each."""
    order = pl.concat(
        [
            ranges.select("thread", "pid", "id", t="start", way=pl.lit(1), outer=-pl.col("ends"), turn="id"),
            ranges.select(
                "thread", "pid", "id", t="ends", way=pl.lit(-1), outer=-pl.col("start"), turn=-pl.col("id")
            ),
        ]
    ).sort(
        "thread", "t", "way", "outer", "turn"
    )  # at one moment: ends, inner first; then starts, outer first
    opened = pl.when(pl.col("way") > 0).then("id")
    return (
        order.with_columns(level=pl.col("way").cum_sum().over("thread"))
        .with_columns(now=opened.forward_fill().over("thread", "level"))
        .with_columns(before=pl.col("now").shift(1).over("thread"))
    )


def _steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the step that a range's own name opens: its number, or its turn among those of its name."""
    names = ranges["name"].unique().drop_nulls().to_list()
    schema = {"name": pl.String, "number": pl.Int64, "turn": pl.Boolean, "label": pl.String}
    steps = pl.DataFrame(
        [(n, _number(n), _takes_turns(n), _unnumbered(n)) for n in names], schema=schema, orient="row"
    )
    ranges = ranges.join(steps, on="name", how="left")
    turns = (
        ranges.filter(pl.col("turn") & pl.col("number").is_null())
        .sort("start")
        .select("id", ordinal=pl.int_range(1, pl.len() + 1).over("thread", "name"))
    )
    ranges = ranges.join(turns, on="id", how="left")
    return ranges.with_columns(own_step=pl.coalesce("number", "ordinal")).drop("number", "turn", "ordinal")


def _number(name: str) -> int | None:
    if _UNNUMBERED.fullmatch(name.strip()) and _PREFILL.search(name):
        return 0
    match = _NUMBERED.search(name)
    return int(match[1]) if match else None


def _unnumbered(name: str) -> str:
    """Return what stands in paths: a step's number has its own column, and would split every path by step."""
    match = _NUMBERED.search(name)
    return name[: match.start(1)].rstrip(" _#:=-") + name[match.end(1) :] if match else name


def _takes_turns(name: str) -> bool:
    return _UNNUMBERED.fullmatch(name.strip()) is not None


def _paths(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return level by level from the outside: the path down to a range, and the step that it runs in."""
    above = pl.DataFrame(schema={"parent": pl.Int64, "parent_path": pl.String, "outer_step": pl.Int64})
    levels = []
    for depth in range(DEEPEST):
        level = ranges.filter(pl.col("depth") == depth)
        if level.is_empty():
            break
        level = level.join(above, on="parent", how="left").with_columns(
            path=pl.concat_str(["parent_path", "label"], separator=PATH_SEPARATOR, ignore_nulls=True),
            step=pl.coalesce("outer_step", "own_step"),
        )
        above = level.select(parent="id", parent_path="path", outer_step="step")
        levels.append(level)
    empty = {"parent_path": pl.String, "outer_step": pl.Int64, "path": pl.String, "step": pl.Int64}
    bare = ranges.clear().with_columns(pl.lit(None, dtype=t).alias(c) for c, t in empty.items())
    return pl.concat([bare, *levels])


def _meaning(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the phase and the layer that a path speaks of, its own name included."""
    column = "path" if "path" in ranges.columns else "name"
    paths = ranges[column].unique().drop_nulls().to_list()
    meanings = pl.DataFrame(
        {column: paths, "phase": [phase_of(p) for p in paths], "layer": [layer_of(p) for p in paths]},
        schema={column: pl.String, "phase": pl.String, "layer": pl.Int32},
    )
    return ranges.join(meanings, on=column, how="left")
