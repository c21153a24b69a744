"""Ranks: work and waiting of each rank per step, skew between ranks, and stragglers with evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, find_cursor_row

if TYPE_CHECKING:
    from tracetui.analysis.ranks import RankTimes

SAME_RANK: Final = "several files have the same rank: name those of one launch"
NO_COMMON_STEP: Final = "no step common to all ranks matches this filter, phase and step range"
NO_COLLECTIVES: Final = "no collectives are recorded among these rows"
MOSTLY_SHARE: Final = 0.5  # of a delay: an op with less does not explain it
SHAPES: Final = {
    "cells": FrameShape(("member", "run", "own_rank", "step")),
    "ops": FrameShape(("member", "run", "own_rank", "op", "comm")),
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per rank; grouped by step, one row per step."""
    from tracetui.analysis.ranks import compare_ranks, resolve_phase  # numpy loads with the first question

    run = runs[0]
    notes = [*selection.note_lens(run, look), *selection.note_folding(run)]
    tracks = selection.find_rank_tracks(run)
    parts = {"tracks": pl.DataFrame({"track": list(tracks), "rank": list(tracks.values())})}
    plain = _build_answer(compare_ranks(run, look), look, resolve_phase(run, look), notes)
    return replace(plain, parts=parts)


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the same for ranks that wrote one file each."""
    from tracetui.analysis.ranks import assign_ranks, combine_ranks, locate_ranks

    keys, guess = assign_ranks(merged)
    members = merged.members
    if keys.is_empty() and merged.frames["cells"].height:
        return Answer(pl.DataFrame(), (SAME_RANK,))
    phases, notes = members["phase"].drop_nulls().unique(), members["notes"].drop_nulls().unique().sort()
    phase = str(phases[0]) if phases.len() == 1 else None
    ranks, places = combine_ranks(merged, keys), locate_ranks(merged, keys)
    plain = _build_answer(ranks, look, phase, [line for text in notes for line in text.splitlines()])
    late = [line for by in ("host", "switch") for line in _describe_late_places(ranks, places, by, look)]
    rows = plain.rows
    if "rank" in rows.columns and places.width > 1 and not look.merged:
        rows = rows.join(places, on="rank", how="left", maintain_order="left")
        rows = rows.select("rank", *places.columns[1:], pl.exclude(places.columns))
    notes_of_all = (*plain.notes, *late, *(f"assumed: {text}" for text in guess))
    return replace(plain, rows=rows, notes=notes_of_all, parts={"files": keys.select("rank", "member")})


def _describe_late_places(ranks: "RankTimes", places: pl.DataFrame, by: str, look: Look) -> list[str]:
    """Return a note for each host, or switch, whose ranks take longer than the others."""
    from tracetui.analysis.ranks import average_by_host, compute_rank_table

    averages = average_by_host(ranks, places, by)
    if averages is None:
        return []
    names, as_ranks = averages
    late = _select_late(compute_rank_table(as_ranks, look))
    return [_describe_straggler(as_ranks, row, f"{by} {names[row['rank']]}") for row in late]


def _select_late(table: pl.DataFrame) -> list[dict[str, Any]]:
    late = table.filter(pl.col("verdict") == "slower").sort("behind_ns", descending=True)
    return late.to_dicts()


def _build_answer(ranks: "RankTimes", look: Look, phase: str | None, more: Sequence[str]) -> Answer:
    """Return the answer about ranks; notes on skew and stragglers come first."""
    from tracetui.analysis.ranks import compute_rank_table, compute_step_skews

    if len(ranks.ranks) < 2:
        return Answer(pl.DataFrame(), (NO_COMMON_STEP, *more))
    table, skews = compute_rank_table(ranks, look), compute_step_skews(ranks)
    notes = (
        *_describe_stragglers(ranks, table),
        f"{len(ranks.ranks)} ranks in {ranks.step_count} {f'{phase} ' if phase else ''}steps",
        _describe_skew(skews),
        *_describe_scope(ranks),
        *more,
    )
    return Answer(skews, notes, ("step",)) if look.group == "step" else Answer(table, notes, ("rank",))


def compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    """Return the contribution of one file."""
    from tracetui.analysis.ranks import collect_rank_steps

    return collect_rank_steps(run, look)


def _describe_skew(skews: pl.DataFrame) -> str:
    median, share = skews.select(pl.median("skew_ns", "skew_share")).row(0)
    text = f"skew of work per step (slowest − fastest): median {units.format_duration(median or 0)}"
    return text if share is None else f"{text}, {units.format_share(share)} of the slowest"


def _describe_stragglers(ranks: "RankTimes", table: pl.DataFrame) -> list[str]:
    """Return a note for every late rank, with its evidence; else what would have been found."""
    from tracetui.analysis.frames.rank_permutation import DETECTABLE_SHARES, find_detectable_share

    if late := _select_late(table):
        return [_describe_straggler(ranks, row, f"rank {row['rank']}") for row in late]
    has_test = table["p"].null_count() < table.height
    share = find_detectable_share(ranks.build_own_matrix()) if has_test else None
    if share is None:
        return [f"too few steps to detect a straggler, even one that takes {1 + DETECTABLE_SHARES[-1]:.0f}×"]
    return [f"no straggler: a rank that takes {share:.0%} longer in each step would have been found"]


def _describe_straggler(ranks: "RankTimes", row: dict[str, Any], who: str) -> str:
    from tracetui.analysis.ranks import find_awaited_collective, find_largest_excess

    low, high = (units.format_duration(row[c]) for c in ("behind_low_ns", "behind_high_ns"))
    largest = find_largest_excess(ranks, int(row["rank"]))
    where = "outside kernels: on its host, or in gaps"
    if largest and largest[1] >= MOSTLY_SHARE * row["behind_ns"]:
        where = f"in {largest[0]}, {units.format_difference(largest[1])} per step"
    awaited = find_awaited_collective(ranks, int(row["rank"]))
    before = f" before {awaited.removeprefix('comm.')}" if awaited else ""
    return (
        f"straggler: {who} is late, {units.format_duration(row['behind_ns'])} behind the others{before}, "
        f"95 % interval {low} to {high}, slowest in {row['slowest']} of {row['steps']} steps; "
        f"most of it {where}"
    )


def _describe_scope(ranks: "RankTimes") -> list[str]:
    notes = []
    if not ranks.has_collectives:
        notes.append(f"{NO_COLLECTIVES}: waiting for other ranks counts as work")
    elif ranks.has_start_times:
        notes.append(
            "comm includes waiting for other ranks; exposed is the part not hidden by work of the rank"
        )
    if not ranks.has_start_times:
        notes.append("this source does not report start times: times are sums, including overlaps")
    return notes


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return a step, or the track of a rank that has only one."""
    row = find_cursor_row(answer, look)
    if row is None or not answer.key:
        return ()
    name = answer.key[0]
    value = row[name]
    if name == "step" or "tracks" not in answer.parts:
        return ((name, value),)
    tracks = answer.parts["tracks"].filter(pl.col("rank") == value)["track"]
    return (("track", tracks[0]),) if tracks.len() == 1 else ()


VIEW = View(
    "ranks",
    "Ranks",
    answer,
    needs=frozenset({"dur", "step", "several:ranks"}),
    merging=Merging(compute_partial, SHAPES, finish_answer, needs=frozenset({"dur", "step"})),
    default_group="track",
    find_focus=find_focus,
    columns=(
        "rank", "step", "host", "switch", "work_ns", "comm_ns", "behind_ns", "verdict", "slowest", "fastest",
        "skew_ns", "skew_share", "comm_share", "wall_ns", "trend", "behind_share", "exposed_share",
        "slowest_ns", "fastest_ns", "steps", "behind_low_ns", "behind_high_ns", "p",
    ),
)  # fmt: skip
