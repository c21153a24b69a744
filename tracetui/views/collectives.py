"""Collectives: each split over ranks into arrival (who was late, by what) and transfer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.look import Look
from tracetui.views import Answer, Merging, View
from tracetui.views.ranks import NO_COLLECTIVES, SAME_RANK

NO_CALLS: Final = "no collective that all ranks ran equally often matches this filter, phase and step range"
MAX_SENTENCES: Final = 3
_SHAPES: Final = {
    "calls": FrameShape(("member", "run", "own_rank", "name", "message", "number")),
    "ops": FrameShape(("member", "run", "own_rank", "name", "message", "op")),
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per collective and message size."""
    from tracetui.analysis.collective_times import find_calls  # numpy loads with the first question

    return _build_answer(*find_calls(runs[0], look))


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the same for ranks that wrote one file each."""
    from tracetui.analysis.ranks import assign_ranks

    del look
    keys, guess = assign_ranks(merged, "calls")
    if keys.is_empty():
        return Answer(pl.DataFrame(), (SAME_RANK if merged.frames["calls"].height else NO_COLLECTIVES,))
    on = ["member", "run", "own_rank"]
    calls, ops = (merged.frames[name].join(keys, on=on).drop(on) for name in ("calls", "ops"))
    plain = _build_answer(calls, ops)
    return Answer(plain.rows, (*plain.notes, *(f"assumed: {text}" for text in guess)), plain.key)


def _build_answer(calls: pl.DataFrame, ops: pl.DataFrame) -> Answer:
    from tracetui.analysis.collective_times import split_collectives

    table, left_out = split_collectives(calls, ops)
    if table.is_empty():
        return Answer(pl.DataFrame(), (NO_CALLS if calls.height else NO_COLLECTIVES,))
    rows = table.to_dicts()
    notes = [
        *map(_describe_row, rows[:MAX_SENTENCES]),
        "clocks of the ranks are aligned by the ends of collectives",
    ]
    if left_out:
        notes.append(f"{left_out:,} calls are left out: not all ranks have them")
    return Answer(table, tuple(notes), ("name", "message"))


def _describe_row(row: Mapping[str, Any]) -> str:
    """Describe a row: gloo:all_reduce (n=4000000): arrival 20 ms + transfer 14 ms a call; rank 1 is late."""
    arrival, transfer = (units.format_duration(row[c]) for c in ("arrival_ns", "transfer_ns"))
    size = f" ({row['message']})" if row["message"] != "–" else ""
    parts = f"{row['name']}{size}: {row['verdict']}, {arrival} to arrive and {transfer} to transfer per call"
    if row["rank"] is None:
        return f"{parts}; no rank is late evidently"
    by = (
        "before it, outside kernels (its host, or a gap)"
        if row["cause"] == "no kernel"
        else f"by {row['cause']}"
    )
    late = units.format_duration(row["late_ns"])
    return f"rank {row['rank']} arrives {late} late at {parts}; {by}"


def compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    """Return the contribution of one file."""
    from tracetui.analysis.collective_times import collect_calls

    return collect_calls(run, look)


VIEW = View(
    "collectives",
    "Collectives",
    answer,
    needs=frozenset({"dur", "t", "step", "several:ranks"}),
    merging=Merging(compute_partial, _SHAPES, finish_answer, needs=frozenset({"dur", "t", "step"})),
    default_group="track",
    columns=(
        "name", "message", "verdict", "arrival_ns", "transfer_ns", "rank", "late_ns", "cause", "best_ns",
        "calls", "late_calls", "arrival_share", "p", "total_ns",
    ),
)  # fmt: skip
