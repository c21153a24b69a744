"""Parse filters: `op:attn name:/re/ share:>5`, mixed with a regular expression on names.

A term names a column. Text columns of events match a regular expression (in slashes if it has spaces), number
columns are compared. Columns of the answer, such as share or total, are compared with numbers; times take a
unit. The rest is a regular expression on names and ops.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import polars as pl

from capture.errors import UsageError
from tracetui import units
from tracetui.look import FilterTerm, Look

TEXT_COLUMNS: Final = ("name", "op", "category", "phase", "track", "path", "shape", "lens", "line")
INTEGER_COLUMNS: Final = ("layer", "step")

_TERM_PATTERN: Final = re.compile(r"(?<![\w:.(?])([a-z][a-z_/0-9]*):(/(?:[^/\\]|\\.)*/|[^\s:]\S*)")
_COMPARISON_PATTERN: Final = re.compile(r"(<=|>=|<|>|=)?\s*(-?\d+(?:\.\d+)?)\s*(%|[a-zA-Zµ]*)$")
_COMPARISON_SIGNS: Final = ("<", ">", "=")
_OPERATORS: Final[dict[str, Callable[[pl.Expr, Any], pl.Expr]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_TIME_FACTORS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SIZE_FACTORS: Final = {"": 1.0, "b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_PREFIX_FACTORS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


class ParsedFilter(NamedTuple):
    """A filter split into its parts."""

    names: str  # a regular expression on names and ops; empty for all
    events: tuple[FilterTerm, ...] = ()  # terms on columns of the events
    answer: tuple[FilterTerm, ...] = ()  # terms on columns of the answer


def parse_filter(text: str) -> ParsedFilter:
    """Split a filter into its parts; raise UsageError for a comparison without a number."""
    events: list[FilterTerm] = []
    answer: list[FilterTerm] = []
    rest, end = "", 0
    for match in _TERM_PATTERN.finditer(text):
        column, value = match.groups()
        if column in TEXT_COLUMNS:
            is_in_slashes = len(value) > 1 and value[0] == value[-1] == "/"
            events.append(FilterTerm(column, "~", value[1:-1] if is_in_slashes else value))
        elif column in INTEGER_COLUMNS:
            events.append(_parse_integer_comparison(column, value))
        elif value.startswith(_COMPARISON_SIGNS):
            answer.append(_parse_comparison(column, value))
        else:
            continue  # part of a regular expression with a colon
        rest, end = rest + text[end : match.start()], match.end()
    return ParsedFilter(" ".join((rest + text[end:]).split()) if end else text, tuple(events), tuple(answer))


def with_event_terms(look: Look) -> Look:
    """Return the look with its filter parsed, without the terms on the answer."""
    names, events, _ = parse_filter(look.filter)
    return replace(look, filter=names, where=(*look.where, *events))


def _parse_comparison(column: str, value: str) -> FilterTerm:
    match = _COMPARISON_PATTERN.match(value)
    if match is None:
        raise UsageError(f"{column}:{value} needs a number", todo=f"write {column}:>5")
    return FilterTerm(column, match[1] or "=", match[2] + match[3])


def _parse_integer_comparison(column: str, value: str) -> FilterTerm:
    """Parse a term on an integer column; raise UsageError if it has a unit."""
    term = _parse_comparison(column, value)
    if not term.value[-1].isdecimal():
        raise UsageError(f"{column}:{value} has a wrong unit for that column", todo=f"write {column}:>5")
    return term


def has_terms(look: Look) -> bool:
    """Whether a filter has terms besides the regular expression on names."""
    _, events, answer = parse_filter(look.filter)
    return bool(events or answer)


def filter_answer_rows(rows: pl.DataFrame, look: Look, title: str) -> pl.DataFrame:
    """Filter the rows of an answer by the terms on its columns.

    Raise UsageError for a column that the answer lacks, or a number in a wrong unit.
    """
    for term in parse_filter(look.filter).answer if rows.width else ():
        column = next((c for c in rows.columns if term.column in (c, _format_column_word(c))), None)
        if column is None or not rows.schema[column].is_numeric():
            numeric = ", ".join(_format_column_word(c) for c, t in rows.schema.items() if t.is_numeric())
            what = f"the {title} view has no numeric column {term.column}"
            raise UsageError(what, todo=f"use one of {numeric}")
        rows = rows.filter(_OPERATORS[term.how](pl.col(column), _convert_to_column_unit(column, term)))
    return rows


def build_comparison(column: pl.Expr, term: FilterTerm) -> pl.Expr:
    """Expression: whether a numeric column satisfies a term."""
    return _OPERATORS[term.how](column, float(term.value))


def _format_column_word(column: str) -> str:
    """Return a column's name as it is typed: delta_ns → delta, tokens_per_s → tokens/s."""
    return units.format_plain_heading(column).replace(" ", "_")


def _convert_to_column_unit(column: str, term: FilterTerm) -> float:
    """Return the number of a term in the unit of the column: 5ms → 5e6 for a `_ns` column."""
    match = _COMPARISON_PATTERN.match(term.value)
    number, unit = (match[2], match[3]) if match else (term.value, "")
    if "share" in column:
        return float(number) / 100
    if column.endswith(("_pct", "_times")):
        return float(number)
    if column.endswith(("_ns", "_ns_per_1k")):
        factors, example = _TIME_FACTORS, "5ms"
    else:
        factors, example = (_SIZE_FACTORS, "5MiB") if column.endswith("bytes") else (_PREFIX_FACTORS, "5k")
    factor = factors.get(unit if factors is _TIME_FACTORS else unit.lower())
    if factor is None:
        what = f"{term.column}:{term.how}{term.value}"
        raise UsageError(f"{what} has a wrong unit for that column", todo=f"write {term.column}:>{example}")
    return float(number) * factor
