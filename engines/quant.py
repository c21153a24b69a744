"""Weights in four or eight bits: packed as MLC and ggml define it, and multiplied on this machine.

q4f16_1, q4f32_1: groups of 32 along a row, codes 0–14, eight in a 32-bit word, lowest bits first; a
scale of 16 or 32 bits is the group's largest magnitude / 7, and a weight is (code - 7) · scale.
q8_0: groups of 32, codes -127…127 in bytes, a 16-bit scale, largest magnitude / 127.

How a processor multiplies them may round more than the format does: `computed` says what was done.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from engines import kernels

GROUP: Final = 32
PER_WORD: Final = 8
CHUNK: Final = 1 << 20  # weights that are in hand at once: what the caches hold in fp32
WIDE: Final = 4  # rows from which unpacking once is cheaper than the slow product
FEW: Final = 8  # rows for which a kernel reads the matrix again
PACKED_ROWS: Final = 64  # torch packs four bits by blocks of so many rows

Tell = Callable[[int], None]


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
        """These rows of it, as an embedding takes them."""
        return Packed(self.form, self.codes[rows], self.scales[rows])

    def signed(self) -> torch.Tensor:
        """The codes as whole numbers around zero, [n, k]."""
        return self._stored().to(torch.int8) - self._middle

    def unpacked(self) -> torch.Tensor:
        """The weights that it stands for, in fp32."""
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
        """The matrix in pieces that do not fill the memory once they are unpacked."""
        return (self.some(piece) for piece in _pieces(self.rows, self.columns))


def pack(weight: torch.Tensor, form: Form, tell: Tell | None = None) -> Packed:
    """A matrix [n, k] in a form; k must be whole groups. `tell` hears of weights that are done."""
    n, k = weight.shape
    if k % GROUP:
        raise ValueError(f"rows of {k} are not whole groups of {GROUP}")
    width, dtype = (k // PER_WORD, torch.int32) if form.bits == 4 else (k, torch.int8)
    codes = torch.empty(n, width, dtype=dtype, device=weight.device)
    scales = torch.empty(n, k // GROUP, dtype=form.scale, device=weight.device)
    for piece in _pieces(n, k):
        codes[piece], scales[piece] = _packed(weight[piece].float(), form)
        if tell:
            tell(k * len(scales[piece]))
    return Packed(form, codes, scales)


def _pieces(rows: int, columns: int) -> Iterator[slice]:
    step = max(CHUNK // columns // PACKED_ROWS, 1) * PACKED_ROWS
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
    """How far the packed matrix lies from the weight and how long the weight is, both squared."""
    apart = length = 0.0
    for rows, part in zip(_pieces(*weight.shape), packed.chunks(), strict=True):
        meant = weight[rows].float()
        length += float(meant.square().sum(dtype=torch.float64))
        apart += float((meant - part.unpacked()).square_().sum(dtype=torch.float64))
    return apart, length


class Product(Protocol):
    """A packed matrix that multiplies."""

    size: int  # bytes that one product of a single row reads of it
    computed: str

    @property
    def takes(self) -> torch.dtype | None: ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class Unpacking:
    """A packed matrix that is unpacked, a piece at a time, whenever it multiplies."""

    takes: Final = torch.float32

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self.size = packed.size
        self.computed = f"{packed.form.name}, unpacked to fp32 for every product"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return torch.cat([wide @ p.unpacked().T for p in self._packed.chunks()], -1)


class Int4:
    """Four bits through torch's packed product: fast with bf16 rows and scales, exact and slow in fp32."""

    def __init__(self, packed: Packed) -> None:
        exact = packed.form.scale == torch.float32
        self.takes = torch.float32 if exact else torch.bfloat16
        self._packed = torch.cat([_int4_packed(part) for part in packed.chunks()])
        scales = packed.scales.to(self.takes).T
        # torch's code 0 stands for -8, ours for -7: the difference is one scale everywhere
        self._scales = torch.stack((scales, scales), -1).contiguous()
        self._unpacking = Unpacking(packed) if exact else None
        self.size = sum(t.numel() * t.element_size() for t in (self._packed, self._scales))
        kept = "in fp32" if exact else "rounded to bf16"
        self.computed = f"{packed.form.name}: codes exact, scales and rows {kept}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._unpacking and x.shape[0] > WIDE:
            return self._unpacking(x)
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.to(self.takes), self._packed, GROUP, self._scales
        )
        return product


