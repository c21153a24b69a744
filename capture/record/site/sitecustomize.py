"""Python imports this at its start when its folder leads PYTHONPATH: torch is watched as soon as it is there.

It reads on every Python, also on those that nothing is watched on. Its folder leaves `sys.path`, and the
`sitecustomize` that this one hides is run all the same. Our package is loaded by its place under a private
name: the program's own `capture` stays the program's.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_tracetui_capture"  # as in tracetui/rooms.py: a Recorder of the program's is of the same package

sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]

if os.environ.get("TRACETUI_OUT") and sys.version_info >= (3, 8):
    try:
        if _PACKAGE not in sys.modules:
            _package = type(sys)(_PACKAGE)
            _package.__path__ = [os.path.dirname(os.path.dirname(_HERE))]
            sys.modules[_PACKAGE] = _package
        importlib.import_module(_PACKAGE + ".record.bootstrap").start()
    except Exception as _fault:
        _why = " ".join((type(_fault).__name__ + ": " + str(_fault)).split())
        sys.stderr.write("tracetui: the program is not watched: " + _why + "\n")

_own = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError as _missing:
    if _own is not None:
        sys.modules["sitecustomize"] = _own
    if "sitecustomize" not in str(_missing):
        raise
