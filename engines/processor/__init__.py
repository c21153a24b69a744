"""Products on the processor in compiled code, where it is built and wanted and the processor can run it.

`_processor.c` says what it does. Whoever asks for a product multiplies in torch where there is none.
"""

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Final
from weakref import WeakSet, finalize

import torch

from capture.compiled import Part

PART: Final = Part(f"{__name__}._processor", 5, "torch multiplies, slower and as right")

GROUP: Final = 32  # weights that share a scale

# the kinds of products, and the dtype of the rows that each takes
TAKES: Final = {
    "four": torch.float32,
    "eight": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float32,
    "twelve": torch.bfloat16,
}


@cache
def kinds() -> tuple[str, ...]:
    """Return the kinds of products that there are here; none without the compiled part."""
    found = PART.module()
    return found.KINDS if found else ()


@cache
def module() -> ModuleType:
    """Return the compiled part, where there are kinds of products."""
    found = PART.module()
    assert found
    return found


def has(kind: str, device: torch.device) -> bool:
    """Return whether a kind of product is compiled for a device."""
    return device.type == "cpu" and kind in kinds()


class Product:
    """A matrix on the processor that multiplies rows, where it lies; the product is in fp32."""

    def __init__(
        self, kind: str, weights: torch.Tensor, beside: torch.Tensor | None = None, *, columns: int = 0
    ) -> None:
        """Take numbers [n, k], or what the kind makes of them and has beside; else scales [n, k/32] tell k.

        Raise ValueError for a kind that is not there.
        """
        if kind not in kinds():
            raise ValueError(f"there is no compiled product of kind {kind}")
        self.takes = TAKES[kind]
        self.rows = weights.shape[0]
        self.columns = columns or (weights.shape[1] if beside is None else beside.shape[1] * GROUP)
        # held as long as their addresses are used
        self._weights, self._beside = weights.contiguous(), None if beside is None else beside.contiguous()
        self._multiply, self._kind = module().multiply, kinds().index(kind)
        finalize(self, module().forget, self._weights.data_ptr())
        _products.add(self)
        self._at = self._weights.data_ptr(), 0 if self._beside is None else self._beside.data_ptr()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the products of rows [m, k], [m, n]. Raise ValueError where k is not that of the matrix."""
        return self.into(x, torch.empty(x.shape[0], self.rows))

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Write the same to `out` of fp32 [m, n] without gaps, with a bias [n] of fp32 added; return it."""
        rows = x if x.dtype == self.takes else x.to(self.takes)
        if not rows.is_contiguous():
            rows = rows.contiguous()
        m, k = rows.shape
        if k != self.columns:
            raise ValueError(f"rows of {k} numbers for a matrix of {self.columns}")
        to = out.data_ptr(), 0 if bias is None else bias.data_ptr()
        threads = torch.get_num_threads()
        self._multiply(*self._at, rows.data_ptr(), *to, self.rows, k, m, threads, self._kind)
        return out

    def held(self) -> Iterator[torch.Tensor]:
        """Yield what a product reads."""
        yield self._weights
        if self._beside is not None:
            yield self._beside


_products: Final[WeakSet[Product]] = WeakSet()  # that are alive


def held() -> Iterator[torch.Tensor]:
    """Yield what the products of this process read, of all matrices that are held."""
    for product in _products:
        yield from product.held()


def writable(out: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Return whether a product can be written there, with that bias."""
    return all(t is None or (t.dtype == torch.float32 and t.is_contiguous()) for t in (out, bias))


class Copying:
    """Writes products where they belong by making them first: what does better overrides `into`."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the products of rows to `out`, with a bias added if there is one."""
        if bias is None:
            out.copy_(self(x))
        else:
            torch.add(self(x), bias, out=out)
