"""Ranks of many files: what one file contributes, and the ranks of all of them in the steps they share."""

from typing import Final

import polars as pl

from capture.ranks import on_rank_tracks, ranks_in_names
from capture.run import Run
from tracetui.analysis import ranks, select
from tracetui.analysis.partial.algebra import MEMBERS, Partial
from tracetui.look import Look

_WHOSE: Final = ["member", "run", "own"]


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return what the ranks of a run do in each step, and in which ops; `own` is the rank within the run."""
    several = len(set(select.rank_tracks(run).values())) > 1
    placed = run if several else Run(run.name, run.meta, on_rank_tracks(run, 0, 0), run.log, run.tables)
    found = ranks.compared(placed, look)
    own = pl.col("rank").cast(pl.Int64).alias("own")
    member = pl.lit(0, pl.Int64).alias("member")
    ops = found.ops.select(member, own, "op", "total_ns").sort("own", "op", nulls_last=True)
    notes = [*select.stopwatch(run, look), *select.folding(run)]
    facts = {
        "several": [several],
        "timed": [found.overlaps],
        "phase": pl.Series([ranks.phase_of(run, look)], dtype=pl.String),
        "notes": pl.Series(["\n".join(notes)]),
    }
    return {
        "cells": found.cells.select(member, own, pl.exclude("rank")),
        "ops": ops,
        MEMBERS: pl.DataFrame(facts),
    }


def numbered(whole: Partial) -> tuple[pl.DataFrame, list[str]]:
    """Return member, run, own → rank, and what of that is a guess; no row where two would be of one rank."""
    members = whole.members
    keys = whole.frames["cells"].select(_WHOSE).unique().sort(_WHOSE)
    keys = keys.join(members.select("member", "run", "rank", "several"), on=["member", "run"])
    guess: list[str] = []
    single = members.filter(~pl.col("several"))
    if single["rank"].null_count():
        places = ranks_in_names([_name(s) for s in single["source"]])
        if places is None:
            places = list(range(single.height))
            guess = ["which file is of which rank is not told: they are numbered in their order"]
        by = single.select("member", "run", given=pl.Series(places, dtype=pl.Int64))
        keys = keys.join(by, on=["member", "run"], how="left")
    else:
        keys = keys.with_columns(given="rank")
    keys = keys.select(*_WHOSE, rank=pl.when("several").then("own").otherwise("given"))
    return (keys, guess) if keys["rank"].n_unique() == keys.height else (keys.head(0), guess)


def places_of(whole: Partial, keys: pl.DataFrame) -> pl.DataFrame:
    """Return rank → host and switch, without those that nobody tells of any rank."""
    members = whole.members.select("member", "run", "host", "switch")
    table = keys.select("member", "run", "rank").join(members, on=["member", "run"]).sort("rank")
    return table.select("rank", *(c for c in ("host", "switch") if table[c].count()))


def together(of_ranks: ranks.Ranks, places: pl.DataFrame, by: str) -> tuple[list[str], ranks.Ranks] | None:
    """Return the names of hosts, or of switches, and what their ranks did in each step on average, as if each
    were one rank; None where there are not several of several ranks.
    """
    names = (
        places[by].drop_nulls().unique().sort() if by in places.columns else pl.Series([], dtype=pl.String)
    )
    if not 1 < names.len() < places.height:
        return None
    numbers = pl.DataFrame({by: names, "place": pl.Series(range(names.len()), dtype=pl.Int64)})
    whose = places.join(numbers, on=by).select("rank", "place")
    means = of_ranks.cells.join(whose, on="rank").drop("rank").group_by("step", rank="place")
    cells = means.agg(pl.exclude("step", "place").mean().round().cast(pl.Int64)).sort("step", "rank")
    ops = of_ranks.ops.join(whose, on="rank").group_by("op", rank="place")
    size = whose.group_by(rank="place").agg(ranks=pl.len())
    shared = ops.agg(pl.col("total_ns").sum()).join(size, on="rank")
    per_rank = (pl.col("total_ns") / pl.col("ranks")).round().cast(pl.Int64)
    return names.to_list(), ranks.Ranks(
        cells, shared.with_columns(total_ns=per_rank).drop("ranks"), of_ranks.overlaps
    )


def _name(source: str) -> str:
    return source.rstrip("/").rpartition("/")[2]


def of_all(whole: Partial, keys: pl.DataFrame) -> ranks.Ranks:
    """Return the ranks of all files in the steps that all of them have."""
    cells = whole.frames["cells"].join(keys, on=_WHOSE).drop(_WHOSE)
    cells = cells.filter(pl.len().over("step") == keys.height).sort("step", "rank")
    ops = whole.frames["ops"].join(keys, on=_WHOSE).drop(_WHOSE)
    timed = bool(whole.members["timed"].all())
    return ranks.Ranks(cells.select("step", "rank", pl.exclude("step", "rank")), ops, timed)
