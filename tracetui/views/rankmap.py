"""Rank map: a heat map of rank by step, each cell held against the median of all ranks in its step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis.partial.algebra import Partial
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, ink
from tracetui.views import ranks as ranks_view
from tracetui.views._grid import Cell, changed, drawn, entered, grid, legend
from tracetui.views.ink import Line, Size

if TYPE_CHECKING:
    from tracetui.analysis.ranks import Ranks

TIMES: Final = ("work_ns", "comm_ns", "exposed_ns")  # what may be drawn: the sort column, else the first
_MIDDLE: Final = "_middle"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a rank and step."""
    from tracetui.analysis.ranks import compared

    return _told(compared(runs[0], look), look)


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the same of ranks that wrote a file each."""
    from tracetui.analysis.partial.ranks import numbered, of_all, places_of

    keys, guess = numbered(whole)
    if keys.is_empty():
        return Answer(pl.DataFrame(), (ranks_view.SAME_RANK,))
    told = _told(of_all(whole, keys), look)
    rows, places = told.rows, places_of(whole, keys)
    if rows.height and places.width > 1 and not look.merged:
        rows = rows.join(places, on="rank", how="left", maintain_order="left")
    notes = (*told.notes, *(f"a guess: {text}" for text in guess))
    return Answer(rows, notes, told.key, {"files": keys.select("rank", "member")})


def _told(ranks: "Ranks", look: Look) -> Answer:
    if len(ranks.numbers) < 2:
        return Answer(pl.DataFrame(), (ranks_view.NOTHING,))
    middle = pl.col("work_ns").median().over("step")
    rows = ranks.cells.sort("rank", "step").select(
        "rank",
        "step",
        "work_ns",
        "comm_ns",
        exposed_ns=pl.col("busy_ns") - pl.col("work_ns"),
        behind_share=pl.when(middle > 0).then(pl.col("work_ns") / middle - 1),
    )
    what = units.heading(_drawn(look))
    notes = (
        f"{len(ranks.numbers)} ranks in {ranks.steps} steps; colours hold the {what} of a rank against the "
        "median of all ranks in the same step",
        "sort by work, comm or exposed to see another of them",
    )
    return Answer(rows, notes, ("rank", "step"))


def _drawn(look: Look) -> str:
    return look.sort if look.sort in TIMES else TIMES[0]


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw ranks down and steps across; the last line describes the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    what = _drawn(look)
    middles = answer.rows.with_columns(pl.col(what).median().over("step").alias(_MIDDLE))
    shown = grid(Answer(middles.sort("rank", "step"), key=answer.key), look, what)
    wide = shown.wide(size)

    def paint(cell: Cell | None, _: Any, here: bool) -> ink.Span:
        """Return the cell as a span."""
        change = None if cell is None or not cell[_MIDDLE] else 100 * (cell[what] / cell[_MIDDLE] - 1)
        if change is None:
            return ink.Span(" " * wide, "cursor" if here else "")
        span = changed(change, wide, glyphs.DRIFTS, glyphs.DRIFTS[0], ascii=size.ascii)
        return ink.Span(span.text, "cursor") if here else span

    scale = legend(glyphs.DRIFTS, "median", wide, size, "over the median of all ranks")
    return drawn(shown, size, paint, [scale, _cursor_line(shown.here)])


def _cursor_line(cell: Cell | None) -> Line:
    if cell is None:
        return ink.line(("nothing ran here", "dim"))
    times = "  ".join(f"{units.heading(c)} {units.duration(cell[c])}" for c in TIMES)
    behind = cell["behind_share"]
    words = "" if behind is None else f"  {behind:+.1%} of the median"
    where = (
        " on " + " behind ".join(filter(None, map(cell.get, ("host", "switch")))) if cell.get("host") else ""
    )
    return ink.line((f"rank {cell['rank']}{where}, step {cell['step']}: ", "dim"), times, words)


def enter(answer: Answer, look: Look) -> Focus:
    """Return the step under the cursor; of ranks that wrote a file each the rank as well."""
    cell = entered(answer, look, _drawn(look))
    return cell if "files" in answer.parts else tuple(part for part in cell if part[0] == "step")


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    from tracetui.analysis.partial.ranks import partial

    return partial(run, look)


VIEW = View(
    "rankmap",
    "Rank map",
    answer,
    draw,
    needs=ranks_view.VIEW.needs,
    merging=Merging(_contribution, ranks_view.SHAPES, of_many, needs=frozenset({"dur", "step"})),
    group="track",
    enter=enter,
    columns=("rank", "step", "work_ns", "comm_ns", "exposed_ns", "behind_share", "host", "switch"),
)
