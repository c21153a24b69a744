"""Weights as the fused kernels read them: for one row, or for several at once."""

from typing import Any, Protocol

import torch

from engines.kernels import kernel
from engines.weights import low_bit, packed_matrices, storage
from engines.weights.storage import Matrix

Finish = tuple[Any, ...]  # what add_rmsnorm calls so


class Weight(Protocol):
    """A matrix as the kernels read it; `split` parts of a product are added when its rows are finished."""

    rows: int
    split: int

    def into(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        bias: torch.Tensor | None = None,
        finish: Finish | None = None,
    ) -> None:
        """Write the product of x and this matrix to `out`, and finish its rows where that is asked for."""

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        """Write act(x·gate) · (x·up) to `out`; this matrix is gate above up."""


class PlainWeight:
    """A weight in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight
        self._gemv, self._gate_up, self._rows = map(kernel, ("gemv", "gate_up_act", "rows_product"))
        self._one = self._rows.one_by_one
        self.rows = weight.shape[0]
        self.split: int = self._gemv.split_of(self.rows)

    def into(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        bias: torch.Tensor | None = None,
        finish: Finish | None = None,
    ) -> None:
        (self._gemv if self._one(x) else self._rows).launch(x, self._weight, out, bias=bias, finish=finish)

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        gate_up = self._gate_up.launch if self._one(x) else self._rows.gate_up
        gate_up(x, self._weight, out, gelu=gelu)


class PackedWeight:
    """A weight in four or eight bits, unpacked on its way into the product."""

    def __init__(self, packed: low_bit.Packed) -> None:
        self._packed, self._kernel = packed, packed_matrices.kernel_for(packed)
        self._rows = kernel("rows_product")
        self._one = self._rows.one_by_one
        self.rows = packed.rows
        self.split: int = self._kernel.split_of(self.rows)

    def into(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        bias: torch.Tensor | None = None,
        finish: Finish | None = None,
    ) -> None:
        codes, scales = self._packed.codes, self._packed.scales
        if self._one(x):
            self._kernel.launch(x, codes, scales, out, bias=bias, finish=finish)
        else:
            self._rows.launch(x, codes, out, scales=scales, bias=bias, finish=finish)

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        codes, scales = self._packed.codes, self._packed.scales
        if self._one(x):
            self._kernel.gate_up(x, codes, scales, out, gelu=gelu)
        else:
            self._rows.gate_up(x, codes, out, scales=scales, gelu=gelu)


def kernel_weight(matrix: Matrix) -> Weight:
    """Return what the kernels read of a matrix. Raise TypeError for a kind of matrix that no kernel reads."""
    if isinstance(matrix, packed_matrices.Kernel):
        return PackedWeight(matrix.packed)
    if isinstance(matrix, storage.Plain):
        return PlainWeight(matrix.weight)
    raise TypeError(f"no kernel reads a {type(matrix).__name__}")
