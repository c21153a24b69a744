"""Storage that quantises the weights of a model, and the products of its packed matrices on each device.

A product may round more than the format does, such as activations: its `computed` says what is exact.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from types import ModuleType
from typing import Final

import torch

from engines import processor
from engines.kernels import is_available, load_kernel
from engines.weights.low_bit import GROUP, PackedMatrix, QuantFormat, ReportPacked, measure_error, pack
from engines.weights.matrix_storage import EmbeddingTable, Matrix, Storage, Weight

MAX_REREAD_ROWS: Final = 8  # rows up to which a kernel without tensor cores reads the matrix once per row
MAX_EXACT_ROWS: Final = 4  # rows up to which torch's fp32 product is faster than unpacking the matrix once

_KINDS: Final = {"q4f16_1": "int4", "q8_0": "int8"}  # format → kind of compiled product
# bytes per weight as torch's products hold it: codes and pairs of scales; q4f32_1: also our own layout
_REORDERED_BYTES: Final = {"q4f16_1": 0.625, "q4f32_1": 0.75 + 0.625, "q8_0": 1.0}


class PackedProduct(Matrix):
    """A packed matrix that multiplies."""

    computed: str  # what of the product is exact and what is rounded, in words


class UnpackedMatrix(PackedProduct):
    """A packed matrix that is unpacked for each product, chunk by chunk."""

    input_dtype: torch.dtype = torch.float32

    def __init__(self, packed: PackedMatrix) -> None:
        self._packed = packed
        self.computed = f"{packed.format.name}, unpacked to fp32 for each product"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return torch.cat([wide @ p.unpack().T for p in self._packed.iter_chunks()], -1)


class RoundedActivationMatrix(PackedProduct):
    """4 or 8 bits as stored, through compiled products that round activations to 8 bits."""

    _max_compiled_rows = sys.maxsize  # no limit

    def __init__(self, packed: PackedMatrix) -> None:
        name = packed.format.name
        self._compiled: processor.CpuProduct = processor.CpuProduct(_KINDS[name], packed.codes, packed.scales)
        self.input_dtype = self._compiled.input_dtype
        self.computed = f"{name}: codes and scales exact, activations in 8 bits per group of {GROUP}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._compiled(x)


class TorchInt4Matrix(PackedProduct):
    """4 bits through torch's packed product: fast with bf16 activations, slow and exact in fp32."""

    def __init__(self, packed: PackedMatrix) -> None:
        is_exact = packed.format.scale_dtype == torch.float32
        self.input_dtype = torch.float32 if is_exact else torch.bfloat16
        self._packed = torch.cat([_pack_for_torch(part) for part in packed.iter_chunks()])
        scales = packed.scales.to(self.input_dtype).T
        # a pair: the scale, and what to add because torch's code 0 means -8 and ours -7: one more scale
        self._scales = torch.stack((scales, scales), -1).contiguous()
        self._unpacked = UnpackedMatrix(packed) if is_exact else None
        rounding = "in fp32" if is_exact else "rounded to bf16"
        self.computed = f"{packed.format.name}: codes exact, scales and activations {rounding}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._unpacked and x.shape[0] > MAX_EXACT_ROWS:
            return self._unpacked(x)
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.to(self.input_dtype), self._packed, GROUP, self._scales
        )
        return product


def _pack_for_torch(part: PackedMatrix) -> torch.Tensor:
    codes = part.unpack_codes().int() + part.format.max_code
    packed: torch.Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.contiguous(), 1)
    return packed


