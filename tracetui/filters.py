"""The language of filters: `op:attn name:/re/ share:>5` beside a regular expression on names.

A term names a column. Of the events' own columns a text has to fit a regular expression, in slashes where it
holds spaces, and a number to be equal or compared; of a column of the answer, such as share or total, a
number is compared, a time with its unit. What is left over is a regular expression on names and ops.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import polars as pl

from capture.errors import UsageError
from tracetui import units
from tracetui.look import Look, Term

TEXTS: Final = ("name", "op", "category", "phase", "track", "path", "shape", "lens", "line")
NUMBERS: Final = ("layer", "step")

_TERM: Final = re.compile(r"(?<![\w:.(?])([a-z][a-z_/0-9]*):(/(?:[^/\\]|\\.)*/|[^\s:]\S*)")
_COMPARED: Final = re.compile(r"(<=|>=|<|>|=)?\s*(-?\d+(?:\.\d+)?)\s*(%|[a-zA-Zµ]*)$")
_SIGNS: Final = ("<", ">", "=")
_COMPARE: Final[dict[str, Callable[[pl.Expr, Any], pl.Expr]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_TIMES: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SIZES: Final = {"": 1.0, "b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_PLAIN: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


class Filter(NamedTuple):
    """A filter taken apart."""

    names: str  # a regular expression on names and ops; empty for all
    events: tuple[Term, ...] = ()  # terms on columns of the events
    answer: tuple[Term, ...] = ()  # terms on columns of the answer


def parse(text: str) -> Filter:
    """Return the parts of a filter. Raise UsageError for a term that compares with what is no number."""
    events: list[Term] = []
    answer: list[Term] = []
    left, at = "", 0
    for found in _TERM.finditer(text):
        column, value = found.groups()
        if column in TEXTS:
            events.append(Term(column, "~", value[1:-1] if _in_slashes(value) else value))
        elif column in NUMBERS:
            events.append(_counted(column, value))
        elif value.startswith(_SIGNS):
            answer.append(_compared(column, value))
        else:
            continue  # a regular expression that happens to hold a colon
        left, at = left + text[at : found.start()], found.end()
    return Filter(" ".join((left + text[at:]).split()) if at else text, tuple(events), tuple(answer))


def on_events(look: Look) -> Look:
    """Return the look with its filter taken apart, without what it asks of the answer."""
    names, events, _ = parse(look.filter)
    return replace(look, filter=names, where=(*look.where, *events))


def _in_slashes(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] == "/"


def _compared(column: str, value: str) -> Term:
    match = _COMPARED.match(value)
    if match is None:
        raise UsageError(f"{column}:{value} compares with no number", todo=f"write {column}:>5")
    return Term(column, match[1] or "=", match[2] + match[3])


def _counted(column: str, value: str) -> Term:
    """Return a term on a column that counts, which has no unit; `5%` of it is none either."""
    term = _compared(column, value)
    if not term.value[-1].isdecimal():
        raise UsageError(f"{column}:{value} is in no unit of that column", todo=f"write {column}:>5")
    return term


def has_terms(look: Look) -> bool:
    """Tell whether a filter asks more than a regular expression on names."""
    _, events, answer = parse(look.filter)
    return bool(events or answer)


def narrow(rows: pl.DataFrame, look: Look, title: str) -> pl.DataFrame:
    """Return the rows of an answer that fit what a filter asks of it. Raise UsageError for a column that the
    answer has not, or a number in no unit of it.
    """
    for term in parse(look.filter).answer if rows.width else ():
        column = next((c for c in rows.columns if term.column in (c, _written(c))), None)
        if column is None or not rows.schema[column].is_numeric():
            numeric = ", ".join(_written(c) for c in rows.columns if rows.schema[c].is_numeric())
            raise UsageError(
                f"the {title} view has no number called {term.column}", todo=f"compare {numeric}"
            )
        rows = rows.filter(_COMPARE[term.how](pl.col(column), _value(column, term)))
    return rows


def fits(column: pl.Expr, term: Term) -> pl.Expr:
    """Return whether a column of numbers fits a term."""
    return _COMPARE[term.how](column, float(term.value))


def _written(column: str) -> str:
    """Return a column's name as it is typed: in one word."""
    return units.spoken(column).replace(" ", "_")


def _value(column: str, term: Term) -> float:
    """Return the number of a term in the unit of the column."""
    match = _COMPARED.match(term.value)
    number, unit = (match[2], match[3]) if match else (term.value, "")
    if "share" in column:
        return float(number) / 100
    if column.endswith(("_pct", "_times")):
        return float(number)
    if column.endswith(("_ns", "_ns_per_1k")):
        factors, example = _TIMES, "5ms"
    else:
        factors, example = (_SIZES, "5MiB") if column.endswith("bytes") else (_PLAIN, "5k")
    factor = factors.get(unit if factors is _TIMES else unit.lower())
    if factor is None:
        what = f"{term.column}:{term.how}{term.value}"
        raise UsageError(f"{what} is in no unit of that column", todo=f"write {term.column}:>{example}")
    return float(number) * factor
