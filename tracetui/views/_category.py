"""Categories in tables: names in the colour that their category has in every view, and a legend."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl

from capture.native.schema import CATEGORIES
from tracetui.views import Dress, ink
from tracetui.views.ink import Line

Found = Callable[[pl.DataFrame], pl.Series]  # the category of each row; null where it has none


def dress(found: Found | None = None) -> Dress:
    """Return the dress of a table whose rows have a category: in a column, or as it is found."""

    def categories(rows: pl.DataFrame) -> pl.Series:
        if found is not None:
            return found(rows)
        return (
            rows["category"]
            if "category" in rows.columns
            else pl.Series([None] * rows.height, dtype=pl.String)
        )

    def tones(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
        styles = [_style(category) for category in categories(rows).cast(pl.String)]
        return {rows.columns[0]: styles, "category": styles}

    def legend(rows: pl.DataFrame) -> Line:
        return told(categories(rows).cast(pl.String).unique()) if rows.width else ()

    return Dress(tones, legend=legend, wide_names=True)


def told(categories: Iterable[str | None]) -> Line:
    """Return each category in its colour; nothing where there are no two to tell apart."""
    here = {*categories}
    names = [category for category in CATEGORIES if category in here]
    return ink.line(("colours: ", "dim"), *((f"{c}  ", _style(c)) for c in names)) if len(names) > 1 else ()


def _style(category: str | None) -> str:
    return f"cat_{category}" if category in CATEGORIES else ""
