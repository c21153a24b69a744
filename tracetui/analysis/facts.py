"""Facts of a run that are found once: a run never changes, and every question asks for its facts again."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

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


@once
def names(run: Run) -> pl.Series:
    """Return the distinct names of a run's events, as categories."""
    return run.events["name"].unique().drop_nulls()


def tell(fact: Callable[[Run], Fact], run: Run, value: Fact) -> None:
    """Let a fact of a run be this: what is known of it from elsewhere, such as its older snapshots."""
    inner: Callable[[Run], Fact] = fact.__wrapped__  # type: ignore[attr-defined]
    _FACTS.setdefault(run, {})[inner] = value
