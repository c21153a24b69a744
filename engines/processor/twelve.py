"""Matrices of bf16 that lie in twelve bits a number, exactly, as compiled code multiplies them.

`_twelve.h` says how. Weights of a matrix differ by a few powers of two; eight bits of exponent tell 256.
"""

from dataclasses import dataclass
from typing import Final

import torch

from engines.processor import Product, has, module

KIND: Final = "twelve"
HALF: Final = 64  # numbers of half a block
HALF_BYTES: Final = 96
CODES: Final = 8  # high bytes without their sign that four bits name
LOOKED_AT: Final = 1 << 14  # numbers of a matrix, by which its codes are chosen
_NO_CODE: Final = 0x80


def fits(columns: int, device: torch.device) -> bool:
    """Return whether rows of so many numbers can lie so on a device."""
    return has(KIND, device) and columns % HALF == 0


@dataclass(frozen=True)
class Shortened:
    """Numbers [n, k] of bf16 in twelve bits: blocks, and what is beside them."""

    blocks: torch.Tensor
    beside: torch.Tensor
    columns: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.blocks.nbytes + self.beside.nbytes

    def product(self) -> Product:
        return Product(KIND, self.blocks, self.beside, columns=self.columns)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows as they were, [ids, k] of bf16. Raise IndexError for one that is not there."""
        ids = ids.to(torch.int64).contiguous()
        out = torch.empty(len(ids), self.columns, dtype=torch.bfloat16)
        if len(ids):
            at = self.blocks.data_ptr(), self.beside.data_ptr(), ids.data_ptr(), out.data_ptr()
            module().lengthen(*at, len(self.blocks), self.columns, len(ids), torch.get_num_threads())
        return out


def shorten(weight: torch.Tensor) -> Shortened | None:
    """Return a matrix [n, k] of bf16 in twelve bits; None where it takes no fewer bytes so."""
    (n, k), words = weight.shape, weight.contiguous()
    codes, highs = codes_of(words)
    blocks = torch.empty(n, k // HALF * HALF_BYTES, dtype=torch.uint8)
    counts = torch.empty(n, dtype=torch.int32)
    at = words.data_ptr(), codes.data_ptr(), blocks.data_ptr(), counts.data_ptr()
    threads = torch.get_num_threads()
    module().shorten(*at, 0, n, k, threads)
    others, begins = int(counts.sum()), n + 1 + (n + 1) % 2
    beside = torch.zeros(64 + 4 * begins + 8 * others, dtype=torch.uint8)
    if blocks.nbytes + beside.nbytes >= words.nbytes:
        return None
    beside[:64] = highs.repeat(4)
    torch.cumsum(counts, 0, out=beside[64 : 64 + 4 * begins].view(torch.int32)[1 : n + 1])
    if others:
        module().shorten(*at, beside.data_ptr(), n, k, threads)
    return Shortened(blocks, beside, k)


def codes_of(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes of the 128 high bytes, without their sign, of bf16, and the high bytes of 16 codes."""
    step = max(1, words.numel() // LOOKED_AT) | 1  # odd, so that it does not stay in a few columns
    highs = words.view(-1)[::step].view(torch.int16).bitwise_right_shift(8).bitwise_and(127)
    seen = torch.bincount(highs, minlength=128)
    usual = seen.topk(CODES).indices.sort().values
    codes = torch.full((128,), _NO_CODE, dtype=torch.uint8)
    codes[usual] = torch.arange(CODES, dtype=torch.uint8)
    named = usual.to(torch.uint8)
    return codes, torch.cat((named, named | 0x80))
