"""Partial answers: what some files contribute, and how two contributions become one.

A partial is a few small frames. Each frame has a key, and every other column a rule by which the values of
two partials that share a key are made one. All rules are associative and commutative, so that it does not
matter who merges what first: one process, several, or the machines of a cluster.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

# sum, low and high are unknown where a part is unknown; same is the value that all have, else unknown;
# first and last are the least and the largest that is known
Rule = Literal["sum", "low", "high", "same", "first", "last"]


@dataclass(frozen=True)
class Shape:
    """The key of a frame, and the rule of every other column; a frame without rules is put together.

    `settle` keeps a frame small after it was merged. What it gives may depend on nothing but all that was
    merged, in whatever order.
    """

    key: tuple[str, ...]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    settle: Callable[[pl.DataFrame], pl.DataFrame] | None = None


MEMBERS: Final = "members"  # the frame that every partial has: one row a run that takes part
MEMBERS_SHAPE: Final = Shape(("member", "run"))


@dataclass(frozen=True, eq=False)
class Partial:
    """What some runs contribute: frames by name, and what all of their metadata agree on, as JSON texts."""

    frames: Mapping[str, pl.DataFrame]
    agreed: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> pl.DataFrame:
        """Return one row a run that takes part."""
        return self.frames[MEMBERS]

    @property
    def meta(self) -> dict[str, Any]:
        """Return the metadata that all runs agree on."""
        return {key: json.loads(text) for key, text in self.agreed.items()}


def agreed_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata as texts that can be compared; what JSON cannot hold is left out."""
    out = {}
    for key, value in meta.items():
        try:
            out[key] = json.dumps(value, sort_keys=True)
        except (TypeError, ValueError):
            continue
    return out


def merge(one: Partial, other: Partial, shapes: Mapping[str, Shape]) -> Partial:
    """Return what two partials contribute together; `merge(a, b)` and `merge(b, a)` are the same."""
    known = {MEMBERS: MEMBERS_SHAPE, **shapes}
    names = [name for name in known if name in one.frames or name in other.frames]
    frames = {
        name: merged([p.frames[name] for p in (one, other) if name in p.frames], known[name])
        for name in names
    }
    agreed = {key: text for key, text in one.agreed.items() if other.agreed.get(key) == text}
    return Partial(frames, agreed)


def merged(frames: Sequence[pl.DataFrame], shape: Shape) -> pl.DataFrame:
    """Return frames of one shape as one, in the order of their keys."""
    whole = pl.concat(frames, how="diagonal_relaxed")
    if shape.rules:
        rules = [_by_rule(name, rule) for name, rule in shape.rules.items() if name in whole.columns]
        whole = whole.group_by(shape.key).agg(rules)
    whole = whole if shape.settle is None else shape.settle(whole)
    return whole.sort(shape.key, nulls_last=True)


def _by_rule(name: str, rule: Rule) -> pl.Expr:
    column = pl.col(name)
    if rule == "same":
        return pl.when(column.n_unique() == 1).then(column.first()).alias(name)
    if rule in ("first", "last"):
        return column.min() if rule == "first" else column.max()
    by = {"sum": column.sum(), "low": column.min(), "high": column.max()}[rule]
    return pl.when(column.null_count() == 0).then(by).alias(name)
