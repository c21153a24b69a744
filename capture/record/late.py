"""Attaches to a process that runs already, until whoever asked says a word or is gone.

`entry.py` calls `attach` in a thread that the program does not know. Nothing of ours stays but modules that
are imported: wrappers are taken back, the file and the link are closed, the thread ends.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import json
import os
import platform
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import emitting
from . import account

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_WORD: Final = 1 << 16
_FAULTS: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}

_links: list[socket.socket] = []  # of the one that is attached
_undo: list[Callable[[], None]] = []  # what takes everything back, at once


def attach(link: socket.socket, page: int, size: int) -> None:
    """Watch the process until a word comes over the link, or its other end is gone.

    `page` is what a debugger took of memory for its text, 0 where none did: it is given back.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)  # they are not for this thread
    _free(page, size)
    torch = sys.modules.get("torch")
    refusal = _refusal(torch)
    if refusal:
        link.sendall(f"refused {refusal}\n".encode())
        return
    _links.append(link)
    try:
        _watch(torch, link)
    finally:
        _clear()


def _refusal(torch: Any) -> str:
    """Return why this process cannot be watched; empty where it can."""
    if _links:
        return "attached"
    if emitting() or account.setting(account.OUT):
        return "recorded"
    if torch is None:
        return "torch"
    if not hasattr(torch, "nn") or getattr(torch.__spec__, "_initializing", False):
        return "importing"
    return ""


def _watch(torch: Any, link: socket.socket) -> None:
    """Say hello, take the settings, watch, and say in the end that all is as it was."""
    link.sendall(f"here {platform.python_version()} {torch.__version__}\n".encode())
    told = link.recv(_WORD)
    if not told:
        return
    account.state(json.loads(told))
    account.note("python " + platform.python_version())
    account.note("torch " + str(torch.__version__))
    from .attach import install
    from .wraps import Wraps

    wraps = Wraps()
    _undo.append(wraps.take_back)
    watcher = install(torch, wraps, late=True)
    link.sendall(b"watching\n")
    with suppress(OSError):
        link.recv(_WORD)
    watcher.stop()
    _clear()
    with suppress(OSError):
        link.sendall(b"detached\n")


def _clear() -> None:
    """Take everything back."""
    while _undo:
        _undo.pop()()
    _links.clear()
    account.state({})


def _leave_child_alone() -> None:
    """Have a forked child go on as if nobody had attached to its parent."""
    for link in _links:
        link.close()
    _clear()


if hasattr(os, "register_at_fork"):  # once: it cannot be taken back
    os.register_at_fork(after_in_child=_leave_child_alone)


def _free(page: int, size: int) -> None:
    """Give back the memory of the debugger's text, which has been read: torch has always imported ctypes."""
    ctypes = sys.modules.get("ctypes")
    if page and ctypes is not None:
        munmap = ctypes.CDLL(None)["munmap"]
        munmap.argtypes, munmap.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
        munmap(page, size)
