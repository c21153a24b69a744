"""Categories in drawings and tables: each has one colour in every view, and a legend tells which."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import polars as pl

from capture.native.schema import CATEGORIES
from capture.run import Run
from tracetui.analysis.categories import categories
from tracetui.views import Dress, ink
from tracetui.views.ink import Line, Size

PLAIN: Final = "other"
PART: Final = "categories"  # the frame of an answer in which a drawing finds what is `known`
ROOM_FOR_LEGEND: Final = 12  # lines of a drawing from which it tells its colours

Found = Callable[[pl.DataFrame], Sequence[str | None]]  # the category of each row; None where it has none


def coloured(category: str | None) -> str:
    """Return the category whose colour something has: its own, else that of what is no category."""
    return category if category in CATEGORIES else PLAIN


def inked(category: str | None) -> str:
    """Return the style of a mark or a bar of a category."""
    return f"cat_{coloured(category)}"


def grounded(category: str | None) -> str:
    """Return the style of a text on the colour of a category."""
    return f"on_{coloured(category)}"


def toned(category: str | None) -> str:
    """Return the style of a name of a category, which without one is plain."""
    return inked(category) if category in CATEGORIES else ""


def known(runs: Sequence[Run], *columns: str) -> dict[str, pl.DataFrame]:
    """Return a part of an answer, for `of_values`: the values of columns that stand for one category."""
    pairs = [pair for run in runs for column in columns for pair in categories(run, column).items()]
    return {PART: pl.DataFrame(pairs, schema={"value": pl.String, "category": pl.String}, orient="row")}


def of_values(parts: Mapping[str, pl.DataFrame], values: Iterable[Any]) -> list[str | None]:
    """Return the category of each value, as far as it is known of it."""
    pairs = dict(parts[PART].iter_rows()) if PART in parts else {}
    return [pairs.get(value) for value in values]


def by(runs: Sequence[Run], column: str, shown: str) -> Dress:
    """Return the dress of a table whose column `shown` has the values that events have in a column."""
    pairs = known(runs, column)

    def found(rows: pl.DataFrame) -> Sequence[str | None]:
        return of_values(pairs, (str(value).lstrip(" ") for value in rows[shown])) if rows.width else ()

    return dress(found, shown, shown)


def stated(rows: pl.DataFrame) -> Sequence[str | None]:
    """Return the categories that stand in the rows."""
    return rows["category"].cast(pl.String).to_list() if "category" in rows.columns else [None] * rows.height


def dress(found: Found = stated, of: str = "category", *names: str) -> Dress:
    """Return the dress of a table whose rows have a category: in a column, or as it is found of another one;
    the columns of names have its colour, else the first one.
    """
    return Dress(
        partial(tones, found=found, names=names),
        legend=partial(legend, found=found, of=of),
        wide_names=True,
    )


def tones(rows: pl.DataFrame, found: Found = stated, names: Sequence[str] = ()) -> dict[str, Sequence[str]]:
    """Return the styles of the names and of the categories of rows."""
    styles = [toned(category) for category in found(rows)]
    return dict.fromkeys((*(names or rows.columns[:1]), "category"), styles)


def legend(rows: pl.DataFrame, found: Found = stated, of: str = "category") -> Line:
    """Return what the colours of rows mean, whose categories are found of a column."""
    return told(found(rows.select(pl.col(of).unique()))) if of in rows.columns else ()


def told(categories: Iterable[str | None]) -> Line:
    """Return each category in its colour; nothing where there are no two to tell apart."""
    here = {*categories}
    names = [category for category in CATEGORIES if category in here]
    return ink.line(("colours: ", "dim"), *((f"{c}  ", inked(c)) for c in names)) if len(names) > 1 else ()


def below(categories: Iterable[str | None], size: Size) -> list[Line]:
    """Return the legend as what stands below a drawing; nothing where nobody sees
    colours, or it would take the room of rows.
    """
    legend = told(categories)
    return [legend] if legend and size.colours and size.height >= ROOM_FOR_LEGEND else []
