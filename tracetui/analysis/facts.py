"""Facts of a run that are found once: a run never changes, and every question asks for its facts again."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from capture.classify import positions
from capture.run import Run

Fact = TypeVar("Fact")

_FACTS: Final[WeakKeyDictionary[Run, dict[Callable[[Run], Any], Any]]] = WeakKeyDictionary()


def once(fact: Callable[[Run], Fact]) -> Callable[[Run], Fact]:
    """Compute a fact of a run once."""

    @wraps(fact)
    def known(run: Run) -> Fact:
        facts = _FACTS.setdefault(run, {})
        if fact not in facts:
            facts[fact] = fact(run)
        found: Fact = facts[fact]
        return found

    return known


def names(run: Run) -> pl.Series:
    """Return the distinct names of a run's events, as categories."""
    return distinct(run, "name")


def distinct(run: Run, column: str) -> pl.Series:
    """Return what is distinct in a column of a run's events."""
    known = _distinct(run)
    if column not in known:
        values = run.events[column]
        words = values.dtype == pl.Categorical
        known[column] = positions.distinct(values) if words else values.unique().drop_nulls()
    return known[column]


@once
def _distinct(run: Run) -> dict[str, pl.Series]:
    """Return what is distinct in those columns that were asked for."""
    return {}


def tell(fact: Callable[[Run], Fact], run: Run, value: Fact) -> None:
    """Let a fact of a run be this: what is known of it from elsewhere, such as its older snapshots."""
    inner: Callable[[Run], Fact] = fact.__wrapped__  # type: ignore[attr-defined]
    _FACTS.setdefault(run, {})[inner] = value
