"""Compiled products for CPUs with AVX-512 and bf16; if missing, callers multiply in torch.

`_processor.c` and its headers are built by `python -m capture.build_part engines/processor/_processor.c`.

row_ops: Norms, gates and attention of one position, compiled.
huge_pages: Move weights to huge pages.
"""

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Final
from weakref import WeakSet, finalize

import torch

from capture.extensions import Extension

PART: Final = Extension(f"{__name__}._processor", 6, "torch multiplies, more slowly")

GROUP: Final = 32  # weights that share a scale
MAX_COMPILED_ROWS: Final = 32  # rows up to which products of 16-bit weights are faster than torch's

# the kinds of products, and the dtype of the rows that each takes
INPUT_DTYPES: Final = {
    "int4": torch.float32,
    "int8": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float32,
    "bf12": torch.bfloat16,
}


@cache
def list_kinds() -> tuple[str, ...]:
    """List the supported kinds of products; empty without the compiled part."""
    extension = PART.load()
    return extension.KINDS if extension else ()


@cache
def load_module() -> ModuleType:
    """Return the compiled part, if there are kinds of products."""
    extension = PART.load()
    assert extension
    return extension


def has_kind(kind: str, device: torch.device) -> bool:
    """Return whether a kind of product is compiled for a device."""
    return device.type == "cpu" and kind in list_kinds()


class CpuProduct:
    """A matrix on the CPU that multiplies rows without a copy of it; the product is fp32."""

    def __init__(
        self, kind: str, weights: torch.Tensor, second_part: torch.Tensor | None = None, *, columns: int = 0
    ) -> None:
        """Wrap numbers [n, k], or what the kind stores instead and its second part, such as scales [n, k/32].

        Raise ValueError for a kind that is not supported.
        """
        if kind not in list_kinds():
            raise ValueError(f"there is no compiled product of kind {kind}")
        self.input_dtype = INPUT_DTYPES[kind]
        self.rows = weights.shape[0]
        self.columns = columns or (weights.shape[1] if second_part is None else second_part.shape[1] * GROUP)
        # held as long as their addresses are used
        self._weights = weights.contiguous()
        self._second_part = None if second_part is None else second_part.contiguous()
        self._multiply, self._kind = load_module().multiply, list_kinds().index(kind)
        finalize(self, load_module().forget, self._weights.data_ptr())
        _products.add(self)
        second_address = 0 if self._second_part is None else self._second_part.data_ptr()
        self._addresses = self._weights.data_ptr(), second_address

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows [m, k]; return [m, n]. Raise ValueError if k differs from the matrix."""
        return self.multiply_into(x, torch.empty(x.shape[0], self.rows))

    def multiply_into(
        self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply into contiguous `out` [m, n] of fp32, adding a bias [n] of fp32; return `out`."""
        rows = x if x.dtype == self.input_dtype else x.to(self.input_dtype)
        if not rows.is_contiguous():
            rows = rows.contiguous()
        m, k = rows.shape
        if k != self.columns:
            raise ValueError(f"rows of {k} numbers for a matrix of {self.columns}")
        targets = out.data_ptr(), 0 if bias is None else bias.data_ptr()
        threads = torch.get_num_threads()
        self._multiply(*self._addresses, rows.data_ptr(), *targets, self.rows, k, m, threads, self._kind)
        return out


_products: Final[WeakSet[CpuProduct]] = WeakSet()  # that are alive


def iter_weights() -> Iterator[torch.Tensor]:
    """Iterate over the tensors that all products of this process read."""
    for product in _products:
        yield product._weights
        if product._second_part is not None:
            yield product._second_part
