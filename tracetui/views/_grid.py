"""Draw a grid of cells: layers or ranks down, ops or steps across, the part around the cursor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import polars as pl

from capture.run import Run
from tracetui import glyphs
from tracetui.glyphs import count_cells, fit_cells
from tracetui.look import Look
from tracetui.views import Answer, Focus, choose_group, ink
from tracetui.views._category import draw_legend_below, select_name_style
from tracetui.views.ink import DrawSize, Line, Span

HEAD_CELLS: Final = 6  # for the number of a layer or rank
MIN_CELL_WIDTH, MAX_CELL_WIDTH = 2, 10  # of a grid cell, in terminal cells
FULL_LOSS_PCT: Final = 100  # nothing falls by this much or more
MIN_NUMBER_CELLS: Final = 6  # narrower cells show signs instead of numbers

Cell = dict[str, Any]  # a row of the answer


@dataclass(frozen=True)
class Grid:
    """The rows of an answer by row and column, and the position of the cursor."""

    row_name: str
    column_name: str
    rows: Sequence[Any]
    columns: Sequence[Any]
    cells: Mapping[tuple[Any, Any], Cell]
    row_index: int
    column_index: int
    is_on_heading: bool = False  # whether the cursor is on the heading of its row
    totals: Mapping[Any, Span] = field(
        default_factory=dict
    )  # of rows, all of one width; empty: none are shown

    @property
    def head_cells(self) -> int:
        """The cells left of the grid: the name of a row, and its total."""
        return HEAD_CELLS + max((count_cells(span.text) for span in self.totals.values()), default=0)

    @property
    def cell_at_cursor(self) -> Cell | None:
        """The row of the answer under the cursor, None for an empty cell or a heading."""
        return (
            None
            if self.is_on_heading
            else self.cells.get((self.rows[self.row_index], self.columns[self.column_index]))
        )

    def cell_width(self, size: DrawSize) -> int:
        """Return the width of a grid cell in terminal cells."""
        return max(MIN_CELL_WIDTH, min(MAX_CELL_WIDTH, (size.width - self.head_cells) // len(self.columns)))

    def select_columns(self, size: DrawSize) -> Sequence[Any]:
        """Return the visible columns."""
        fits = max(1, (size.width - self.head_cells) // self.cell_width(size))
        left = ink.find_first_visible(len(self.columns), fits, self.column_index)
        return self.columns[left : left + fits]

    def select_rows(self, height: int) -> Sequence[Any]:
        """Return the visible rows, at most `height`."""
        top = ink.find_first_visible(len(self.rows), height, self.row_index)
        return self.rows[top : top + max(1, height)]


def describe_cell(cell: Cell, column: str) -> str:
    """Return the position of a cell as text: layer 3, op attn.out."""
    across = cell[column]
    return f"layer {cell['layer']}, {f'unknown {column}' if across is None else f'{column} {across}'}"


def build_grid(answer: Answer, look: Look, weight: str, *, has_headings: bool = False) -> Grid:
    """Build the grid of an answer: rows and numeric columns in order, others by falling sum of `weight`.

    With `has_headings` the cursor can be left of the first column, on the heading of a row.
    """
    answer = select_largest_stack(answer, weight)
    row_name, column = answer.key
    rows = answer.rows[row_name].unique().sort().to_list()
    sums = answer.rows.group_by(column).agg(pl.col(weight).sum())
    if answer.rows.schema[column].is_numeric():
        sums = sums.sort(column)
    else:
        sums = sums.sort(weight, column, descending=[True, False], nulls_last=True)
    columns = sums[column].to_list()
    cells = {(r[row_name], r[column]): r for r in answer.rows.iter_rows(named=True)}
    row_index, column_index = (
        max(0, min(at, len(of) - 1)) for at, of in zip(look.cursor, (rows, columns), strict=True)
    )
    is_on_heading = has_headings and look.cursor[1] < 0
    return Grid(row_name, column, rows, columns, cells, row_index, column_index, is_on_heading)


def select_largest_stack(answer: Answer, weight: str) -> Answer:
    """Return the rows of the stack with the greatest sum of `weight`, of an answer that has several."""
    if answer.key[0] != "stack":
        return answer
    rows = answer.rows.filter(pl.col("stack") == find_largest_stack(answer.rows, weight))
    return replace(answer, rows=rows, key=answer.key[1:])


def find_largest_stack(rows: pl.DataFrame, weight: str) -> str:
    """Return the stack whose rows have the greatest sum of `weight`."""
    sums = rows.drop_nulls("stack").group_by("stack").agg(pl.col(weight).sum())
    return str(sums.sort(weight, "stack", descending=True)["stack"][0])


def choose_column(runs: Sequence[Run], look: Look) -> str:
    """Return the columns of a grid of layers: ops, unless another grouping is requested."""
    return choose_group(runs, None if look.group == "layer" else look.group)


class ChangeScale(NamedTuple):
    """How the cells of a grid show changes, and the words of its legend."""

    bounds_pct: Sequence[float]  # at which the colour changes
    min_number_pct: float  # smaller changes show a sign instead of a number
    same: str  # no change
    reference: str = ""  # what a change is relative to


def draw_grid(
    grid: Grid,
    size: DrawSize,
    scale: ChangeScale,
    find_change_pct: Callable[[Cell], float | None],
    cursor_line: Line,
    *,
    lead: Sequence[Line] = (),
    categories: Mapping[Any, str | None] = MappingProxyType({}),
    is_small: Callable[[Cell], bool] = lambda cell: False,
) -> list[Line]:
    """Draw a heading, a cell per change, `lead`, the legends and the cursor's line.

    `categories` maps columns to the category whose colour their heading has. Odd cells have a mark, small
    ones no colour.
    """
    columns, width, on_heading = grid.select_columns(size), grid.cell_width(size), grid.is_on_heading
    cursor = grid.rows[grid.row_index], grid.columns[grid.column_index]

    def draw_cell(row: Any, column: Any) -> Span:
        cell, span = grid.cells.get((row, column)), Span(" " * width)
        if cell is not None and (percent := find_change_pct(cell)) is not None:
            mark, least = "!" if cell.get("odd") else " ", scale.min_number_pct
            span = draw_change(percent, width, scale.bounds_pct, least, ascii=size.ascii, mark=mark)
            if is_small(cell):
                span = span._replace(style=glyphs.select_change_style(0, scale.bounds_pct))
        return span._replace(style="cursor") if (row, column) == cursor and not on_heading else span

    head = ink.make_line(_draw_corner(grid), *_draw_headings(columns, width, size, categories))
    legend = draw_legend_below(categories.values(), size)
    changes = draw_change_legend(scale.bounds_pct, scale.same, width, size, scale.reference)
    foot = [*(lead if any(lead) or not legend else ()), *legend, changes, cursor_line]
    rows, foot = _fit_rows(grid, columns, foot, size.height)
    tones = ["cursor" if on_heading and row == cursor[0] else "dim" for row in rows]
    body = [
        ink.make_line(*_draw_row_head(grid, row, tone), *(draw_cell(row, at) for at in columns))
        for row, tone in zip(rows, tones, strict=True)
    ]
    return ink.clip_lines([head, *body, *foot], size)


def _draw_corner(grid: Grid) -> Span:
    label = f"{grid.row_name:<{HEAD_CELLS}}"[:HEAD_CELLS]
    total = f"{'total':>{grid.head_cells - HEAD_CELLS - 1}} " if grid.totals else ""
    return Span(label + total, "title")


def _draw_row_head(grid: Grid, row: Any, tone: str) -> list[Span]:
    name = Span(f"{row!s:>{HEAD_CELLS - 1}} ", tone)
    return [name, grid.totals[row]] if row in grid.totals else [name]


def _fit_rows(
    grid: Grid, columns: Sequence[Any], foot: list[Line], height: int
) -> tuple[Sequence[Any], list[Line]]:
    """Return the rows that fit between the head and the foot, and the foot with what is out of sight."""
    rows = grid.select_rows(height - 1 - len(foot))
    if _describe_cut(grid, rows, columns):
        rows = grid.select_rows(height - 2 - len(foot))
        foot = [ink.make_line((_describe_cut(grid, rows, columns), "dim")), *foot]
    return rows, foot


def _describe_cut(grid: Grid, rows: Sequence[Any], columns: Sequence[Any]) -> str:
    """Describe which rows and columns are drawn; empty if all are."""
    sides = ((grid.row_name, rows, grid.rows), (grid.column_name, columns, grid.columns))
    return "; ".join(
        f"{name}: {len(drawn):,} of {len(every):,}"
        + (f" ({drawn[0]} to {drawn[-1]})" if drawn and all(isinstance(n, int) for n in drawn) else "")
        for name, drawn, every in sides
        if len(drawn) < len(every)
    )


def _draw_headings(
    columns: Sequence[Any], width: int, size: DrawSize, categories: Mapping[Any, str | None]
) -> list[Span]:
    """Draw a label over each cell; wide numbers stand over every second, third … cell."""
    labels = _shorten_labels(["–" if a is None else str(a) for a in columns], width - 1)
    stride = 1
    if all(isinstance(a, int) for a in columns):
        stride = -(-(max(map(len, labels)) + 1) // width)
    return [
        Span(
            fit_cells(label, stride * width - 1, right=stride == 1, ascii=size.ascii) + " ",
            select_name_style(categories.get(a)) or "title",
        )
        for a, label in list(zip(columns, labels, strict=True))[::stride]
    ]


def _shorten_labels(labels: Sequence[str], width: int) -> Sequence[str]:
    """Drop the part before the last dot of labels that do not fit, if they stay different."""
    if max(map(len, labels), default=0) <= width:
        return labels
    last = [label.rpartition(".")[2] for label in labels]
    return [short if last.count(short) == 1 else label for label, short in zip(labels, last, strict=True)]


def draw_change(
    percent: float, width: int, bounds: Sequence[float], least: float, *, ascii: bool, mark: str = " "
) -> Span:
    """Draw a cell in the colour of its change: per cent if at least `least` and wide enough, else signs.

    The signs need no colour; `mark` is the last character.
    """
    if width < MIN_NUMBER_CELLS:
        text = glyphs.format_change_sign(percent, ascii, bounds, width - 1).ljust(width - 1)
    else:
        level = glyphs.format_change_sign(0, ascii)
        text = f"{f'{percent:+.0f}%' if abs(percent) >= least or mark.strip() else level:>{width - 1}}"
    return Span(text + mark, glyphs.select_change_style(percent, bounds))


def draw_change_legend(
    bounds: Sequence[float], same: str, width: int, size: DrawSize, reference: str = ""
) -> Line:
    """Draw the legend of change colours and signs: `same` for no change; `reference` if it fits."""
    spans = [Span(" " * HEAD_CELLS, "dim")]
    for low in (*(-b for b in reversed(bounds) if b < FULL_LOSS_PCT), 0, *bounds):
        word = f"{low:+.0f}%" if low else same
        mark = glyphs.format_change_sign(low, size.ascii, bounds, width - 1)
        spans += [Span(f" {mark} {word} ", glyphs.select_change_style(low, bounds)), Span(" ")]
    room = size.width - sum(count_cells(span.text) for span in spans)
    return (*spans, *([Span(reference, "dim")] if reference and len(reference) <= room else []))


def find_cell_focus(answer: Answer, look: Look, weight: str, *, has_headings: bool = False) -> Focus:
    """Return the row and column under the cursor, with its stack; on the heading of a row, the row alone."""
    if answer.rows.is_empty():
        return ()
    has_stacks = answer.key[0] == "stack"
    stack: Focus = (("stack", find_largest_stack(answer.rows, weight)),) if has_stacks else ()
    grid = build_grid(answer, look, weight, has_headings=has_headings)
    row, column = grid.rows[grid.row_index], grid.columns[grid.column_index]
    if grid.is_on_heading:
        return *stack, (grid.row_name, row)
    return *stack, (grid.row_name, row), (grid.column_name, column)


def find_cell(answer: Answer, values: Mapping[str, Any], weight: str) -> tuple[int, int] | None:
    """Return the indices of the cell with these values of row and column, None if there is none."""
    if answer.rows.is_empty():
        return None
    grid = build_grid(answer, Look(), weight)
    row, column = ([*map(str, of)] for of in (grid.rows, grid.columns))
    at = str(values.get(grid.row_name)), str(values.get(grid.column_name))
    return (row.index(at[0]), column.index(at[1])) if at[0] in row and at[1] in column else None
