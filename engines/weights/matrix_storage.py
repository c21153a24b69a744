"""Stored matrices and storages: what all of them share, and those for plain dtypes."""

from collections.abc import Callable
from typing import Final

import torch
from torch.nn import functional

from engines import processor
from engines.weights.low_bit import PackedMatrix, QuantFormat

MAX_MEMORY_BOUND_ROWS: Final = 4  # rows up to which a product is limited by memory, not arithmetic
_KINDS: Final = {torch.bfloat16: "bf16", torch.float16: "fp16"}  # dtype → kind of compiled product
FP16_MAX: Final = 65504.0

Weight = torch.Tensor | PackedMatrix  # plain numbers, or packed as in its file
EmbeddingTable = Callable[[torch.Tensor], torch.Tensor]  # ids in, their rows out


class Matrix:
    """A weight that multiplies rows of any dtype; the product has the dtype it was computed in."""

    input_dtype: torch.dtype | None = None  # of a row that needs no cast; None: any
    _compiled: processor.CpuProduct | None = None
    _max_compiled_rows = processor.MAX_COMPILED_ROWS

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def multiply_into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the products to `out`, with the bias added if there is one.

        The compiled product writes them, if there is one for so many rows, or they are copied.
        """
        if self._compiled and x.shape[0] <= self._max_compiled_rows and _is_writable(out, bias):
            self._compiled.multiply_into(x, out, bias)
        elif bias is None:
            out.copy_(self(x))
        else:
            torch.add(self(x), bias, out=out)


def _is_writable(out: torch.Tensor, bias: torch.Tensor | None) -> bool:
    return all(t is None or (t.dtype == torch.float32 and t.is_contiguous()) for t in (out, bias))


class PlainMatrix(Matrix):
    """A weight in its own dtype; compiled products multiply few rows if they support the dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        is_compiled = has_compiled_product(weight.dtype, weight.device)
        self._compiled = processor.CpuProduct(_KINDS[weight.dtype], weight) if is_compiled else None
        self.input_dtype: torch.dtype = self._compiled.input_dtype if self._compiled else weight.dtype
        self._wide_dtype = weight.dtype  # in which many rows are multiplied fastest
        if weight.dtype == torch.float16 and weight.device.type == "cpu":  # slow in torch
            self._wide_dtype = torch.bfloat16 if has_fast_bf16() else torch.float32

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._compiled and x.shape[0] <= self._max_compiled_rows:
            return self._compiled(x)
        dtype = self._wide_dtype if x.shape[0] > MAX_MEMORY_BOUND_ROWS else self.weight.dtype
        return functional.linear(x.to(dtype), self.weight.to(dtype))


class PrepackedMatrix(Matrix):
    """A bf16 weight in oneDNN's own layout."""

    input_dtype: torch.dtype = torch.bfloat16

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        half = x.to(self.input_dtype)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(half, self._weight, None, "none", [], "")
        return product


class PlainEmbedding:
    """A table in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.weight)


class Storage:
    """How the weights of a model are stored; plan and decoder use nothing else."""

    name: str
    dtype: torch.dtype  # of the weights, or of their scales
    format: QuantFormat | None = None  # in which packed matrices are accepted as they are
    fusion = ""  # conversion of a weight within its product, such as dequant; prefix of the op's name
    shares_tensors = False  # whether a matrix may keep the tensor it is built from
    weight_bytes: float  # per weight that a token reads, as the format defines it
    held_bytes: float  # in memory per weight of a matrix
    build_bytes: float  # per weight of a matrix needed while it is built
    table_bytes = 0.0  # per weight of a tied embedding table kept in addition to the head

    def build_matrix(self, weight: Weight, device: torch.device) -> Matrix:
        raise NotImplementedError

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, Matrix]:
        """Build the embedding and the head; without `head`, the table is the head."""
        raise NotImplementedError


class PlainStorage(Storage):
    """Weights in a plain dtype, and the matrix class for it."""

    def __init__(
        self,
        name: str,
        dtype: torch.dtype,
        make_matrix: Callable[[torch.Tensor], Matrix] = PlainMatrix,
        *,
        is_reordered: bool = False,
    ) -> None:
        """`is_reordered`: a matrix has another memory layout than an embedding table."""
        self.name, self.dtype, self.make_matrix = name, dtype, make_matrix
        self.weight_bytes = self.held_bytes = self.build_bytes = dtype.itemsize
        self.shares_tensors = not is_reordered
        self.table_bytes = dtype.itemsize if is_reordered else 0.0

    def build_matrix(self, weight: Weight, device: torch.device) -> Matrix:
        cast = cast_weight(weight, self.dtype).to(device)
        return self.make_matrix(copy_if_shared(cast) if self.shares_tensors else cast)

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, Matrix]:
        weight = copy_if_shared(cast_weight(table, self.dtype).to(device))
        matrix = self.make_matrix(weight) if head is None else self.build_matrix(head, device)
        return PlainEmbedding(weight), matrix


def copy_if_shared(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight, or a copy if it is part of a larger tensor."""
    return weight.clone() if weight.untyped_storage().nbytes() > weight.nbytes else weight


def unpack_weight(weight: Weight) -> torch.Tensor:
    """Return a weight as plain numbers."""
    return weight.unpack() if isinstance(weight, PackedMatrix) else weight


def cast_weight(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    """Cast a weight, unpacked if it is packed. Raise OverflowError for values beyond fp16."""
    numbers = unpack_weight(weight)
    if dtype == torch.float16 and numbers.dtype != dtype and numbers.abs().max() > FP16_MAX:
        raise OverflowError("a weight exceeds the range of fp16; choose --dtype bf16")
    return numbers.to(dtype)


def has_fast_bf16() -> bool:
    """Return whether oneDNN multiplies bf16 fast on this CPU."""
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


FP32: Final = PlainStorage("fp32", torch.float32)
FP16: Final = PlainStorage("fp16", torch.float16)
BF16: Final = PlainStorage("bf16", torch.bfloat16)
BF16_PREPACKED: Final = PlainStorage("bf16 prepacked", torch.bfloat16, PrepackedMatrix, is_reordered=True)


def has_compiled_product(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a compiled product exists for weights of a dtype on a device."""
    return processor.has_kind(_KINDS.get(dtype, ""), device)


def list_candidates(dtype: str, device: str) -> tuple[PlainStorage, ...]:
    """List the storages worth measuring for `--dtype`, the default first.

    Compiled products read bf16 at memory bandwidth, so nothing else needs measuring where they exist.
    """
    compiled = has_compiled_product(torch.bfloat16, torch.device(device))
    can_prepack = device == "cpu" and has_fast_bf16() and not compiled
    bf16 = (BF16_PREPACKED, BF16) if can_prepack else (BF16,)
    if dtype != "auto":
        return {"fp32": (FP32,), "fp16": (FP16,), "bf16": bf16}[dtype]
    if device != "cpu" or compiled:
        return (FP16,) if device == "mps" else (BF16,)
    return (BF16_PREPACKED, FP16, BF16) if can_prepack else (FP16, BF16)
