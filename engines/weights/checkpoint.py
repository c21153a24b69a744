"""A folder of safetensors as a source: every tensor of ours, wherever in the folder it is kept."""

from pathlib import Path
from typing import Final

import torch

from engines.models.spec import Spec
from engines.weights.shards import Shards
from engines.weights.stored import piece_of, stored_tensors

# the 4-bit numbers of MXFP4 (E2M1), by their codes
_E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS: Final = 127  # of the exponents that scale a group of them


class Checkpoint:
    """Weights from a folder of safetensors."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.label = "real"
        self._spec, self._shards = spec, Shards(folder)
        self._shards.check(stored_tensors(spec))

    def read(self, name: str) -> torch.Tensor:
        piece = piece_of(self._spec, name)
        if piece is None:
            return self._shards.read(name)
        stored = self._shards.read(piece.name, piece.item)
        if piece.scales:
            stored = from_mxfp4(stored, self._shards.read(piece.scales, piece.item))
        whole = stored.T if piece.turned else stored
        return whole if piece.rows is None else whole[piece.rows]

    def packed(self, name: str) -> None:
        return None


def from_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the numbers [rows, groups · 32] of blocks [rows, groups, 16] and their exponents, in bf16.

    Two codes a byte, the first in the low bits; every number of the format is one of bf16.
    https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
    """
    values = torch.tensor((*_E2M1, *(-value for value in _E2M1)), dtype=torch.float32)
    codes = torch.stack((blocks & 0xF, blocks >> 4), -1).flatten(-2)
    numbers = torch.ldexp(values[codes.int()], scales[..., None].int() - _BIAS)
    return numbers.flatten(-2).to(torch.bfloat16)
