"""Ranks: what each works and waits in a step, the skew between them, and the stragglers with evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select
from tracetui.look import Look
from tracetui.views import Answer, Focus, View

if TYPE_CHECKING:
    from tracetui.analysis.ranks import Ranks

NOTHING: Final = "no step that all ranks have matches this filter, phase and window"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a rank, or grouped by step one row a step."""
    from tracetui.analysis.ranks import (  # numpy loads with the first question
        compared,
        phase_of,
        rank_table,
        step_skews,
    )

    run = runs[0]
    ranks = compared(run, look)
    if len(ranks.numbers) < 2:
        return Answer(pl.DataFrame(), (NOTHING, *select.stopwatch(run, look)))
    table, skews = rank_table(ranks, look), step_skews(ranks)
    phase = phase_of(run, look)
    notes = [
        f"{len(ranks.numbers)} ranks in {ranks.steps} {f'{phase} ' if phase else ''}steps",
        _skew(skews),
        *_stragglers(ranks, table),
        *_scope(ranks, table),
        *select.stopwatch(run, look),
        *select.folding(run),
    ]
    if look.group == "step":
        return Answer(skews, tuple(notes), ("step",))
    tracks = select.rank_tracks(run)
    parts = {"tracks": pl.DataFrame({"track": list(tracks), "rank": list(tracks.values())})}
    return Answer(table, tuple(notes), ("rank",), parts)


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


def _straggler(ranks: "Ranks", row: dict[str, float]) -> str:
    from tracetui.analysis.ranks import excess

    low, high = (units.duration(row[c]) for c in ("behind_low_ns", "behind_high_ns"))
    most = excess(ranks, int(row["rank"]))
    where = f"; most of it in {most[0]}, {units.difference(most[1])} a step" if most else ""
    return (
        f"straggler: rank {row['rank']}, whose work takes {units.duration(row['behind_ns'])} "
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
    if name == "step":
        return ((name, value),)
    own = answer.parts["tracks"].filter(pl.col("rank") == value)["track"]
    return (("track", own[0]),) if own.len() == 1 else ()


VIEW = View(
    "ranks",
    "Ranks",
    answer,
    needs=frozenset({"dur", "step", "several:ranks"}),
    group="track",
    enter=enter,
    columns=(
        "rank",
        "step",
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
