"""Assign the kernels of a replayed graph to the modules that launched them at capture.

A replay carries no annotations. The i-th kernel of a replay is the i-th of the capture, or of a step launched
kernel by kernel, if their names agree. Used for recorded programs and by our own engine.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import re
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from .profiler_windows import LeafWork, ProfilerWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

COPIES: Final = ("Memcpy", "Memset")  # profilers append a direction to these names
UNKNOWN_REPLAY: Final = "replays whose kernels differ from those of the step"
_ARGUMENTS: Final = re.compile(r"[<(\[].*", re.DOTALL)


@dataclass(frozen=True)
class LaunchOrder:
    """The kernels of a step in order: name, and the scope that launched it (None: no scope)."""

    kernels: tuple[tuple[str, str | None], ...]

    def assign_owners(self, replayed: Sequence[LeafWork]) -> list[LeafWork] | None:
        """Return the kernels of one replay with their owners, or None if they do not match this order.

        Kernels before the first of the graph, added by a runtime, have no owner.
        """
        extra = len(replayed) - len(self.kernels)
        if extra < 0 or not self.kernels:
            return None
        if not all(is_same_kernel(name, k.name) for k, (name, _) in zip(replayed[extra:], self.kernels)):
            return None
        owners = [None] * extra + [scope for _, scope in self.kernels]
        return [kernel._replace(owner=owner) for kernel, owner in zip(replayed, owners)]


def is_same_kernel(expected: str, recorded: str) -> bool:
    """Return whether a recorded kernel has the expected name, which may be its linker name."""
    if expected == recorded or (expected in COPIES and recorded.startswith(expected)):
        return True
    if not expected.startswith("_Z"):
        return False
    name = _ARGUMENTS.sub("", recorded.replace("(anonymous namespace)", "")).split("::")[-1].split(" ")[-1]
    return bool(name) and f"{len(name)}{name}" in expected


def build_launch_order(window: ProfilerWindow) -> LaunchOrder | None:
    """Return the order of a step that was launched kernel by kernel in a window.

    None if the window lacks a kernel or a launch, because the order would fit no replay.
    """
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    if window.problems or not on_gpu:
        return None
    return LaunchOrder(tuple((k.name, k.owner) for k in on_gpu))


def assign_replay_owners(window: ProfilerWindow, orders: Sequence[LaunchOrder]) -> ProfilerWindow:
    """Return the window with the owners of the kernels of all replays in it.

    A replay matches the order with its count and names; if several match with different owners, or none
    matches, its kernels have no owner.
    """
    rows: list[LeafWork] = []
    unknown = 0
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    for _, group in groupby(on_gpu, key=attrgetter("launch")):
        replayed = list(group)
        if len(replayed) == 1:  # a copy or fill outside the graph
            rows += replayed
            continue
        owned = _find_agreed_owners(replayed, orders)
        unknown += owned is None
        rows += owned or [kernel._replace(owner=None) for kernel in replayed]
    problems = dict(window.problems)
    if unknown:
        problems[UNKNOWN_REPLAY] = unknown
    return ProfilerWindow([*(k for k in window.rows if k.lens != "gpu"), *rows], problems)


def _find_agreed_owners(replayed: Sequence[LeafWork], orders: Sequence[LaunchOrder]) -> list[LeafWork] | None:
    fitting = [owned for order in orders if (owned := order.assign_owners(replayed)) is not None]
    return fitting[0] if fitting and all(owned == fitting[0] for owned in fitting) else None
