"""What grows in a run, in words: by how much, from where to where, and where it meets the largest other."""

from typing import Any, Final

import polars as pl

from tracetui import units
from tracetui.analysis.growth import Growth

LAWS: Final = ("linear", "step")  # laws of what moves; the others stay or scatter
MOST: Final = 3  # that are told
FORESEEN: Final = 100  # times the longest x that was seen: lines are followed no further

_OF: Final = {"context": "1k tokens of context", "tokens": "1k tokens generated", "step": "1k steps"}
_AT: Final = {"context": "context", "tokens": "token", "step": "step"}


def names(fitted: Growth) -> list[Any]:
    """Return the rows that grow, the one whose line rises the most over the run first."""
    return _rising(fitted)["row"].to_list()


def sentences(fitted: Growth) -> list[str]:
    """Return a sentence for each of the rows that grow the most."""
    return [_sentence(fitted, row) for row in _rising(fitted).head(MOST).iter_rows(named=True)]


def _rising(fitted: Growth) -> pl.DataFrame:
    """Return the lines that rise, with the first and last x of their rows."""
    extent = fitted.series.group_by("row").agg(
        first=pl.col("x").min(), last=pl.col("x").max(), dur=pl.col("dur").sum()
    )
    lines = fitted.lines.join(extent, on="row", nulls_equal=True)
    rise = pl.col("slope") * (pl.col("last") - pl.col("first"))
    rising = lines.with_columns(rise=rise).filter(pl.col("law").is_in(LAWS), pl.col("rise") > 0)
    return rising.sort("rise", "row", descending=[True, False], nulls_last=True)


def _sentence(fitted: Growth, row: dict[str, Any]) -> str:
    """Return how a row grows: attn.core grows by +440 µs per 1k tokens of context: 9 µs at 1, 45 µs at 9."""
    slope, level, first, last = (row[c] for c in ("slope", "intercept", "first", "last"))
    ends = [f"{units.duration(level + slope * x)} at {units.number(round(x))}" for x in (first, last)]
    rate = f"{units.difference(1000 * slope)} per {_OF[fitted.axis]}"
    return f"{row['row'] or 'other'} grows by {rate}: {', '.join(ends)}{_crossing(fitted, row)}"


def _crossing(fitted: Growth, row: dict[str, Any]) -> str:
    """Return where the line of a row meets that of the largest other, as the end of a sentence."""
    dur = fitted.series.group_by("row").agg(dur=pl.col("dur").sum())
    others = fitted.lines.join(dur, on="row", nulls_equal=True)
    others = others.filter(pl.col("row").ne_missing(pl.lit(row["row"])), pl.col("slope").is_not_null())
    if others.is_empty():
        return ""
    other = others.sort("dur", "row", descending=[True, False], nulls_last=True).row(0, named=True)
    apart = row["slope"] - other["slope"]
    x = (other["intercept"] - row["intercept"]) / apart if apart > 0 else 0
    if not row["first"] < x <= FORESEEN * row["last"]:
        return ""
    name, place = other["row"] or "other", f"{_AT[fitted.axis]} {units.number(round(x))}"
    if x <= row["last"]:
        return f"; longer than {name} from {place} on"
    return f"; on this line as long as {name} at {place}"
