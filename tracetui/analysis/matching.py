"""Which rows fit a filter: names as they are and as they are shown, ops, and terms on other columns."""

from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui import cancel, filters
from tracetui.analysis.facts import distinct, once
from tracetui.look import Term
from tracetui.shown_names import shown_name

KEPT: Final = 1 << 15  # names that are kept short
SOME: Final = 64  # of them in a few milliseconds


def term_fits(run: Run, term: Term) -> pl.Expr:
    """Return whether rows fit a term of the filter; none do where the run does not know the column."""
    if not run.has(term.column):
        return pl.lit(value=False)
    if term.how != "~":
        return filters.fits(pl.col(term.column), term)
    known = distinct(run, term.column)
    kept = known.filter(fitting(known.cast(pl.String), term.value))
    return pl.col(term.column).is_in(kept.implode())


def matching(rows: pl.LazyFrame, run: Run, pattern: str) -> pl.LazyFrame:
    """Return rows whose name, whole or as it is shown, or whose op fits the regular expression."""
    return rows.filter(fits(run, pattern)) if pattern else rows


def fits(run: Run, pattern: str) -> pl.Expr:
    """Return whether the name of a row, whole or as it is shown, or its op fits the regular expression."""
    named = pl.col("name").is_in(matching_names(run, pattern).implode())
    if not run.has("op"):
        return named
    return named | term_fits(run, Term("op", "~", pattern)).fill_null(value=False)


def matching_names(run: Run, pattern: str) -> pl.Series:
    """Return the names that fit the regular expression, whole or as they are shown."""
    names = distinct(run, "name")
    whole = fitting(names.cast(pl.String), pattern)
    rest = names.filter(~whole)
    return names.filter(whole).append(rest.filter(fitting(_as_shown(run, rest), pattern)))


def prepare(run: Run) -> None:
    """Find the names and ops that filters will ask for, and shorten the names, as far as they are kept; stops
    where it is cancelled.
    """
    nothing = pl.Series(dtype=pl.String)
    names, _ = (distinct(run, column) if run.has(column) else nothing for column in ("name", "op"))
    for some in names.head(KEPT).to_frame().iter_slices(SOME):
        cancel.check()
        _as_shown(run, some[:, 0])


def _as_shown(run: Run, names: pl.Series) -> pl.Series:
    """Return names as they are shown; each is shortened once, when it is first asked for."""
    known, texts = _shown(run), names.cast(pl.String).to_list()
    known |= {name: shown_name(name) for name in texts if name not in known}
    return pl.Series([known[name] for name in texts], dtype=pl.String)


@once
def _shown(run: Run) -> dict[str, str]:
    """Return how those names are shown that have been asked for."""
    return {}


def fitting(names: pl.Series, pattern: str) -> pl.Series:
    """Tell which names fit, case-blind unless the pattern has a capital; raise UsageError for no pattern.

    No pattern can make it take long: this engine never goes back.
    """
    flags = "" if pattern != pattern.lower() else "(?i)"
    try:
        return names.str.contains(flags + pattern)
    except pl.exceptions.ComputeError as e:
        reasons = (line.removeprefix("error: ") for line in str(e).splitlines() if line.startswith("error: "))
        raise UsageError(f"{pattern!r} is no regular expression", why=next(reasons, "")) from None