class Int8:
    """Eight bits through torch's dynamic product: a scale for each row, and 8 bits for what it multiplies."""

    takes: Final = torch.float32

    def __init__(self, pieces: Iterable[torch.Tensor]) -> None:
        by_row = [_by_row(piece) for piece in pieces]
        codes, scales = (torch.cat(parts) for parts in zip(*by_row, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch warns that quantised tensors will go
            zeros = torch.zeros(len(scales), dtype=torch.long)
            quantised = torch._make_per_channel_quantized_tensor(codes, scales.double(), zeros, 0)
            self._weight = torch.ops.quantized.linear_prepack(quantised, None)
        # without VNNI two products may overflow 16 bits
        self._reduced = not torch.cpu._is_vnni_supported()
        self.size = codes.numel() + 4 * len(scales)
        bits = 7 if self._reduced else 8
        self.computed = f"8-bit codes with a scale for each row, what they multiply in {bits} bits"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.quantized.linear_dynamic(x.float(), self._weight, self._reduced)
        return product


def _by_row(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = weight.abs().amax(1)
    scales = torch.where(largest == 0, 1.0, largest / 127)
    return (weight / scales[:, None]).round_().to(torch.int8), scales


class Kernel:
    """A packed matrix on a GPU, through Triton: never unpacked in memory for a few rows."""

    takes: Final = None

    def __init__(self, packed: Packed) -> None:
        four = packed.form.bits == 4
        self._module = kernels.load("w4a16_gemv" if four else "int8_gemv")
        self._multiply = self._module.w4a16_gemv if four else self._module.int8_gemv
        self._add = kernels.load("gemv").merge
        self.packed, self._unpacking = packed, Unpacking(packed)
        self._split: int = self._module.split_of(packed.rows)
        self.size = packed.size
        self.computed = f"{packed.form.name}: codes and scales exact, sums in fp32"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows, packed = x.shape[0], self.packed
        if rows > FEW:
            return self._unpacking(x)
        out = x.new_empty(rows, packed.rows)
        if self._split == 1:
            self._multiply(x, packed.codes, packed.scales, out)
            return out
        partial = x.new_empty(self._split, rows, packed.rows, dtype=torch.float32)
        self._multiply(x, packed.codes, packed.scales, partial)
        self._add(partial, out)
        return out


def matrix(packed: Packed) -> Product:
    """The packed matrix as the device it lies on multiplies it fastest."""
    if packed.codes.device.type == "cpu":
        return _on_processor(packed)
    return Kernel(packed) if packed.codes.is_cuda and kernels.available() else Unpacking(packed)


def _on_processor(packed: Packed) -> Product:
    if packed.form.bits == 8:
        return Int8(part.unpacked() for part in packed.chunks())
    return Int4(packed) if packed.rows % 16 == 0 else Unpacking(packed)


# bytes of a weight as the processor's products hold it: scales in pairs, with the codes for many rows
_HELD: Final = {"q4f16_1": 0.625, "q4f32_1": 0.75 + 0.625, "q8_0": 1.0}


class Embedding:
    """A packed table: only the rows that are asked for are unpacked, to fp32."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.packed.some(ids).unpacked()


class Quantised:
    """A form as the storage of a model: packs its matrices, and keeps count of what that costs in truth."""

    fusion: Final = "dequant"

    def __init__(self, form: Form, device: torch.device) -> None:
        self.name, self.dtype, self.weight_bytes = form.name, form.scale, form.bits_per_weight / 8
        self.tell: Tell | None = None  # hears of weights as they are packed
        self._form, self._cpu = form, device.type == "cpu"
        self._apart = self._length = 0.0
        self._computed: Counter[str] = Counter()

    def matrix(self, weight: torch.Tensor, device: torch.device) -> Product:
        return self._product(self._packed(weight, device))

    def ends(
        self, table: torch.Tensor, head: torch.Tensor | None, device: torch.device
    ) -> tuple[Embedding, Product]:
        packed = self._packed(table, device)
        return Embedding(packed), self._product(packed if head is None else self._packed(head, device))

    @property
    def held(self) -> float:
        return _HELD[self.name] if self._cpu else self.weight_bytes

    @property
    def beside(self) -> float:
        return self.weight_bytes if self._cpu else 0.0

    @property
    def passing(self) -> float:
        return 2 + 2 * self.held  # the weight in 16 bits, the matrix as it was packed and as it is ordered

    @property
    def error(self) -> float:
        """How far all matrices lie from their weights, as a share of the weights' own length."""
        return (self._apart / self._length) ** 0.5 if self._length else 0.0

    @property
    def computed(self) -> str:
        """What the products do, the most frequent kind first."""
        return "; ".join(what for what, _ in self._computed.most_common())

    def _packed(self, weight: torch.Tensor, device: torch.device) -> Packed:
        packed = pack(weight.to(device), self._form, self.tell)
        apart, length = distance(weight.to(device), packed)
        self._apart += apart
        self._length += length
        return packed

    def _product(self, packed: Packed) -> Product:
        product = matrix(packed)
        self._computed[product.computed] += packed.rows * packed.columns
        return product


def _int4_packed(part: Packed) -> torch.Tensor:
    codes = part.signed().int() + part.form.top
    packed: torch.Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.contiguous(), 1)
    return packed
