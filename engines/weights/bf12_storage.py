"""bf16 weights stored losslessly in 12 bits: a quarter less to read per token. `bf12.h` describes the layout.

The weights of a matrix differ by a few powers of two, but eight bits of exponent distinguish 256.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from engines.models.spec import Spec
from engines.processor import CpuProduct, has_kind, load_module
from engines.weights.matrix_storage import (
    EmbeddingTable,
    Matrix,
    PlainEmbedding,
    PlainMatrix,
    Storage,
    Weight,
    cast_weight,
)

KIND: Final = "bf12"
HALF_BLOCK: Final = 64  # numbers of half a block
HALF_BYTES: Final = 96  # bytes of half a block
CODES: Final = 8  # high bytes that have a code; a fourth bit is the sign
SAMPLED_NUMBERS: Final = 1 << 14  # numbers of a matrix that are sampled to choose its codes
UNPACK_WEIGHTS: Final = 4 << 20  # decoded to bf16 at a time, for products of many rows
_NO_CODE: Final = 0x80


@dataclass(frozen=True)
class Bf12Matrix:
    """A matrix [n, k] of bf16 in 12 bits per number: blocks, and a side table of codes and exceptions."""

    blocks: torch.Tensor
    side_table: torch.Tensor
    columns: int

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.blocks.nbytes + self.side_table.nbytes

    def make_product(self) -> CpuProduct:
        return CpuProduct(KIND, self.blocks, self.side_table, columns=self.columns)

    def decode_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Decode rows to bf16, [ids, k]. Raise IndexError for an invalid id."""
        ids = ids.to(torch.int64).contiguous()
        out = torch.empty(len(ids), self.columns, dtype=torch.bfloat16)
        if len(ids):
            addresses = self.blocks.data_ptr(), self.side_table.data_ptr(), ids.data_ptr(), out.data_ptr()
            sizes = len(self.blocks), self.columns, len(ids)
            load_module().decode_bf12(*addresses, *sizes, torch.get_num_threads())
        return out


def encode(weight: torch.Tensor) -> Bf12Matrix | None:
    """Encode a matrix [n, k] of bf16; None if that saves no bytes."""
    (n, k), words = weight.shape, weight.contiguous()
    codes, high_bytes = choose_codes(words)
    blocks = torch.empty(n, k // HALF_BLOCK * HALF_BYTES, dtype=torch.uint8)
    counts = torch.empty(n, dtype=torch.int32)
    addresses = words.data_ptr(), codes.data_ptr(), blocks.data_ptr(), counts.data_ptr()
    threads = torch.get_num_threads()
    load_module().encode_bf12(*addresses, 0, n, k, threads)  # first pass: blocks, and exceptions per row
    exceptions, start_count = int(counts.sum()), n + 1 + (n + 1) % 2
    side_table = torch.zeros(64 + 4 * start_count + 8 * exceptions, dtype=torch.uint8)
    if blocks.nbytes + side_table.nbytes >= words.nbytes:
        return None
    side_table[:64] = high_bytes.repeat(4)
    torch.cumsum(counts, 0, out=side_table[64 : 64 + 4 * start_count].view(torch.int32)[1 : n + 1])
    if exceptions:
        load_module().encode_bf12(*addresses, side_table.data_ptr(), n, k, threads)  # second: the exceptions
    return Bf12Matrix(blocks, side_table, k)


def choose_codes(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the code of each of the 128 high bytes without a sign, and the high byte of each of 16 codes.

    The most common high bytes get codes; the others get _NO_CODE and are stored as exceptions.
    """
    step = max(1, words.numel() // SAMPLED_NUMBERS) | 1  # odd, so that it does not stay in a few columns
    high_bytes = words.view(-1)[::step].view(torch.int16).bitwise_right_shift(8).bitwise_and(127)
    counts = torch.bincount(high_bytes, minlength=128)
    most_common = counts.topk(CODES).indices.sort().values
    codes = torch.full((128,), _NO_CODE, dtype=torch.uint8)
    codes[most_common] = torch.arange(CODES, dtype=torch.uint8)
    code_bytes = most_common.to(torch.uint8)
    return codes, torch.cat((code_bytes, code_bytes | 0x80))


class Bf12Product(Matrix):
    """A 12-bit matrix: few rows are multiplied as stored, for many it is decoded in chunks."""

    def __init__(self, weight: Bf12Matrix) -> None:
        self.weight = weight
        self._compiled: CpuProduct = weight.make_product()
        self.input_dtype: torch.dtype = self._compiled.input_dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= self._max_compiled_rows:
            return self._compiled(x)
        rows = torch.arange(self._compiled.rows).split(max(1, UNPACK_WEIGHTS // self._compiled.columns))
        x = x.to(self.input_dtype)
        return torch.cat([functional.linear(x, self.weight.decode_rows(ids)) for ids in rows], -1)


class Bf12Storage(Storage):
    """Stores matrices in 12 bits per weight; those that would not shrink stay bf16.

    `weight_bytes` are those of the matrices so far, side tables included; 1.5 before the first.
    """

    name = "bf16 in 12 bits"
    dtype = torch.bfloat16

    def __init__(self) -> None:
        self._bytes = self._weights = 0
        self.weight_bytes = self.held_bytes = 1.5
        self.build_bytes = 2 + self.weight_bytes

    def build_matrix(self, weight: Weight, device: torch.device) -> Matrix:
        return self._encode(weight, device)[1]

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, Matrix]:
        embedding, matrix = self._encode(table, device)
        return embedding, matrix if head is None else self.build_matrix(head, device)

    def _encode(self, weight: Weight, device: torch.device) -> tuple[EmbeddingTable, Matrix]:
        numbers = cast_weight(weight, self.dtype).to(device)
        encoded = encode(numbers)
        self._weights += numbers.numel()
        self._bytes += encoded.size if encoded else numbers.nbytes
        self.weight_bytes = self.held_bytes = self._bytes / self._weights
        self.build_bytes = 2 + self.weight_bytes
        if encoded:
            return encoded.decode_rows, Bf12Product(encoded)
        copied = numbers.clone()  # `numbers` may be a buffer that the next matrix overwrites
        return PlainEmbedding(copied), PlainMatrix(copied)


def can_store(spec: Spec, device: torch.device) -> bool:
    """Return whether all matrices of a model can be stored in 12 bits on a device."""
    widths = spec.hidden, spec.query_width, spec.ffn, spec.experts.ffn if spec.experts else 0
    return has_kind(KIND, device) and all(width % HALF_BLOCK == 0 for width in widths)
