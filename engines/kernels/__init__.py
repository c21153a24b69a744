"""Decode kernels in Triton, one file each: reference(), the kernel, its launcher, what it is compiled for.

Every reference is plain torch. Weights multiply in fp32, whatever they are stored in.
"""

import importlib.util
import os
from importlib import import_module
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
    "decode_attention",
    "sampling",
)

# products are added in one step, as Triton has always done; unset, it warns that this will change
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


def available() -> bool:
    """Whether Triton is installed; nothing but the kernels needs it."""
    return importlib.util.find_spec("triton") is not None


def load(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")
