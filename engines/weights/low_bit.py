"""Quantisation formats of 4 and 8 bits, as MLC and ggml define them: pack and unpack matrices.

q4f16_1, q4f32_1: groups of 32 along a row; codes 0-14, eight per 32-bit word, lowest bits first; the scale,
of 16 or 32 bits, is the group's largest magnitude / 7, and a weight is (code - 7) · scale.
q8_0: groups of 32, codes -127…127 in bytes, a 16-bit scale, largest magnitude / 127.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

GROUP: Final = 32
CODES_PER_WORD: Final = 8
CHUNK_WEIGHTS: Final = 1 << 20  # unpacked at once: in fp32 they fit the caches
GPU_CHUNK_WEIGHTS: Final = 1 << 26  # on a GPU, where each chunk costs launches
TORCH_BLOCK_ROWS: Final = 64  # torch packs 4-bit matrices in blocks of so many rows

ReportPacked = Callable[[int], None]


@dataclass(frozen=True)
class QuantFormat:
    """A quantisation format."""

    name: str
    bits: int
    scale_dtype: torch.dtype
    max_code: int  # the code of a group's largest magnitude

    @property
    def bits_per_weight(self) -> float:
        return self.bits + 8 * self.scale_dtype.itemsize / GROUP


QUANT_FORMATS: Final = {
    form.name: form
    for form in (
        QuantFormat("q4f16_1", 4, torch.float16, 7),
        QuantFormat("q4f32_1", 4, torch.float32, 7),
        QuantFormat("q8_0", 8, torch.float16, 127),
    )
}


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A matrix in a format: words [n, k/8] of 32 bits or bytes [n, k], and scales [n, k/32]."""

    format: QuantFormat
    codes: torch.Tensor
    scales: torch.Tensor

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    @property
    def columns(self) -> int:
        return self.scales.shape[1] * GROUP

    def select_rows(self, rows: slice | torch.Tensor) -> "PackedMatrix":
        return PackedMatrix(self.format, self.codes[rows], self.scales[rows])

    def to(self, device: torch.device) -> "PackedMatrix":
        return self.map_parts(lambda part: part.to(device))

    def map_parts(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "PackedMatrix":
        """Return the matrix with a function applied to codes and scales, such as a reordering of rows."""
        return PackedMatrix(self.format, change(self.codes), change(self.scales))

    def unpack_codes(self) -> torch.Tensor:
        """Return the codes as integers around zero, [n, k]."""
        return self._read_codes().to(torch.int8) - self._zero_code

    def unpack(self) -> torch.Tensor:
        """Return the weights in fp32."""
        grouped = self._read_codes().view(self.rows, -1, GROUP) - float(self._zero_code)
        return (grouped * self.scales[..., None]).flatten(1)

    @property
    def _zero_code(self) -> int:
        return 0 if self.format.bits == 8 else self.format.max_code

    def _read_codes(self) -> torch.Tensor:
        if self.format.bits == 8:
            return self.codes
        pairs = self.codes.view(torch.uint8)  # two codes a byte, the first in the low bits
        return torch.stack((pairs & 0xF, pairs >> 4), -1).flatten(1)

    def iter_chunks(self) -> Iterator["PackedMatrix"]:
        """Iterate over the matrix in chunks of rows that fit the caches once unpacked."""
        slices = _iter_row_slices(self.rows, self.columns, self.codes.device)
        return map(self.select_rows, slices)


def join_packed(parts: Sequence[PackedMatrix]) -> PackedMatrix:
    """Stack matrices of one format, rows below rows."""
    codes, scales = torch.cat([p.codes for p in parts]), torch.cat([p.scales for p in parts])
    return PackedMatrix(parts[0].format, codes, scales)


def pack(weight: torch.Tensor, format: QuantFormat, report: ReportPacked | None = None) -> PackedMatrix:
    """Quantise a matrix [n, k]; k must be a multiple of 32. `report` is called with the weights done."""
    n, k = weight.shape
    if k % GROUP:
        raise ValueError(f"rows of {k} are not a multiple of {GROUP}")
    width, dtype = (k // CODES_PER_WORD, torch.int32) if format.bits == 4 else (k, torch.int8)
    codes = torch.empty(n, width, dtype=dtype, device=weight.device)
    scales = torch.empty(n, k // GROUP, dtype=format.scale_dtype, device=weight.device)
    for piece in _iter_row_slices(n, k, weight.device):
        codes[piece], scales[piece] = _pack_rows(weight[piece].float(), format)
        if report:
            report(k * len(scales[piece]))
    return PackedMatrix(format, codes, scales)


def _iter_row_slices(rows: int, columns: int, device: torch.device) -> Iterator[slice]:
    most = CHUNK_WEIGHTS if device.type == "cpu" else GPU_CHUNK_WEIGHTS
    step = max(most // columns // TORCH_BLOCK_ROWS, 1) * TORCH_BLOCK_ROWS
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _pack_rows(weight: torch.Tensor, format: QuantFormat) -> tuple[torch.Tensor, torch.Tensor]:
    grouped = weight.view(weight.shape[0], -1, GROUP)
    scales = (grouped.abs().amax(-1) / format.max_code).to(format.scale_dtype)
    divisor = torch.where(scales == 0, 1.0, scales.float())  # a group of zeros stays one
    signed = (grouped / divisor[..., None]).round_().clamp_(-format.max_code, format.max_code).flatten(1)
    if format.bits == 8:
        return signed.to(torch.int8), scales
    return _pack_words(signed.int() + format.max_code), scales


def _pack_words(codes: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=codes.device)
    shifted = codes.view(codes.shape[0], -1, CODES_PER_WORD) << shifts
    return shifted.sum(-1, dtype=torch.int32)


def measure_error(weight: torch.Tensor, packed: PackedMatrix) -> tuple[float, float]:
    """Return the squared distance of a packed matrix from its weight, and the squared norm of the weight."""
    error_square = weight_square = 0.0
    n, k = weight.shape
    for rows, chunk in zip(_iter_row_slices(n, k, weight.device), packed.iter_chunks(), strict=True):
        exact = weight[rows].float()
        weight_square += float(exact.square().sum(dtype=torch.float64))
        error_square += float((exact - chunk.unpack()).square_().sum(dtype=torch.float64))
    return error_square, weight_square