class TorchInt8Matrix(PackedProduct):
    """8 bits through torch's dynamic product: one scale per row, activations in 8 bits."""

    input_dtype: torch.dtype = torch.float32

    def __init__(self, pieces: Iterable[torch.Tensor]) -> None:
        quantised_pieces = [_quantise_by_row(piece) for piece in pieces]
        codes, scales = (torch.cat(parts) for parts in zip(*quantised_pieces, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch warns that quantised tensors will go
            zeros = torch.zeros(len(scales), dtype=torch.long)
            tensor = torch._make_per_channel_quantized_tensor(codes, scales.double(), zeros, 0)
            self._weight = torch.ops.quantized.linear_prepack(tensor, None)
        # without VNNI two products may overflow 16 bits
        self._reduced = not torch.cpu._is_vnni_supported()
        bits = 7 if self._reduced else 8
        self.computed = f"8-bit codes with one scale per row, activations in {bits} bits"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.quantized.linear_dynamic(x.float(), self._weight, self._reduced)
        return product


def _quantise_by_row(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = weight.abs().amax(1)
    scales = torch.where(largest == 0, 1.0, largest / 127)
    return (weight / scales[:, None]).round_().to(torch.int8), scales


def load_packed_kernel(packed: PackedMatrix) -> ModuleType:
    """Return the kernel module for a packed matrix."""
    return load_kernel("w4a16_gemv" if packed.format.bits == 4 else "int8_gemv")


class TritonMatrix(PackedProduct):
    """A packed matrix on a GPU, through Triton; many rows are unpacked in memory if it lacks tensor cores."""

    def __init__(self, packed: PackedMatrix) -> None:
        kernel = load_packed_kernel(packed)
        self._multiply, self._merge = kernel.launch, load_kernel("gemv").merge
        many_rows = load_kernel("rows_product")
        self._multiply_rows, self._is_one_by_one = many_rows.launch, many_rows.is_one_by_one
        self.packed, self._unpacked = packed, UnpackedMatrix(packed)
        self._split: int = kernel.choose_split(packed.rows)
        self.computed = f"{packed.format.name}: codes and scales exact, sums in fp32"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows, packed, is_one_by_one = x.shape[0], self.packed, self._is_one_by_one(x)
        if is_one_by_one and rows > MAX_REREAD_ROWS:
            return self._unpacked(x)
        out = x.new_empty(rows, packed.rows)
        if is_one_by_one and self._split > 1:
            partial = x.new_empty(self._split, rows, packed.rows, dtype=torch.float32)
            self._multiply(x, packed.codes, partial, scales=packed.scales)
            self._merge(partial, out)
        else:
            multiply = self._multiply if is_one_by_one else self._multiply_rows
            multiply(x, packed.codes, out, scales=packed.scales)
        return out


def make_matrix(packed: PackedMatrix) -> PackedProduct:
    """Wrap a packed matrix in the fastest product of its device."""
    if packed.codes.device.type == "cpu":
        return _make_cpu_matrix(packed)
    return TritonMatrix(packed) if packed.codes.is_cuda and is_available() else UnpackedMatrix(packed)


def is_multiplied_as_stored(format: QuantFormat, device: torch.device) -> bool:
    """Return whether matrices of a format multiply without a copy in another layout."""
    return processor.has_kind(_KINDS.get(format.name, ""), device)


def _make_cpu_matrix(packed: PackedMatrix) -> PackedProduct:
    if is_multiplied_as_stored(packed.format, packed.codes.device):
        return RoundedActivationMatrix(packed)
    if packed.format.bits == 8:
        return TorchInt8Matrix(part.unpack() for part in packed.iter_chunks())
    return TorchInt4Matrix(packed) if packed.rows % 16 == 0 else UnpackedMatrix(packed)


class QuantisedStorage(Storage):
    """Quantises the matrices of a model, and measures the error that this makes."""

    format: QuantFormat
    fusion = "dequant"

    def __init__(self, format: QuantFormat, device: torch.device) -> None:
        self.name, self.dtype, self.format = format.name, format.scale_dtype, format
        self.weight_bytes = self.held_bytes = format.bits_per_weight / 8
        self.build_bytes = 2 + self.weight_bytes  # the weight in 16 bits, and the packed matrix
        if device.type == "cpu" and not is_multiplied_as_stored(format, device):
            self.held_bytes = _REORDERED_BYTES[self.name]
            self.build_bytes += self.held_bytes
            self.table_bytes = self.weight_bytes
        self.report_packed: ReportPacked | None = None  # called with the number of weights packed
        self._error_square = self._weight_square = 0.0
        self._computed: Counter[str] = Counter()

    def build_matrix(self, weight: Weight, device: torch.device) -> PackedProduct:
        return self._make_product(self._pack_weight(weight, device))

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, PackedProduct]:
        packed = self._pack_weight(table, device)
        product = self._make_product(packed if head is None else self._pack_weight(head, device))
        return lambda ids: packed.select_rows(ids).unpack(), product

    @property
    def error(self) -> float:
        """Distance of all quantised matrices from their weights, relative to the norm of the weights."""
        return (self._error_square / self._weight_square) ** 0.5 if self._weight_square else 0.0

    @property
    def computed(self) -> str:
        """What of the products is exact, in words; the most frequent kind first."""
        return "; ".join(what for what, _ in self._computed.most_common())

    def _pack_weight(self, weight: Weight, device: torch.device) -> PackedMatrix:
        if isinstance(weight, PackedMatrix):
            return self._accept_packed(weight.to(device))
        packed = pack(weight.to(device), self.format, self.report_packed)
        error_square, weight_square = measure_error(weight.to(device), packed)
        self._error_square += error_square
        self._weight_square += weight_square
        return packed

    def _accept_packed(self, packed: PackedMatrix) -> PackedMatrix:
        """Return a matrix that has this format already; its error counts as zero."""
        self._weight_square += sum(float(part.unpack().square_().sum()) for part in packed.iter_chunks())
        if self.report_packed:
            self.report_packed(packed.rows * packed.columns)
        return packed

    def _make_product(self, packed: PackedMatrix) -> PackedProduct:
        product = make_matrix(packed)
        self._computed[product.computed] += packed.rows * packed.columns
        return product
