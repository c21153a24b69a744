"""Weights as the fused kernels read them."""

from typing import Protocol

import torch

from engines.kernels import kernel
from engines.weights import low_bit, packed_matrices, storage
from engines.weights.storage import Matrix


class Weight(Protocol):
    """A matrix as the kernels read it; `split` parts of a product are left for the next kernel to add."""

    rows: int
    split: int

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Write the product of x and this matrix to `out`."""

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        """Write act(x·gate) · (x·up) to `out`; this matrix is gate above up."""


class PlainWeight:
    """A weight in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight
        self._gemv, self._gate_up = kernel("gemv"), kernel("gate_up_act")
        self.rows = weight.shape[0]
        self.split: int = self._gemv.split_of(self.rows)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._gemv.launch(x, self._weight, out, bias=bias)

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        self._gate_up.launch(x, self._weight, out, gelu=gelu)


class PackedWeight:
    """A weight in four or eight bits, unpacked on its way into the product."""

    def __init__(self, packed: low_bit.Packed) -> None:
        self._packed, self._kernel = packed, packed_matrices.kernel_for(packed)
        self.rows = packed.rows
        self.split: int = self._kernel.split_of(self.rows)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._kernel.launch(x, self._packed.codes, self._packed.scales, out)
        if bias is not None:
            out += bias

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        self._kernel.gate_up(x, self._packed.codes, self._packed.scales, out, gelu=gelu)


def kernel_weight(matrix: Matrix) -> Weight:
    """Return what the kernels read of a matrix. Raise TypeError for a kind of matrix that no kernel reads."""
    if isinstance(matrix, packed_matrices.Kernel):
        return PackedWeight(matrix.packed)
    if isinstance(matrix, storage.Plain):
        return PlainWeight(matrix.weight)
    raise TypeError(f"no kernel reads a {type(matrix).__name__}")
