"""Start recording in a Python whose PYTHONPATH begins with this folder: Python imports this at its start.

Works on every Python, also those that cannot be recorded. The folder is removed from `sys.path`, and a
`sitecustomize` that this one hides is run as well. Our package is loaded by path under a private name,
because the program may have a `capture` of its own.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_tracetui_capture"  # as in tracetui/package_paths.py: shared with a Recorder of the program

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
        sys.stderr.write("tracetui: this program is not recorded: " + _why + "\n")

_this_module = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError as _missing:
    if _this_module is not None:
        sys.modules["sitecustomize"] = _this_module
    if "sitecustomize" not in str(_missing):
        raise
