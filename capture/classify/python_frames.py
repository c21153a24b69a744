"""Which Python functions of a recorded stack are somebody's own code, and which only carry a call on."""

import re
import sys
from typing import Final

_PLACE: Final = re.compile(
    r"(?P<file>[^<(][^(]*)\.py\(\d+\): "
)  # as torch writes it: file.py(line): function
_INSTALLED: Final = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+|python|pytorch)/")
_CARRIERS: Final = ("torch", "functorch", "triton", "numpy")  # packages
_WRAPPERS: Final = ("torch_guard", "kernel_shape_profiler")  # modules that stand around every call
_SCRIPTS: Final = {
    "test",
    "code",
    "profile",
    "cmd",
    "trace",
}  # names of scripts as well
_STANDARD: Final = sys.stdlib_module_names - _SCRIPTS


def is_own_line(name: str) -> bool:
    """Return whether a recorded function is a line of a program or of a model, which answers for a kernel.

    Those of Python itself, of torch, Triton and numpy, built-in and frozen ones only carry a call on. A model
    or an engine that is installed beside them does not.
    """
    match = _PLACE.match(name)
    if match is None:
        return False
    parts = _INSTALLED.sub("", match["file"]).split("/")
    return parts[0] not in _CARRIERS and parts[-1] not in _WRAPPERS and parts[0] not in _STANDARD
