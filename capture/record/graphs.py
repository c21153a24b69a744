"""Graphs that a watched program captures: which module launched each node, for when they are replayed."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import threading
import weakref
from typing import TYPE_CHECKING, Any

from .graph_nodes import GraphNodes
from .launch_order import LaunchOrder

if TYPE_CHECKING:
    from collections.abc import Callable


class Known:
    """What is known of one captured graph."""

    def __init__(self) -> None:
        self.root: Callable[[], Any] = _nothing  # the outermost module that was called: a weak reference
        self.order: LaunchOrder | None = None


class Graphs:
    """Sees captures, one at a time."""

    def __init__(self, torch: Any, nodes: GraphNodes | None = None) -> None:
        self._torch = torch
        self._nodes = nodes
        self._asked = nodes is not None
        self.capturing = False  # whether any thread captures a graph
        self._thread: int | None = None  # that does
        self._stream = 0
        self._known: dict[int, tuple[weakref.ref[Any], Known]] = {}
        self._current: Known | None = None
        self._borders: list[tuple[int, str | None]] = []  # nodes up to here, and who launched them

    def begin(self, graph: Any) -> None:
        """Note that the current stream is captured into a graph from now on."""
        if self.capturing:
            return
        if not self._asked:
            self._nodes, self._asked = GraphNodes.of_torch(self._torch), True
        self.capturing, self._thread = True, threading.get_ident()
        self._current, self._borders = Known(), []
        self._stream = int(self._torch.cuda.current_stream().cuda_stream)
        self._known = {key: entry for key, entry in self._known.items() if entry[0]() is not None}
        self._known[id(graph)] = weakref.ref(graph), self._current

    def enter(self, module: Any) -> None:
        """Note the first module that is called in a capture: a replay is a call of it."""
        if self._current is not None and self._is_here() and self._current.root() is None:
            self._current.root = weakref.ref(module)

    def border(self, owner: str | None) -> None:
        """Note that what was launched since the last border is this module's."""
        count = self._nodes.count(self._stream) if self._nodes is not None and self._is_here() else None
        if count is not None and count > (self._borders[-1][0] if self._borders else 0):
            self._borders.append((count, owner))

    def end(self, graph: Any) -> None:
        """Note that a capture is about to end, and learn its order; from another thread, none."""
        if self._current is None or self.of(graph) is not self._current:
            return
        self.border(None)
        names = self._nodes.names(self._stream) if self._nodes is not None and self._is_here() else None
        if names is not None and self._borders and self._borders[-1][0] == len(names):
            self._current.order = _order(names, self._borders)
        self.capturing, self._thread, self._current = False, None, None

    def _is_here(self) -> bool:
        return self._thread == threading.get_ident()

    def of(self, graph: Any) -> Known | None:
        """Return what is known of a graph; None where its capture was not seen."""
        entry = self._known.get(id(graph))
        return entry[1] if entry is not None and entry[0]() is graph else None

    def forget_after_fork(self) -> None:
        """Begin anew in a forked child, in which no graph lives on."""
        self.capturing, self._thread, self._current, self._known = False, None, None, {}


def _order(names: list[str | None], borders: list[tuple[int, str | None]]) -> LaunchOrder:
    owners: list[str | None] = []
    for end, owner in borders:
        owners += [owner] * (end - len(owners))
    return LaunchOrder(tuple((name, owner) for name, owner in zip(names, owners) if name is not None))


def _nothing() -> None:
    """Stand for a module that is not there."""
