"""Which module's calls are the steps of a thread: the largest of those called from outside of any."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE: Final = 8  # calls of another module, with none of the root, after which that one is the root


class Root:
    """The root of one thread; the program may drop it, wrap it, or go on with another model."""

    def __init__(self) -> None:
        self._module: Callable[[], Any] = _nothing  # a weak reference: what the program drops is gone
        self._size = -1
        self._weights = 0
        self._others: dict[int, int] = {}  # calls of other modules since the last of the root
        self._most = 0  # of such calls of one module, in the past
        self._given_up: set[int] = set()
        self.outgrown = 0  # how often a larger one has come in its place

    def is_called(self, module: Any, size: int) -> bool:
        """Return whether a call from outside of any module is one of the root."""
        root = self._module()
        if root is None or module is root or (size == self._size and _weights(module) == self._weights):
            if root is None:
                self._take(module, size)
            if self._others:
                self._most = max(self._most, *self._others.values())
                self._others.clear()
            return True
        count = self._others[id(module)] = self._others.get(id(module), 0) + 1
        is_larger = size > self._size and id(module) not in self._given_up
        if is_larger:
            self.outgrown += 1
        if is_larger or (size and count > PATIENCE + 2 * self._most):
            self._given_up.add(id(root))
            self._take(module, size)
            return True
        return False

    def _take(self, module: Any, size: int) -> None:
        self._module, self._size, self._weights = weakref.ref(module), size, _weights(module)
        self._given_up.discard(id(module))
        self._others.clear()
        self._most = 0


class Device:
    """Says where the weights of the root are; which of them to look at is found once."""

    def __init__(self) -> None:
        self._module: Callable[[], Any] = _nothing
        self._owner: Callable[[], Any] = _nothing  # the module within it that has the parameter
        self._name = ""

    def of(self, module: Any) -> str:
        """Return the type of device that a module's first parameter is on; cpu where it has none."""
        owner = self._owner() if self._module() is module else None
        first = None if owner is None else owner._parameters.get(self._name)
        if first is None:
            self._find(module)
            return device_of(module)
        return str(first.device.type)

    def _find(self, module: Any) -> None:
        """Keep where the first parameter is; of a module that keeps its own in another way, nothing."""
        first = next(module.parameters(), None)
        self._module = _nothing
        if first is None:
            return
        with suppress(AttributeError, TypeError):
            for owner in module.modules():
                name = next((name for name, own in owner._parameters.items() if own is first), None)
                if name is not None and hasattr(owner._parameters, "get"):
                    self._module, self._owner, self._name = weakref.ref(module), weakref.ref(owner), name
                    return


def device_of(module: Any) -> str:
    """Return the type of device that a module's first parameter is on; cpu where it has none."""
    first = next(module.parameters(), None)
    return "cpu" if first is None else str(first.device.type)


def _weights(module: Any) -> int:
    """Return where the first weights of a module lie, which a wrapper shares with what it wraps; else 0."""
    with suppress(Exception):  # weights may be played, offloaded or not made yet
        return int(next(module.parameters()).data_ptr())
    return id(module)


def _nothing() -> None:
    """Stand for a module that is not there."""
