"""Rank map: a heat map of rank by step, each cell relative to the median of all ranks in its step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, ink
from tracetui.views import ranks as ranks_view
from tracetui.views._grid import Cell, ChangeScale, build_grid, draw_grid, find_cell_focus
from tracetui.views.ink import DrawSize, Line

if TYPE_CHECKING:
    from tracetui.analysis.ranks import RankTimes

TIME_COLUMNS: Final = ("work_ns", "comm_ns", "exposed_ns")  # drawn is the one sorted by, else the first
MIN_RANKS: Final = 3  # of two, each is as far from the median
_MEDIAN: Final = "_median"  # column
_BOUNDS_PCT: Final = glyphs.CHANGE_BOUNDS_PCT
_SCALE: Final = ChangeScale(_BOUNDS_PCT, _BOUNDS_PCT[0], "median", "over the median of all ranks")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per rank and step."""
    from tracetui.analysis.ranks import compare_ranks

    return _build_answer(compare_ranks(runs[0], look), look)


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the same for ranks that wrote one file each."""
    from tracetui.analysis.ranks import assign_ranks, combine_ranks, locate_ranks

    keys, guess = assign_ranks(merged)
    if keys.is_empty():
        return Answer(pl.DataFrame(), (ranks_view.SAME_RANK,))
    plain = _build_answer(combine_ranks(merged, keys), look)
    rows, places = plain.rows, locate_ranks(merged, keys)  # rank, and its host and switch if known
    if rows.height and places.width > 1 and not look.merged:
        rows = rows.join(places, on="rank", how="left", maintain_order="left")
    notes = (*plain.notes, *(f"assumed: {text}" for text in guess))
    return Answer(rows, notes, plain.key, {"files": keys.select("rank", "member")})


def _build_answer(ranks: "RankTimes", look: Look) -> Answer:
    if len(ranks.ranks) < 2:
        return Answer(pl.DataFrame(), (ranks_view.NO_COMMON_STEP,))
    median = pl.col("work_ns").median().over("step")
    rows = ranks.cells.sort("rank", "step").select(
        "rank",
        "step",
        "work_ns",
        "comm_ns",
        exposed_ns=pl.col("busy_ns") - pl.col("work_ns"),
        behind_share=pl.when(median > 0).then(pl.col("work_ns") / median - 1),
    )
    if not ranks.has_collectives:
        rows = rows.with_columns(pl.when(pl.lit(False)).then(pl.col("comm_ns", "exposed_ns")))
    what = units.format_heading(_choose_time_column(look))
    notes = (
        f"{len(ranks.ranks)} ranks in {ranks.step_count} steps; colours compare the {what} of a rank "
        "with the median of all ranks in that step",
        _describe_choice(ranks),
        *_describe_furthest(rows),
    )
    return Answer(rows, notes, ("rank", "step"))


def _describe_choice(ranks: "RankTimes") -> str:
    """Return a sentence on the times that can be drawn."""
    if not ranks.has_collectives:
        return f"{ranks_view.NO_COLLECTIVES}: nothing but work can be drawn"
    return "sort by work, comm or exposed to draw another time"


def _describe_furthest(rows: pl.DataFrame) -> list[str]:
    """Name the rank whose work is furthest above the median, which may be outside the picture."""
    medians = (
        rows.group_by("rank").agg(pl.col("behind_share").median()).drop_nulls().sort("behind_share", "rank")
    )
    if medians.height < MIN_RANKS:
        return []
    rank, share = medians.row(-1)
    return [f"most work: rank {rank}, {share:+.1%} against the median in its middle step; `ranks` judges it"]


def _choose_time_column(look: Look) -> str:
    """Return the time to draw: the first sort column, by name or heading, if it is a time, else work."""
    word = (look.sort or "").split(",")[0]
    return next((c for c in TIME_COLUMNS if word in (c, units.format_plain_heading(c))), TIME_COLUMNS[0])


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw ranks down and steps across; the last line describes the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    column = _choose_time_column(look)
    rows = answer.rows.with_columns(pl.col(column).median().over("step").alias(_MEDIAN))
    grid = build_grid(Answer(rows.sort("rank", "step"), key=answer.key), look, column)

    def find_change_pct(cell: Cell) -> float | None:
        return 100 * (cell[column] / cell[_MEDIAN] - 1) if cell[_MEDIAN] else None

    return draw_grid(grid, size, _SCALE, find_change_pct, _draw_cursor_line(grid.cell_at_cursor))


def _draw_cursor_line(cell: Cell | None) -> Line:
    if cell is None:
        return ink.make_line(("nothing ran here", "dim"))
    times = "  ".join(
        f"{units.format_heading(c)} {units.format_duration(cell[c])}"
        for c in TIME_COLUMNS
        if cell[c] is not None
    )
    behind = "" if cell["behind_share"] is None else f"  {cell['behind_share']:+.1%} of the median"
    places = " behind ".join(filter(None, map(cell.get, ("host", "switch"))))
    where = f" on {places}" if cell.get("host") else ""
    return ink.make_line((f"rank {cell['rank']}{where}, step {cell['step']}: ", "dim"), times, behind)


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the step under the cursor; for ranks with a file each, the rank as well."""
    cell = find_cell_focus(answer, look, _choose_time_column(look))
    return cell if "files" in answer.parts else tuple(part for part in cell if part[0] == "step")


VIEW = View(
    "rankmap",
    "Rank map",
    answer,
    draw,
    needs=ranks_view.VIEW.needs,
    merging=Merging(
        ranks_view.compute_partial, ranks_view.SHAPES, finish_answer, needs=frozenset({"dur", "step"})
    ),
    default_group="track",
    find_focus=find_focus,
    columns=("rank", "step", "work_ns", "comm_ns", "exposed_ns", "behind_share", "host", "switch"),
)
