"""Match rows against a filter: full and displayed names, ops, and terms on other columns."""

from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from capture.tasks import check_cancelled
from tracetui import filter_syntax
from tracetui.analysis.frames.display_names import format_name, map_kernel_names
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct
from tracetui.look import FilterTerm

MAX_PREPARED_NAMES: Final = 1 << 15  # names shortened in advance
BATCH_SIZE: Final = 64  # names between two checks for a cancel: a few milliseconds


def is_term_match(run: Run, term: FilterTerm) -> pl.Expr:
    """True for rows that match a filter term; for none if the run lacks the column."""
    if not run.has(term.column):
        return pl.lit(value=False)
    if term.how != "~":
        return filter_syntax.build_comparison(pl.col(term.column), term)
    values = list_distinct(run, term.column)
    matching = values.filter(match_names(values.cast(pl.String), term.value))
    return pl.col(term.column).is_in(matching.implode())


def is_name_match(run: Run, pattern: str) -> pl.Expr:
    """True for rows whose full name, displayed name or op matches the regular expression."""
    has_name = pl.col("name").is_in(find_matching_names(run, pattern).implode())
    if not run.has("op"):
        return has_name
    return has_name | is_term_match(run, FilterTerm("op", "~", pattern)).fill_null(value=False)


def find_matching_names(run: Run, pattern: str) -> pl.Series:
    """Return the names whose full or displayed form matches the regular expression."""
    names = list_distinct(run, "name")
    is_match = match_names(names.cast(pl.String), pattern)
    rest = names.filter(~is_match)
    return names.filter(is_match).append(rest.filter(match_names(_shorten_names(run, rest), pattern)))


def prepare_names(run: Run) -> None:
    """Fill the caches that filters need: distinct names and ops, displayed names; stop if cancelled."""
    no_values = pl.Series(dtype=pl.String)
    names, _ = (list_distinct(run, column) if run.has(column) else no_values for column in ("name", "op"))
    for batch in names.head(MAX_PREPARED_NAMES).to_frame().iter_slices(BATCH_SIZE):
        check_cancelled()
        _shorten_names(run, batch[:, 0])


def _shorten_names(run: Run, names: pl.Series) -> pl.Series:
    """Return the displayed form of names; each is shortened only once."""
    display_names, texts = _make_shown_cache(run), names.cast(pl.String).to_list()
    kernels = map_kernel_names([run])
    display_names |= {name: format_name(name, kernels) for name in texts if name not in display_names}
    return pl.Series([display_names[name] for name in texts], dtype=pl.String)


@cache_per_run
def _make_shown_cache(run: Run) -> dict[str, str]:
    """Return the run's dict from name to displayed name, empty at first."""
    return {}


def match_names(names: pl.Series, pattern: str) -> pl.Series:
    """True for each name that matches, ignoring case unless the pattern has a capital.

    Raises UsageError for an invalid pattern. The engine never backtracks, so no pattern is slow.
    """
    flags = "" if pattern != pattern.lower() else "(?i)"
    try:
        return names.str.contains(flags + pattern)
    except pl.exceptions.ComputeError as e:
        reasons = (line.removeprefix("error: ") for line in str(e).splitlines() if line.startswith("error: "))
        raise UsageError(f"{pattern!r} is not a regular expression", why=next(reasons, "")) from None
