"""Attribute patches that can be undone, and hooks on the end of the process."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import atexit
import functools
import os
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING: Final = object()


class Patches:
    """Replaces attributes, and restores them in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a module or class."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is not value:  # someone else has patched our patch since
                return
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(undo)

    def add_undo(self, undo: Callable[[], Any]) -> None:
        """Add another action to `undo_all`."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        """Restore everything; a patch that cannot be undone stays and passes through."""
        while self._undo:
            with suppress(Exception):
                self._undo.pop()()


def run_before(action: Callable[[], None], original: Callable[..., Any], recorder: Any) -> Callable[..., Any]:
    """Return a function that runs an action of the recorder before the original."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder.guard(action)
        return original(*args, **kwargs)

    return wrapper


def close_at_exit(recorder: Any, patches: Patches) -> None:
    """Close the recording when the process ends, also by calls that skip atexit handlers."""
    atexit.register(recorder.close)
    patches.add_undo(lambda: atexit.unregister(recorder.close))
    for name in ("_exit", "execv", "execve"):
        patches.replace(os, name, run_before(recorder.close, getattr(os, name), recorder))
    _RECORDERS.add(recorder)


def _forget_after_fork() -> None:
    for recorder in list(_RECORDERS):
        recorder.guard(recorder.forget_after_fork)


_RECORDERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # once per process: it cannot be undone
    os.register_at_fork(after_in_child=_forget_after_fork)
