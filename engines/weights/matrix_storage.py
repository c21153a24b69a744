"""Protocols of stored matrices and storages, and those for plain dtypes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch.nn import functional

from engines import processor
from engines.weights.low_bit import PackedMatrix, QuantFormat

MAX_MEMORY_BOUND_ROWS: Final = 4  # rows up to which a product is limited by memory, not arithmetic
_KINDS: Final = {torch.bfloat16: "bf16", torch.float16: "fp16"}  # dtype → kind of compiled product
FP16_MAX: Final = 65504.0


class Matrix(Protocol):
    """A weight that multiplies rows of any dtype; the product has the dtype it was computed in."""

    @property
    def input_dtype(self) -> torch.dtype | None:
        """Dtype of a row that needs no cast; None: any."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def multiply_into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the products to `out`, with the bias added if there is one."""


class PlainMatrix(processor.ProductBase):
    """A weight in its own dtype; compiled products multiply few rows if they support the dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        is_compiled = has_compiled_product(weight.dtype, weight.device)
        self._compiled = processor.CpuProduct(_KINDS[weight.dtype], weight) if is_compiled else None
        self.input_dtype: torch.dtype = self._compiled.input_dtype if self._compiled else weight.dtype
        is_slow = weight.dtype == torch.float16 and weight.device.type == "cpu"  # torch's fp16 on CPUs
        self._wide_dtype = weight.dtype  # in which many rows are multiplied fastest
        if is_slow:
            self._wide_dtype = torch.bfloat16 if has_fast_bf16() else torch.float32

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._compiled and x.shape[0] <= self._max_compiled_rows:
            return self._compiled(x)
        dtype = self._wide_dtype if x.shape[0] > MAX_MEMORY_BOUND_ROWS else self.weight.dtype
        return functional.linear(x.to(dtype), self.weight.to(dtype))


class PrepackedMatrix(processor.ProductBase):
    """A bf16 weight in oneDNN's own layout."""

    input_dtype: Final = torch.bfloat16

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        half = x.to(self.input_dtype)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(half, self._weight, None, "none", [], "")
        return product


class EmbeddingTable(Protocol):
    """An embedding table: ids in, their rows out."""

    def __call__(self, ids: torch.Tensor) -> torch.Tensor: ...


Weight = torch.Tensor | PackedMatrix  # plain numbers, or packed as in its file


class Storage(Protocol):
    """How the weights of a model are stored; plan and decoder use nothing else."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights, or of their scales."""

    @property
    def format(self) -> QuantFormat | None:
        """Format in which packed matrices are accepted as they are; None: they are unpacked."""

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight that a token reads, as the format defines it."""

    @property
    def fusion(self) -> str:
        """Conversion of a weight within its product, such as dequant; prefix of the op's name."""

    @property
    def shares_tensors(self) -> bool:
        """Whether a matrix may keep the tensor it is built from."""

    @property
    def held_bytes(self) -> float:
        """Bytes in memory per weight of a matrix."""

    @property
    def table_bytes(self) -> float:
        """Bytes per weight of a tied embedding table kept in addition to the head."""

    @property
    def build_bytes(self) -> float:
        """Bytes per weight of a matrix needed while it is built."""

    def build_matrix(self, weight: Weight, device: torch.device) -> Matrix: ...

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, Matrix]:
        """Build the embedding and the head; without `head`, the table is the head."""


class PlainEmbedding:
    """A table in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.weight)


@dataclass(frozen=True)
class PlainStorage:
    """Weights in a plain dtype, and the matrix class for it."""

    name: str
    dtype: torch.dtype
    make_matrix: Callable[[torch.Tensor], Matrix]
    is_reordered: bool = False  # a matrix has another memory layout than an embedding table
    fusion: Final = ""

    @property
    def format(self) -> None:
        return None

    @property
    def weight_bytes(self) -> float:
        return self.dtype.itemsize

    held_bytes = build_bytes = weight_bytes

    @property
    def shares_tensors(self) -> bool:
        return not self.is_reordered

    @property
    def table_bytes(self) -> float:
        return self.dtype.itemsize if self.is_reordered else 0.0

    def build_matrix(self, weight: Weight, device: torch.device) -> Matrix:
        cast = self._cast(weight, device)
        return self.make_matrix(copy_if_shared(cast) if self.shares_tensors else cast)

    def build_embedding_and_head(
        self, table: Weight, head: Weight | None, device: torch.device
    ) -> tuple[EmbeddingTable, Matrix]:
        weight = copy_if_shared(self._cast(table, device))
        return PlainEmbedding(weight), self.make_matrix(weight) if head is None else self.build_matrix(
            head, device
        )

    def _cast(self, weight: Weight, device: torch.device) -> torch.Tensor:
        numbers = weight.unpack() if isinstance(weight, PackedMatrix) else weight
        return cast_weight(numbers, self.dtype).to(device)


def copy_if_shared(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight, or a copy if it is part of a larger tensor."""
    return weight.clone() if weight.untyped_storage().nbytes() > weight.nbytes else weight


def cast_weight(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast a weight. Raise OverflowError for values beyond fp16."""
    if dtype == torch.float16 and weight.dtype != dtype and weight.abs().max() > FP16_MAX:
        raise OverflowError("a weight exceeds the range of fp16; choose --dtype bf16")
    return weight.to(dtype)


def has_fast_bf16() -> bool:
    """Return whether oneDNN multiplies bf16 fast on this CPU."""
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


FP32: Final = PlainStorage("fp32", torch.float32, PlainMatrix)
FP16: Final = PlainStorage("fp16", torch.float16, PlainMatrix)
BF16: Final = PlainStorage("bf16", torch.bfloat16, PlainMatrix)
BF16_PREPACKED: Final = PlainStorage("bf16 prepacked", torch.bfloat16, PrepackedMatrix, is_reordered=True)

DTYPES: Final = ("auto", "fp32", "fp16", "bf16")


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
