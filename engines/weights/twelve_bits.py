"""Weights of bf16, exactly, in twelve bits each: a quarter less to read for every token."""

from typing import Final

import torch
from torch.nn import functional

from engines import processor
from engines.models.spec import Spec
from engines.processor import twelve
from engines.processor.twelve import Shortened
from engines.weights.low_bit import Packed
from engines.weights.storage import COMPILED_WIDE, Embedding, Matrix, Plain, Table, Weight, to_dtype

A_PIECE: Final = 4 << 20  # weights that are bf16 again at a time, for many rows


class TwelveBits(processor.Copying):
    """A weight that multiplies a few rows as it lies; for many it is made bf16 again, in pieces."""

    def __init__(self, weight: Shortened) -> None:
        self.weight = weight
        self._few = weight.product()
        self.takes: torch.dtype = self._few.takes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= COMPILED_WIDE:
            return self._few(x)
        rows = torch.arange(self._few.rows).split(max(1, A_PIECE // self._few.columns))
        x = x.to(self.takes)
        return torch.cat([functional.linear(x, self.weight.rows(some)) for some in rows], -1)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        if x.shape[0] <= COMPILED_WIDE and processor.writable(out, bias):
            self._few.into(x, out, bias)
        else:
            super().into(x, out, bias)


class Rows:
    """A table of which only the rows that are asked for are bf16 again."""

    def __init__(self, table: Shortened) -> None:
        self.table = table

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table.rows(ids)


class InTwelveBits:
    """Stores a model's matrices in twelve bits a weight; those that are no shorter so stay as they are."""

    name: Final = "bf16 in 12 bits"
    dtype: Final = torch.bfloat16
    form: Final = None
    fusion: Final = ""
    keeps: Final = False
    beside: Final = 0.0

    def __init__(self) -> None:
        self._bytes = self._weights = 0

    @property
    def weight_bytes(self) -> float:
        """Of the matrices that there are, with what lies beside them; a guess while there is none."""
        return self._bytes / self._weights if self._weights else 1.5

    @property
    def held(self) -> float:
        return self.weight_bytes

    @property
    def passing(self) -> float:
        return 2 + self.weight_bytes

    def matrix(self, weight: Weight, device: torch.device) -> Matrix:
        return self._stored(weight, device)[0]

    def ends(self, table: Weight, head: Weight | None, device: torch.device) -> tuple[Table, Matrix]:
        matrix, stored = self._stored(table, device)
        rows = Rows(stored) if isinstance(stored, Shortened) else Embedding(stored)
        return rows, matrix if head is None else self.matrix(head, device)

    def _stored(self, weight: Weight, device: torch.device) -> tuple[Matrix, Shortened | torch.Tensor]:
        numbers = as_bf16(weight, device)
        short = twelve.shorten(numbers)
        self._weights += numbers.numel()
        self._bytes += short.size if short else numbers.nbytes
        if short:
            return TwelveBits(short), short
        kept = numbers.clone()  # it may lie where the next ones are going to be
        return Plain(kept), kept


def as_bf16(weight: Weight, device: torch.device) -> torch.Tensor:
    numbers = weight.unpacked() if isinstance(weight, Packed) else weight
    return to_dtype(numbers, torch.bfloat16).to(device)


def fits(spec: Spec, device: torch.device) -> bool:
    """Return whether all matrices of a model can lie in twelve bits on a device."""
    experts = (spec.experts.ffn,) if spec.experts else ()
    return all(twelve.fits(k, device) for k in (spec.hidden, spec.query_width, spec.ffn, *experts))
