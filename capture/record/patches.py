"""Attribute patches that can be undone, and hooks on the end of the process."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import functools
import os
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from . import bootstrap, process_notes
from .fault_guard import hide_frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

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
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return wrapper


def show_as(wrapper: Any, code: CodeType) -> None:
    """Let tracebacks show a wrapper as the last line of `code`, whose call it makes; from Python 3.11 on."""
    if not hasattr(code, "co_positions"):
        return
    places, first = list(code.co_positions()), code.co_firstlineno
    line = places[-1][0] or first
    columns = [place[2:] for place in places if place[0] == place[1] == line and place != places[-1]]
    start, end = columns[-1] if columns else (None, None)
    table = _encode_places(len(wrapper.__code__.co_code) // 2, line - first, start, end)
    names = {"co_name": code.co_name, "co_qualname": code.co_qualname, "co_filename": code.co_filename}
    wrapper.__code__ = wrapper.__code__.replace(**names, co_firstlineno=first, co_linetable=table)


def _encode_places(units: int, line: int, start: int | None, end: int | None) -> bytes:
    """Return a location table by which all instructions lie in these columns of a line (0: the first).

    CPython's Objects/locations.md describes its format.
    """
    table = bytearray()
    for at in range(0, units, 8):
        kind, fields = (
            (13, [2 * line]) if start is None or end is None else (14, [2 * line, 0, start + 1, end + 1])
        )
        table.append(128 | kind << 3 | min(units - at, 8) - 1)
        for field in fields:
            while field > 63:  # six bits a byte, the low ones first
                table.append(64 | field & 63)
                field >>= 6
            table.append(field)
        line = 0  # relative to the previous entry
    return bytes(table)


def close_at_exit(recorder: Any, patches: Patches) -> None:
    """Close the recording when the process ends, also by calls that skip atexit handlers."""
    patches.add_undo(bootstrap.run_at_exit(recorder.close))
    patches.replace(os, "_exit", run_before(recorder.close, os._exit, recorder))
    for name in ("execv", "execve"):
        patches.replace(os, name, _close_before_exec(getattr(os, name), recorder))
    _RECORDERS.add(recorder)


def _close_before_exec(original: Callable[..., Any], recorder: Any) -> Callable[..., Any]:
    """Return a function that closes the recording before another program takes the place of this one.

    Not before a call that fails for lack of such a file, as most of those of `os.execvp` do.
    """

    @functools.wraps(original)
    def wrapper(path: Any, *args: Any, **kwargs: Any) -> Any:
        was_off = recorder.is_off
        try:
            if _is_executable(path):
                recorder.guard(recorder.close)
                process_notes.append_note("executes")
            return original(path, *args, **kwargs)
        except BaseException as error:
            if recorder.is_off and not was_off:
                process_notes.append_note(f"fault {original.__name__} failed after the recording had ended")
            hide_frame(error)
            raise

    return wrapper


def _is_executable(path: Any) -> bool:
    with suppress(TypeError):  # which the call itself raises
        return os.path.isfile(path) and (isinstance(path, int) or os.access(path, os.X_OK))  # noqa: PTH113
    return False


def _forget_after_fork() -> None:
    for recorder in list(_RECORDERS):
        recorder.guard(recorder.forget_after_fork)


_RECORDERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # once per process: it cannot be undone
    os.register_at_fork(after_in_child=_forget_after_fork)
