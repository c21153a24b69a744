"""Which part of a program each kernel of a replayed graph belongs to: in our engine and in watched programs.

A captured step carries no annotations when it is replayed. Its kernels are known from where it was launched
once, piece by piece: the i-th kernel of a replay is the i-th of that, provided that their names agree.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import re
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from .kernels import Row, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

COPIES: Final = ("Memcpy", "Memset")  # stand for what a profiler names with its direction
UNKNOWN: Final = "replays whose kernels are not those of the step"
_ARGUMENTS: Final = re.compile(r"[<(\[].*", re.DOTALL)


@dataclass(frozen=True)
class LaunchOrder:
    """The kernels of a step in their order: name, and the scope that launched each; None for no scope."""

    kernels: tuple[tuple[str, str | None], ...]

    def assign_owners(self, replayed: Sequence[Row]) -> list[Row] | None:
        """Return the kernels of one replay with their owners; None where they are not those of this order.

        What a runtime puts before the first kernel of a graph has no owner.
        """
        extra = len(replayed) - len(self.kernels)
        if extra < 0 or not self.kernels:
            return None
        if not all(is_same(name, k.name) for k, (name, _) in zip(replayed[extra:], self.kernels)):
            return None
        owners = [None] * extra + [scope for _, scope in self.kernels]
        return [kernel._replace(owner=owner) for kernel, owner in zip(replayed, owners)]


def is_same(stated: str, seen: str) -> bool:
    """Return whether a kernel has the name that was stated for it, which may be the one its linker knows."""
    if stated == seen or (stated in COPIES and seen.startswith(stated)):
        return True
    if not stated.startswith("_Z"):
        return False
    name = _ARGUMENTS.sub("", seen.replace("(anonymous namespace)", "")).split("::")[-1].split(" ")[-1]
    return bool(name) and f"{len(name)}{name}" in stated


def launch_order(window: Window) -> LaunchOrder | None:
    """Return the order of a step that was launched kernel by kernel within a window.

    None where the window lacks a kernel, or its launch: what is learned of it would fit no replay.
    """
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    if window.problems or not on_gpu:
        return None
    return LaunchOrder(tuple((k.name, k.owner) for k in on_gpu))


def with_owners(window: Window, orders: Sequence[LaunchOrder]) -> Window:
    """Return the window with the owners of the kernels of every replay in it.

    A replay is of the order whose count and names it has; where several have them and do not agree on the
    owners, or none has, it belongs to nobody.
    """
    rows: list[Row] = []
    unknown = 0
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    for _, group in groupby(on_gpu, key=attrgetter("launch")):
        replayed = list(group)
        if len(replayed) == 1:  # a copy or a fill beside the graph
            rows += replayed
            continue
        owned = _agreed(replayed, orders)
        unknown += owned is None
        rows += owned or [kernel._replace(owner=None) for kernel in replayed]
    problems = dict(window.problems)
    if unknown:
        problems[UNKNOWN] = unknown
    return Window([*(k for k in window.rows if k.lens != "gpu"), *rows], problems)


def _agreed(replayed: Sequence[Row], orders: Sequence[LaunchOrder]) -> list[Row] | None:
    fitting = [owned for order in orders if (owned := order.assign_owners(replayed)) is not None]
    return fitting[0] if fitting and all(owned == fitting[0] for owned in fitting) else None
