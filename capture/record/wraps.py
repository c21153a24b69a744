"""What was put in place of what, so that it can be taken back as if it had never been there."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING: Final = object()


class Wraps:
    """Puts attributes in place of others, and takes them back in the opposite order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Put a value in place of an attribute of a module or class."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is not value:  # somebody else has wrapped ours since
                return
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(undo)

    def later(self, undo: Callable[[], Any]) -> None:
        """Note something else that is to be done when all is taken back."""
        self._undo.append(undo)

    def take_back(self) -> None:
        """Take everything back; what cannot be is left, and passes through."""
        while self._undo:
            with suppress(Exception):
                self._undo.pop()()
