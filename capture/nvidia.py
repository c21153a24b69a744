"""NVIDIA driver version and GPU names of this machine, read without touching a GPU."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.clean_text import clean

MIN_DRIVER_BY_CUDA: Final = {11: 450, 12: 525, 13: 580}  # by CUDA major version

_PROC: Final = Path("/proc/driver/nvidia")


def read_driver_version() -> str:
    """Return the version of the loaded driver, or an empty text."""
    with suppress(OSError, ValueError):
        text = (_PROC / "version").read_text()
        if match := re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text):
            return match[0]
    return ""


def read_gpu_names() -> list[str]:
    """Return the names of the driver's GPUs."""
    names = []
    for path in sorted((_PROC / "gpus").glob("*/information")):
        with suppress(OSError, ValueError):
            lines = path.read_text().splitlines()
            models = [line.partition(":")[2] for line in lines if line.startswith("Model:")]
            names += [clean(model.strip(), 200) for model in models]
    return names


def explain_unused_gpu(cuda: str | None) -> str:
    """Return why a torch built for this CUDA version (None: without CUDA) does not use the driver's GPU.

    Empty if there is no driver or no known obstacle.
    """
    version = read_driver_version()
    if not version:
        return ""
    if not cuda:
        return f"an NVIDIA driver ({version}) is present, but this torch is built without CUDA"
    oldest = MIN_DRIVER_BY_CUDA.get(int(cuda.split(".")[0]), 0)
    is_too_old = int(version.split(".")[0]) < oldest
    problem = f"the NVIDIA driver {version} is too old for torch's CUDA {cuda}, which needs {oldest} or later"
    return problem if is_too_old else ""
