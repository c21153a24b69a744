"""Weights in four or eight bits, packed as MLC and ggml define it.

q4f16_1, q4f32_1: groups of 32 along a row, codes 0–14, eight in a 32-bit word, lowest bits first; a
scale of 16 or 32 bits is the group's largest magnitude / 7, and a weight is (code - 7) · scale.
q8_0: groups of 32, codes -127…127 in bytes, a 16-bit scale, largest magnitude / 127.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

GROUP: Final = 32
PER_WORD: Final = 8
CHUNK: Final = 1 << 20  # weights that are in hand at once: what the caches hold in fp32
GPU_CHUNK: Final = 1 << 26  # on a GPU, where every piece is launched by itself
PACKED_ROWS: Final = 64  # torch packs four bits by blocks of so many rows

Report = Callable[[int], None]


@dataclass(frozen=True)
class Form:
    """A way to store weights."""

    name: str
    bits: int
    scale: torch.dtype
    top: int  # the code of a group's largest magnitude

    @property
    def bits_per_weight(self) -> float:
        return self.bits + 8 * self.scale.itemsize / GROUP


FORMS: Final = {
    form.name: form
    for form in (
        Form("q4f16_1", 4, torch.float16, 7),
        Form("q4f32_1", 4, torch.float32, 7),
        Form("q8_0", 8, torch.float16, 127),
    )
}


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix in a form: words [n, k/8] of 32 bits or bytes [n, k], and scales [n, k/32]."""

    form: Form
    codes: torch.Tensor
    scales: torch.Tensor

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    @property
    def columns(self) -> int:
        return self.scales.shape[1] * GROUP

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(t.numel() * t.element_size() for t in (self.codes, self.scales))

    def some(self, rows: slice | torch.Tensor) -> "Packed":
        """Return these rows of it, as an embedding takes them."""
        return Packed(self.form, self.codes[rows], self.scales[rows])

    def to(self, device: torch.device) -> "Packed":
        """Return it in the memory of a device."""
        return self.each(lambda part: part.to(device))

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Packed":
        """Return it with codes and scales changed alike, as an order of rows changes them."""
        return Packed(self.form, change(self.codes), change(self.scales))

    def signed(self) -> torch.Tensor:
        """Return the codes as whole numbers around zero, [n, k]."""
        return self._stored().to(torch.int8) - self._middle

    def unpacked(self) -> torch.Tensor:
        """Return the weights that it stands for, in fp32."""
        grouped = self._stored().view(self.rows, -1, GROUP) - float(self._middle)
        return (grouped * self.scales[..., None]).flatten(1)

    @property
    def _middle(self) -> int:
        """What is stored for a zero."""
        return 0 if self.form.bits == 8 else self.form.top

    def _stored(self) -> torch.Tensor:
        if self.form.bits == 8:
            return self.codes
        pairs = self.codes.view(torch.uint8)  # two codes a byte, the first in the low bits
        return torch.stack((pairs & 0xF, pairs >> 4), -1).flatten(1)

    def chunks(self) -> Iterator["Packed"]:
        """Yield the matrix in pieces that do not fill the memory once they are unpacked."""
        return (self.some(piece) for piece in _pieces(self.rows, self.columns, self.codes.device))


def joined(parts: Sequence[Packed]) -> Packed:
    """Return matrices of one form as one, the rows of each below those of the one before."""
    codes, scales = torch.cat([p.codes for p in parts]), torch.cat([p.scales for p in parts])
    return Packed(parts[0].form, codes, scales)


def pack(weight: torch.Tensor, form: Form, report: Report | None = None) -> Packed:
    """Return a matrix [n, k] in a form; k must be whole groups. `report` is called with the weights done."""
    n, k = weight.shape
    if k % GROUP:
        raise ValueError(f"rows of {k} are not whole groups of {GROUP}")
    width, dtype = (k // PER_WORD, torch.int32) if form.bits == 4 else (k, torch.int8)
    codes = torch.empty(n, width, dtype=dtype, device=weight.device)
    scales = torch.empty(n, k // GROUP, dtype=form.scale, device=weight.device)
    for piece in _pieces(n, k, weight.device):
        codes[piece], scales[piece] = _packed(weight[piece].float(), form)
        if report:
            report(k * len(scales[piece]))
    return Packed(form, codes, scales)


def _pieces(rows: int, columns: int, device: torch.device) -> Iterator[slice]:
    most = CHUNK if device.type == "cpu" else GPU_CHUNK
    step = max(most // columns // PACKED_ROWS, 1) * PACKED_ROWS
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _packed(weight: torch.Tensor, form: Form) -> tuple[torch.Tensor, torch.Tensor]:
    grouped = weight.view(weight.shape[0], -1, GROUP)
    scales = (grouped.abs().amax(-1) / form.top).to(form.scale)
    divisor = torch.where(scales == 0, 1.0, scales.float())  # a group of zeros stays one
    signed = (grouped / divisor[..., None]).round_().clamp_(-form.top, form.top).flatten(1)
    if form.bits == 8:
        return signed.to(torch.int8), scales
    return _words(signed.int() + form.top), scales


def _words(codes: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=codes.device)
    eight = codes.view(codes.shape[0], -1, PER_WORD) << shifts
    return eight.sum(-1, dtype=torch.int32)


def distance(weight: torch.Tensor, packed: Packed) -> tuple[float, float]:
    """Return how far the packed matrix lies from the weight and how long the weight is, both squared."""
    apart = length = 0.0
    n, k = weight.shape
    for rows, part in zip(_pieces(n, k, weight.device), packed.chunks(), strict=True):
        meant = weight[rows].float()
        length += float(meant.square().sum(dtype=torch.float64))
        apart += float((meant - part.unpacked()).square_().sum(dtype=torch.float64))
    return apart, length
