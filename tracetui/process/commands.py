"""Command lines and environments of the processes that the explorer starts."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracetui import rooms

OUT: Final = "TRACETUI_OUT"
OWN_PYTHON: Final = (sys.executable, "-P", "-m")  # -P: a folder here that has our name is not ours


def own_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module of ours; run it in `rooms.environment()`."""
    return [*OWN_PYTHON, module, *arguments]


def watchdog_command(group: int, others: Sequence[int] = ()) -> list[str]:
    """Return the command line of the process that ends a group and others when its input is closed."""
    return own_command("capture.record.watchdog", str(group), *map(str, others))


def sampler_command(out: Path, pid: int) -> list[str]:
    """Return the command line of the process that adds CPU, memory and GPU counters to a recording."""
    return own_command("capture.record.counters", str(out), "--pid", str(pid))


def recorded_environment(out: Path) -> dict[str, str]:
    """Return the environment of a foreign program to be recorded into `out`.

    It says where the lines go and has plain PyTorch write them; our rooms are not on its path.
    """
    hook = str(rooms.folder() / "capture" / "record" / "site")
    paths = [hook, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, OUT: str(out.absolute()), "PYTHONPATH": os.pathsep.join(paths)}
