"""Packed matrices that multiply, on each kind of device in the way that is fastest there.

What is multiplied may be rounded more than the format rounds: `computed` says what was done.
"""

import warnings
from collections.abc import Iterable
from types import ModuleType
from typing import Final, Protocol

import torch

from engines import processor
from engines.kernels import available, kernel
from engines.weights.low_bit import GROUP, Form, Packed

FEW: Final = 8  # rows for which a kernel without tensor cores reads the matrix again
WIDE: Final = 4  # rows from which unpacking once is cheaper than the slow product

_KINDS: Final = {"q4f16_1": "four", "q8_0": "eight"}  # forms that compiled code multiplies


class Product(Protocol):
    """A packed matrix that multiplies."""

    size: int  # bytes that one product of a single row reads of it
    computed: str

    @property
    def takes(self) -> torch.dtype | None: ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None: ...


class Unpacking(processor.Copying):
    """A packed matrix that is unpacked, a piece at a time, whenever it multiplies."""

    takes: Final = torch.float32

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self.size = packed.size
        self.computed = f"{packed.form.name}, unpacked to fp32 for every product"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return torch.cat([wide @ p.unpacked().T for p in self._packed.chunks()], -1)


class Rounding(processor.Copying):
    """Four or eight bits as they are stored, through compiled code that rounds rows to eight bits."""

    def __init__(self, packed: Packed) -> None:
        self._multiply = processor.Product(_KINDS[packed.form.name], packed.codes, packed.scales)
        self.takes = self._multiply.takes
        self.size = packed.size
        self.computed = f"{packed.form.name}: codes and scales exact, rows in 8 bits by groups of {GROUP}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._multiply(x)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        if processor.writable(out, bias):
            self._multiply.into(x, out, bias)
        else:
            super().into(x, out, bias)


class Int4(processor.Copying):
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


class Int8(processor.Copying):
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


def kernel_for(packed: Packed) -> ModuleType:
    """Return the kernel that multiplies a packed matrix."""
    return kernel("w4a16_gemv" if packed.form.bits == 4 else "int8_gemv")


class Kernel(processor.Copying):
    """A packed matrix on a GPU, through Triton: never unpacked in memory where tensor cores multiply rows."""

    takes: Final = None

    def __init__(self, packed: Packed) -> None:
        module = kernel_for(packed)
        self._multiply, self._add = module.launch, kernel("gemv").merge
        of_rows = kernel("rows_product")
        self._multiply_rows, self._one_by_one = of_rows.launch, of_rows.one_by_one
        self.packed, self._unpacking = packed, Unpacking(packed)
        self._split: int = module.split_of(packed.rows)
        self.size = packed.size
        self.computed = f"{packed.form.name}: codes and scales exact, sums in fp32"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows, packed = x.shape[0], self.packed
        out = x.new_empty(rows, packed.rows)
        if not self._one_by_one(x):
            self._multiply_rows(x, packed.codes, out, scales=packed.scales)
            return out
        if rows > FEW:
            return self._unpacking(x)
        if self._split == 1:
            self._multiply(x, packed.codes, packed.scales, out)
            return out
        partial = x.new_empty(self._split, rows, packed.rows, dtype=torch.float32)
        self._multiply(x, packed.codes, packed.scales, partial)
        self._add(partial, out)
        return out


def matrix(packed: Packed) -> Product:
    """Return the packed matrix in the way that its device multiplies fastest."""
    if packed.codes.device.type == "cpu":
        return _on_processor(packed)
    return Kernel(packed) if packed.codes.is_cuda and available() else Unpacking(packed)


def multiplied_as_stored(form: Form, device: torch.device) -> bool:
    """Return whether matrices of a form multiply where they lie, without a copy in another order."""
    return processor.has(_KINDS.get(form.name, ""), device)


def _on_processor(packed: Packed) -> Product:
    if multiplied_as_stored(packed.form, packed.codes.device):
        return Rounding(packed)
    if packed.form.bits == 8:
        return Int8(part.unpacked() for part in packed.chunks())
    return Int4(packed) if packed.rows % 16 == 0 else Unpacking(packed)


def _int4_packed(part: Packed) -> torch.Tensor:
    codes = part.signed().int() + part.form.top
    packed: torch.Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.contiguous(), 1)
    return packed
