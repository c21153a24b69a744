"""What the NVIDIA driver of this machine says of itself, read without asking a GPU."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.text import clean

FIRST_DRIVER: Final = {11: 450, 12: 525, 13: 580}  # by CUDA: a driver below that runs none of its versions

_PROC: Final = Path("/proc/driver/nvidia")


def driver() -> str:
    """Return the version of the driver that is loaded; empty where there is none."""
    with suppress(OSError, ValueError):
        text = (_PROC / "version").read_text()
        if match := re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text):
            return match[0]
    return ""


def gpus() -> list[str]:
    """Return the names of the driver's GPUs."""
    names = []
    for path in sorted((_PROC / "gpus").glob("*/information")):
        with suppress(OSError, ValueError):
            lines = path.read_text().splitlines()
            names += [
                clean(line.split(":", 1)[1].strip(), 200) for line in lines if line.startswith("Model:")
            ]
    return names


def why_unused(cuda: str | None) -> str:
    """Return why a torch that is built for this version of CUDA, or for none, does not use the driver's GPU.

    Empty where there is no driver, and where nothing is known to be in the way.
    """
    version = driver()
    if not version:
        return ""
    if not cuda:
        return f"an NVIDIA driver ({version}) is here, but this torch is built without CUDA"
    first = FIRST_DRIVER.get(int(cuda.split(".")[0]), 0)
    if int(version.split(".")[0]) < first:
        return f"the NVIDIA driver {version} is too old for torch's CUDA {cuda}, which needs {first} or later"
    return ""
