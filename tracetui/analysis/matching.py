"""Which rows fit a filter: names as they are and as they are shown, ops, and terms on other columns."""

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui import filters
from tracetui.analysis.facts import names as distinct_names
from tracetui.analysis.facts import once
from tracetui.look import Term
from tracetui.shown_names import shown_name


def term_fits(run: Run, term: Term) -> pl.Expr:
    """Return whether rows fit a term of the filter; none do where the run does not know the column."""
    if not run.has(term.column):
        return pl.lit(value=False)
    if term.how != "~":
        return filters.fits(pl.col(term.column), term)
    known = run.events[term.column].unique().drop_nulls()
    kept = known.filter(fitting(known.cast(pl.String), term.value))
    return pl.col(term.column).is_in(kept.implode())


def matching(rows: pl.LazyFrame, run: Run, pattern: str) -> pl.LazyFrame:
    """Return rows whose name, whole or as it is shown, or whose op fits the regular expression."""
    if not pattern:
        return rows
    fits = pl.col("name").is_in(matching_names(run, pattern).implode())
    if run.has("op"):
        fits |= term_fits(run, Term("op", "~", pattern)).fill_null(value=False)
    return rows.filter(fits)


def matching_names(run: Run, pattern: str) -> pl.Series:
    """Return the names that fit the regular expression, whole or as they are shown."""
    names = distinct_names(run)
    fits = fitting(names.cast(pl.String), pattern)
    rest = names.filter(~fits)
    return names.filter(fits).append(rest.filter(fitting(_as_shown(run, rest), pattern)))


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
