"""Command lines and environments of the processes we start."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracetui import package_paths

OUT_VARIABLE: Final = "TRACETUI_OUT"
DETAIL_VARIABLE: Final = "TRACETUI_DETAIL"  # what the recorder times: full, layers or steps
OWN_PYTHON: Final = (sys.executable, "-P", "-m")  # -P: a folder in the working directory may have our name


def build_own_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module of ours; it needs `package_paths.build_environment()`."""
    return [*OWN_PYTHON, module, *arguments]


def build_watchdog_command(group: int, others: Sequence[int] = ()) -> list[str]:
    """Return the command line that kills a process group, and `others`, when its standard input closes."""
    return build_own_command("capture.record.watchdog", str(group), *map(str, others))


def build_waiting_watchdog_command(variable: str) -> list[str]:
    """Return the command line of a watchdog that reads the process group from its standard input.

    If that closes before, it ends the processes with this environment variable, NAME=VALUE.
    """
    return build_own_command("capture.record.watchdog", variable)


def build_sampler_command(out: Path, pid: int) -> list[str]:
    """Return the command line that appends CPU, memory and GPU counters of a process to a recording."""
    return build_own_command("capture.record.counters.sampler", str(out), "--pid", str(pid))


def find_hook_folder() -> str:
    """Return the folder whose `sitecustomize` starts the recorder."""
    return str(package_paths.find_packages_folder() / "capture" / "record" / "site")


def build_recorded_environment(out: Path) -> dict[str, str]:
    """Return the environment in which a user's program is recorded into `out`.

    Its PYTHONPATH begins with our `sitecustomize`, which starts the recorder; our packages are not on it.
    """
    paths = [find_hook_folder(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, OUT_VARIABLE: str(out.absolute()), "PYTHONPATH": os.pathsep.join(paths)}
