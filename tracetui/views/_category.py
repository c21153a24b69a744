"""Colours of kernel categories, the same in every view, and their legends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from capture.native.schema import CATEGORIES
from capture.run import Run
from tracetui.analysis.frames.selection import map_to_categories
from tracetui.look import Look
from tracetui.views import Answer, TableStyle, ink
from tracetui.views.ink import DrawSize, Line

NO_CATEGORY: Final = "other"
CATEGORIES_PART: Final = "categories"  # part of an answer, for `find_categories`
MIN_LEGEND_LINES: Final = 12  # height of a drawing from which it has a legend

CategoryFinder = Callable[[pl.DataFrame], Sequence[str | None]]  # rows → the category of each


def resolve_category(category: str | None) -> str:
    """Return a category that has a colour: the one given, else NO_CATEGORY."""
    return category if category in CATEGORIES else NO_CATEGORY


def select_ink_style(category: str | None) -> str:
    """Return the style of a mark or bar of a category."""
    return f"cat_{resolve_category(category)}"


def select_ground_style(category: str | None) -> str:
    """Return the style of text on the colour of a category."""
    return f"on_{resolve_category(category)}"


def select_name_style(category: str | None) -> str:
    """Return the style of a name of a category; without a category it is plain."""
    return select_ink_style(category) if category in CATEGORIES else ""


def build_category_part(runs: Sequence[Run], *columns: str) -> dict[str, pl.DataFrame]:
    """Build the part of an answer that `find_categories` reads: values of columns and their category."""
    pairs = [pair for run in runs for column in columns for pair in map_to_categories(run, column).items()]
    schema = {"value": pl.String, "category": pl.String}
    return {CATEGORIES_PART: pl.DataFrame(pairs, schema=schema, orient="row")}


def find_categories(parts: Mapping[str, pl.DataFrame], values: Iterable[Any]) -> list[str | None]:
    """Return the category of each value, None if unknown."""
    pairs = dict(parts[CATEGORIES_PART].iter_rows()) if CATEGORIES_PART in parts else {}
    return [pairs.get(value) for value in values]


def build_style_by_column(runs: Sequence[Run], column: str, displayed: str) -> TableStyle:
    """Return the style of a table whose column `displayed` has the values of the events' column `column`."""
    pairs = build_category_part(runs, column)

    def find_row_categories(rows: pl.DataFrame) -> Sequence[str | None]:
        values = (str(value).lstrip(" ") for value in rows[displayed]) if rows.width else ()
        return find_categories(pairs, values)

    return build_table_style(find_row_categories, displayed, displayed)


def list_row_categories(rows: pl.DataFrame) -> Sequence[str | None]:
    """Return the `category` column of the rows, or Nones if there is none."""
    return rows["category"].cast(pl.String).to_list() if "category" in rows.columns else [None] * rows.height


def build_table_style(
    find_row_categories: CategoryFinder = list_row_categories, column: str = "category", *names: str
) -> TableStyle:
    """Return the style of a table whose rows have a category, found from the column `column`.

    The columns `names` (default: the first) get its colour.
    """
    return TableStyle(
        partial(select_cell_styles, find_row_categories=find_row_categories, names=names),
        legend=partial(draw_legend, find_row_categories=find_row_categories, column=column),
        wide_names=True,
    )


def select_cell_styles(
    rows: pl.DataFrame, find_row_categories: CategoryFinder = list_row_categories, names: Sequence[str] = ()
) -> dict[str, Sequence[str]]:
    """Return the styles of the names and of the categories of rows."""
    styles = [select_name_style(category) for category in find_row_categories(rows)]
    return dict.fromkeys((*(names or rows.columns[:1]), "category"), styles)


def draw_legend(
    rows: pl.DataFrame, find_row_categories: CategoryFinder = list_row_categories, column: str = "category"
) -> Line:
    """Draw the legend of the categories in a column of the rows."""
    if column not in rows.columns:
        return ()
    return draw_category_legend(find_row_categories(rows.select(pl.col(column).unique())))


def draw_category_legend(categories: Iterable[str | None]) -> Line:
    """Draw each category in its colour; nothing for fewer than two."""
    present = {*categories}
    names = [category for category in CATEGORIES if category in present]
    if len(names) < 2:
        return ()
    return ink.make_line(("colours: ", "dim"), *((f"{c}  ", select_ink_style(c)) for c in names))


def draw_legend_below(categories: Iterable[str | None], size: DrawSize) -> list[Line]:
    """Draw the legend below a drawing; nothing without colours, or if it would displace rows."""
    legend = draw_category_legend(categories)
    return [legend] if legend and size.colours and size.height >= MIN_LEGEND_LINES else []


def draw_table_above_chart(
    answer: Answer,
    look: Look,
    size: DrawSize,
    columns: Sequence[str],
    styles: Mapping[str, Sequence[str]] = MappingProxyType({}),
    headings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Line], DrawSize]:
    """Draw the rows with names in the colours of their categories; also return the size of a chart below.

    The columns that rows are sorted by have a sign; `headings` are those that differ from the usual ones.
    """
    below = size.height // 2 if size.height >= 16 else 0
    name = answer.key[0]
    categories = find_categories(answer.parts, answer.rows[name])
    tones = {**styles, name: [*map(select_name_style, categories)]}
    room = size.with_height(min(answer.rows.height + 1, size.height - below))
    titles = ink.mark_headings((name, *columns), look.sort_orders, headings)
    table = ink.draw_table(answer.rows, room, (name, *columns), look.cursor[0], tones, titles)
    table += draw_legend_below(categories, size)
    return table, size.with_height(size.height - len(table))
