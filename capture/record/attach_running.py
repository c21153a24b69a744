"""Attach to a running process until the recorder sends a message or is gone.

`injected` calls `attach` in a thread unknown to the program. Afterwards only imported modules remain: patches
are undone, file and socket are closed, the thread ends.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import json
import os
import platform
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import has_open_emitter
from . import process_notes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_MAX_MESSAGE_BYTES: Final = 1 << 16
_FAULT_SIGNALS: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}

_links: list[socket.socket] = []  # to the attached recorder
_undo: list[Callable[[], None]] = []  # undo everything


def attach(link: socket.socket, page: int, size: int) -> None:
    """Record the process until a message arrives on the socket, or its other end is closed.

    `page` is memory that the debugger allocated for its text, to be freed; 0 if there is none.
    """
    # keep signals on the main thread; this one only serves the recorder
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULT_SIGNALS)
    _unmap_page(page, size)
    torch = sys.modules.get("torch")
    refusal = _find_refusal(torch)
    if refusal:
        link.sendall(f"refused {refusal}\n".encode())
        return
    _links.append(link)
    try:
        _record(torch, link)
    finally:
        _undo_all()


def _find_refusal(torch: Any) -> str:
    """Return the reason why this process cannot be recorded, as a keyword, or an empty text."""
    if _links:
        return "attached"
    if has_open_emitter() or process_notes.read_setting(process_notes.OUT_VARIABLE):
        return "recorded"
    if torch is None:
        return "torch"
    if not hasattr(torch, "nn") or getattr(torch.__spec__, "_initializing", False):
        return "importing"
    return ""


def _record(torch: Any, link: socket.socket) -> None:
    """Handshake, take the settings, record, and confirm in the end that everything is undone."""
    link.sendall(f"here {platform.python_version()} {torch.__version__}\n".encode())
    message = link.recv(_MAX_MESSAGE_BYTES)
    if not message:
        return
    process_notes.override_settings(json.loads(message))
    process_notes.append_note("python " + platform.python_version())
    process_notes.append_note("torch " + str(torch.__version__))
    from .patch_torch import install
    from .patches import Patches

    patches = Patches()
    _undo.append(patches.undo_all)
    recorder = install(torch, patches, late=True)
    link.sendall(b"watching\n")
    with suppress(OSError):
        link.recv(_MAX_MESSAGE_BYTES)
    recorder.stop()
    _undo_all()
    with suppress(OSError):
        link.sendall(b"detached\n")


def _undo_all() -> None:
    while _undo:
        _undo.pop()()
    _links.clear()
    process_notes.override_settings({})


def _detach_forked_child() -> None:
    """Leave a forked child as if nobody had attached to its parent."""
    for link in _links:
        link.close()
    _undo_all()


if hasattr(os, "register_at_fork"):  # once per process: it cannot be undone
    os.register_at_fork(after_in_child=_detach_forked_child)


def _unmap_page(page: int, size: int) -> None:
    """Free the memory of the debugger's text; torch has always imported ctypes."""
    ctypes = sys.modules.get("ctypes")
    if page and ctypes is not None:
        munmap = ctypes.CDLL(None)["munmap"]
        munmap.argtypes, munmap.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
        munmap(page, size)
