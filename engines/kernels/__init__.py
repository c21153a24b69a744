"""Triton kernels of a decode step, one file each: `reference` in plain torch, the kernel, `launch`, `cases`.

Products are computed in fp32, whatever the weights are stored in. Callers get a kernel from
`load_kernel(name)` and so leave the choice of the backend to this file.

embed: The row of the last token becomes the stream; the position advances.
add_rmsnorm: Norm of a product, its addition to the stream, and the next norm.
qknorm_rope_append: Norm and rotation of query and key heads, append to the cache.
gemv: A row times a plain matrix.
int8_gemv: A row times a matrix of 8 bits.
w4a16_gemv: A row times a matrix of 4 bits.
gate_up_act: A row times gate and up, and the activation.
rows_product: Several rows times a matrix, on tensor cores.
decode_attention: Attention of one position over the cache.
sampling: Draw the next token.
gemv_template: Shared by the kernels for one row: loop over the columns, launches, cases.
launch_support: Shared by all kernels: tiles, arrival counters, cases, launch metadata.
compile: Compile all kernels for GPUs that need not be here, and check the machine code.
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
    """A compiler of kernels; its `package` has a module for every name of KERNELS."""

    name: str
    package: str
    explain_refusal: Callable[[str], str]  # type of a device → why kernels do not run there; empty: they do


def is_available() -> bool:
    """Return whether Triton is installed; only the kernels need it."""
    return importlib.util.find_spec("triton") is not None


def _explain_triton_refusal(device: str) -> str:
    if not is_available():
        return "Triton is not installed"
    if _is_interpreted():
        return ""
    if device != "cuda":
        return f"the kernels support CUDA and ROCm, not {device}"
    missing = _find_missing_for_launchers()
    return f"Triton needs {missing} to build kernel launchers" if missing else ""


def _is_interpreted() -> bool:
    from triton import knobs

    return bool(knobs.runtime.interpret)


def _find_missing_for_launchers() -> str:
    """Return a requirement of Triton's launchers that is missing; empty if nothing."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_path("include", scheme), "Python.h")
    return "" if header.exists() else f"{header}"


# products are added in one step, as Triton has always done; unset, it warns that this will change
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

# The backend in use. A second one stands in a package of its own, and makes this a choice by device.
BACKEND = Backend("triton", __name__, _explain_triton_refusal)


def load_kernel(name: str) -> ModuleType:
    """Return the module of a kernel: `reference`, `launch`, and what callers prepare for them."""
    return import_module(f"{BACKEND.package}.{name}")


def explain_refusal(device: str) -> str:
    """Return why the kernels do not run on this type of device; empty if they do."""
    return BACKEND.explain_refusal(device)
