"""What a process that runs already is made to execute: loads our package by its place, and attaches.

It is executed as text, in a thread of its own, with the globals CONTROL (the socket at which whoever asked
listens), PAGE and SIZE (where in memory a debugger wrote what began this). It reads on every Python 3.
"""

import contextlib
import importlib
import os
import socket
import sys

_PACKAGE = "_tracetui_capture"  # as in tracetui/rooms.py: a Recorder of the program's is of the same package


def enter(place: str, control: str, page: int, size: int) -> None:
    """Do what whoever listens at `control` asks; where nobody does any more, nothing is done."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(control)
        if sys.version_info < (3, 8):
            link.sendall(b"refused python " + sys.version.split()[0].encode() + b"\n")
        else:
            _load(place).attach(link, page, size)
    except Exception as fault:
        why = " ".join((type(fault).__name__ + ": " + str(fault)).split())
        link.sendall(("refused fault " + why + "\n").encode("utf-8", "replace"))
    finally:
        link.close()


def _load(place: str):  # type: ignore[no-untyped-def]
    if _PACKAGE not in sys.modules:
        package = type(sys)(_PACKAGE)
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(place)))]
        sys.modules[_PACKAGE] = package
    return importlib.import_module(_PACKAGE + ".record.late")


if "CONTROL" in globals():
    with contextlib.suppress(OSError):
        enter(*(globals()[name] for name in ("__file__", "CONTROL", "PAGE", "SIZE")))
