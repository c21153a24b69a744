"""Where the packages `capture` and `engines` lie, and how processes of ours import them and no others.

Users have modules and folders called `capture` or `engines` too. The wheel therefore holds ours in a private
folder, `tracetui/_rooms`; in a checkout they lie beside `tracetui`. Standard library only: this runs first.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

ROOMS: Final = ("capture", "engines")
PRIVATE_CAPTURE: Final = "_tracetui_capture"  # our `capture` in a program of the user's

_HERE: Final = Path(__file__).resolve().parent


def folder() -> Path:
    """Return the folder that holds `capture` and `engines`."""
    packed = _HERE / "_rooms"
    return packed if packed.is_dir() else _HERE.parent


def put_first() -> None:
    """Make this process import our rooms, whatever lies in its folder or comes first on its path.

    Foreign modules of these names that are imported already are dropped from `sys.modules`.
    """
    place = str(folder())
    sys.path[:] = [place, *(entry for entry in sys.path if entry != place)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ROOMS and not _is_ours(module):
            del sys.modules[name]


def import_reader() -> ModuleType:
    """Import what reads profiles for a program of the user's, whose path stays as it is.

    Raise ImportError where a `capture` of the user's is imported already: ours would take its place.
    """
    if "capture" not in sys.modules:
        sys.path.insert(0, str(folder()))
        try:
            importlib.import_module("capture")
        finally:
            sys.path.remove(str(folder()))
    if not _is_ours(sys.modules["capture"]):
        raise ImportError("another module called capture is imported here; `tracetui query` reads without it")
    return importlib.import_module("tracetui.profile")


def environment() -> dict[str, str]:
    """Return the environment of a process of ours: as this one's, with the rooms first on its path."""
    paths = [str(folder()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def import_privately(module: str) -> ModuleType:
    """Import a module of our `capture` under the private package name, by its place.

    Neither `sys.path` nor a module of the user's that is called `capture` has a part in it.
    """
    if PRIVATE_CAPTURE not in sys.modules:
        init = folder() / "capture" / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            PRIVATE_CAPTURE, init, submodule_search_locations=[str(init.parent)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{init} cannot be loaded")
        package = importlib.util.module_from_spec(spec)
        sys.modules[PRIVATE_CAPTURE] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{PRIVATE_CAPTURE}.{module}")


def _is_ours(module: ModuleType) -> bool:
    place = getattr(module, "__file__", None)
    return isinstance(place, str) and Path(place).resolve().is_relative_to(folder())
