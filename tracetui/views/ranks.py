"""Ranks: what each works and waits in a step, the skew between them, and the stragglers with evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select
from tracetui.analysis.partial.algebra import Partial, Shape
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View

if TYPE_CHECKING:
    from tracetui.analysis.ranks import Ranks

SAME_RANK: Final = "several files are of the same rank: name those of one launch"
NOTHING: Final = "no step that all ranks have matches this filter, phase and window"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a rank, or grouped by step one row a step."""
    from tracetui.analysis.ranks import compared, phase_of  # numpy loads with the first question

    run = runs[0]
    notes = [*select.stopwatch(run, look), *select.folding(run)]
    tracks = select.rank_tracks(run)
    parts = {"tracks": pl.DataFrame({"track": list(tracks), "rank": list(tracks.values())})}
    return replace(_told(compared(run, look), look, phase_of(run, look), notes), parts=parts)


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the same of ranks that wrote a file each."""
    from tracetui.analysis.partial.ranks import numbered, of_all, places_of

    keys, guess = numbered(whole)
    members = whole.members
    if keys.is_empty() and whole.frames["cells"].height:
        return Answer(pl.DataFrame(), (SAME_RANK,))
    phases, notes = members["phase"].drop_nulls().unique(), members["notes"].drop_nulls().unique().sort()
    phase = str(phases[0]) if phases.len() == 1 else None
    ranks, places = of_all(whole, keys), places_of(whole, keys)
    told = _told(ranks, look, phase, [line for text in notes for line in text.splitlines()])
    late = [line for by in ("host", "switch") for line in _late_places(ranks, places, by, look)]
    rows = told.rows
    if "rank" in told.rows.columns and places.width > 1 and not look.merged:
        rows = rows.join(places, on="rank", how="left", maintain_order="left")
        rows = rows.select("rank", *places.columns[1:], pl.exclude(places.columns))
    notes_of_all = (*told.notes, *late, *(f"a guess: {text}" for text in guess))
    return replace(told, rows=rows, notes=notes_of_all, parts={"files": keys.select("rank", "member")})


def _late_places(ranks: "Ranks", places: pl.DataFrame, by: str, look: Look) -> list[str]:
    """Return a note for each host, or switch, whose ranks take longer than those of the others."""
    from tracetui.analysis.partial.ranks import together
    from tracetui.analysis.ranks import rank_table

    found = together(ranks, places, by)
    if found is None:
        return []
    names, as_ranks = found
    late = rank_table(as_ranks, look).filter(pl.col("verdict") == "slower")
    late = late.sort("behind_ns", descending=True)
    return [_straggler(as_ranks, row, f"{by} {names[row['rank']]}") for row in late.iter_rows(named=True)]


def _told(ranks: "Ranks", look: Look, phase: str | None, more: Sequence[str]) -> Answer:
    """Return the answer about ranks, with notes on their skew and their stragglers in front of others."""
    from tracetui.analysis.ranks import rank_table, step_skews

    if len(ranks.numbers) < 2:
        return Answer(pl.DataFrame(), (NOTHING, *more))
    table, skews = rank_table(ranks, look), step_skews(ranks)
    notes = (
        f"{len(ranks.numbers)} ranks in {ranks.steps} {f'{phase} ' if phase else ''}steps",
        _skew(skews),
        *_stragglers(ranks, table),
        *_scope(ranks, table),
        *more,
    )
    return Answer(skews, notes, ("step",)) if look.group == "step" else Answer(table, notes, ("rank",))


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    from tracetui.analysis.partial.ranks import partial

    return partial(run, look)


def _skew(skews: pl.DataFrame) -> str:
    middle, share = skews["skew_ns"].median(), skews["skew_share"].median()
    text = f"skew of the work in a step, slowest less fastest: {units.duration(_float(middle))} at the median"
    return text if share is None else f"{text}, {units.share(_float(share))} of the slowest"


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _stragglers(ranks: "Ranks", table: pl.DataFrame) -> list[str]:
    """Return a note for every rank whose work is longer than the others', with its evidence."""
    late = table.filter(pl.col("verdict") == "slower").sort("behind_ns", descending=True)
    if late.is_empty():
        if table["p"].null_count() == table.height:
            return ["too few steps to tell a straggler"]
        return ["no straggler: no rank is behind with evidence"]
    return [_straggler(ranks, row) for row in late.iter_rows(named=True)]


def _straggler(ranks: "Ranks", row: dict[str, float], who: str = "") -> str:
    from tracetui.analysis.ranks import excess

    low, high = (units.duration(row[c]) for c in ("behind_low_ns", "behind_high_ns"))
    most = excess(ranks, int(row["rank"]))
    who = who or f"rank {row['rank']}"
    where = f"; most of it in {most[0]}, {units.difference(most[1])} a step" if most else ""
    return (
        f"straggler: {who}, whose work takes {units.duration(row['behind_ns'])} "
        f"({units.share(row['behind_share'])}) longer than that of the others, "
        f"95 % interval {low} to {high}, slowest in {row['slowest']} of {row['steps']} steps{where}"
    )


def _scope(ranks: "Ranks", table: pl.DataFrame) -> list[str]:
    notes = []
    if table["comm_ns"].sum() == 0:
        notes.append("no collective is among the rows: all of their time counts as work")
    elif ranks.overlaps:
        notes.append("comm holds the wait for other ranks; exposed is what of it no work of the rank hides")
    if not ranks.overlaps:
        notes.append("this source does not tell moments: times are sums, also of what overlaps")
    return notes


def enter(answer: Answer, look: Look) -> Focus:
    """Return a step, or the track of a rank that has but one."""
    row = look.cursor[0]
    if not answer.key or not 0 <= row < answer.rows.height:
        return ()
    name = answer.key[0]
    value = answer.rows[row, name]
    if name == "step" or "tracks" not in answer.parts:
        return ((name, value),)
    own = answer.parts["tracks"].filter(pl.col("rank") == value)["track"]
    return (("track", own[0]),) if own.len() == 1 else ()


SHAPES: Final = {
    "cells": Shape(("member", "run", "own", "step")),
    "ops": Shape(("member", "run", "own", "op")),
}

VIEW = View(
    "ranks",
    "Ranks",
    answer,
    needs=frozenset({"dur", "step", "several:ranks"}),
    merging=Merging(_contribution, SHAPES, of_many, needs=frozenset({"dur", "step"})),
    group="track",
    enter=enter,
    columns=(
        "rank",
        "step",
        "host",
        "switch",
        "work_ns",
        "comm_ns",
        "behind_ns",
        "verdict",
        "slowest",
        "fastest",
        "skew_ns",
        "skew_share",
        "comm_share",
        "wall_ns",
        "trend",
        "behind_share",
        "exposed_share",
        "slowest_ns",
        "fastest_ns",
        "steps",
        "behind_low_ns",
        "behind_high_ns",
        "p",
    ),
)
