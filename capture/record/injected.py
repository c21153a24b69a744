"""Text executed inside a running process: load our package by path, and attach.

It runs in a thread of its own with the globals CONTROL (socket of the recorder), PAGE and SIZE (memory in
which the debugger wrote the code that started this). It must work on every Python 3.
"""

import contextlib
import importlib
import os
import socket
import sys

_PACKAGE = "_tracetui_capture"  # as in tracetui/package_paths.py: shared with a Recorder of the program


def enter(own_path: str, control: str, page: int, size: int) -> None:
    """Attach as the recorder at the socket `control` asks; do nothing if it is gone."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(control)
        if sys.version_info < (3, 8):
            link.sendall(b"refused python " + sys.version.split()[0].encode() + b"\n")
        else:
            _load_module(own_path).attach(link, page, size)
    except Exception as fault:
        reason = " ".join((type(fault).__name__ + ": " + str(fault)).split())
        link.sendall(("refused fault " + reason + "\n").encode("utf-8", "replace"))
    finally:
        link.close()


def _load_module(own_path: str):  # type: ignore[no-untyped-def]
    if _PACKAGE not in sys.modules:
        package = type(sys)(_PACKAGE)
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(own_path)))]
        sys.modules[_PACKAGE] = package
    return importlib.import_module(_PACKAGE + ".record.attach_running")


if "CONTROL" in globals():
    with contextlib.suppress(OSError):
        enter(*(globals()[name] for name in ("__file__", "CONTROL", "PAGE", "SIZE")))
