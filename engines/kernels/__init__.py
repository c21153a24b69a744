"""Decode kernels, one file each: `reference` in plain torch, the Triton kernel, `launch`, and its `cases`.

Weights multiply in fp32, whatever they are stored in. Whoever runs a kernel asks `kernel(name)` for it and
thereby leaves the choice of the backend to this file.
"""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

KERNELS: Final = (
    "embed",
    "add_rmsnorm",
    "qknorm_rope_append",
    "gemv",
    "gate_up_act",
    "w4a16_gemv",
    "int8_gemv",
    "rows_product",
    "decode_attention",
    "sampling",
)


@dataclass(frozen=True)
class Backend:
    """A compiler of kernels; its `package` holds a module for every name of KERNELS."""

    name: str
    package: str
    refusal: Callable[[str], str]  # type of a device → why kernels do not run there; empty: they do


def available() -> bool:
    """Return whether Triton is installed; nothing but the kernels needs it."""
    return importlib.util.find_spec("triton") is not None


def _triton_refusal(device: str) -> str:
    if not available():
        return "Triton is not installed"
    if _interpreted():
        return ""
    if device != "cuda":
        return f"the kernels are for CUDA and ROCm, not for {device}"
    missing = _missing_for_launchers()
    return f"Triton has no {missing} to build what launches its kernels" if missing else ""


def _interpreted() -> bool:
    from triton import knobs

    return bool(knobs.runtime.interpret)


def _missing_for_launchers() -> str:
    """Return what Triton needs to compile its launchers and does not find; empty when all is there."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "C compiler"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_path("include", scheme), "Python.h")
    return "" if header.exists() else f"{header}"


# products are added in one step, as Triton has always done; unset, it warns that this will change
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

# The backend in use. A second one stands in a package of its own, and makes this a choice by device.
BACKEND = Backend("triton", __name__, _triton_refusal)


def kernel(name: str) -> ModuleType:
    """Return the module of a kernel: `reference`, `launch`, and what a caller prepares for them."""
    return import_module(f"{BACKEND.package}.{name}")


def refusal(device: str) -> str:
    """Return why the kernels do not run on this type of device; empty when they do."""
    return BACKEND.refusal(device)
