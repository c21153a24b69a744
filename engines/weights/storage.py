"""How a matrix is stored and multiplied, and which ways there are on a device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch.nn import functional

from engines import processor
from engines.weights.low_bit import Form, Packed

WIDE: Final = 4  # rows from which a product is arithmetic, not reading
COMPILED_WIDE: Final = 32  # rows from which torch's products, made for many, overtake compiled ones
_KINDS: Final = {torch.bfloat16: "bf16", torch.float16: "fp16"}  # dtypes that compiled code multiplies
FP16_MAX: Final = 65504.0


class Matrix(Protocol):
    """A weight that multiplies rows of any dtype; the product has the dtype that it was computed in."""

    @property
    def takes(self) -> torch.dtype | None:
        """The dtype of a row that need not be cast first; None: any."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Write the products to `out`, with a bias added if there is one."""


class Plain(processor.Copying):
    """A weight in its own dtype, a few rows at a time at the memory's speed where the dtype allows it."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        compiled, slow = is_compiled(weight.dtype, weight.device), weight.dtype == torch.float16
        self._few = processor.Product(_KINDS[weight.dtype], weight) if compiled else None
        self.takes: torch.dtype = self._few.takes if self._few else weight.dtype
        self._wide = _wide_dtype() if slow and weight.device.type == "cpu" else weight.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._few and x.shape[0] <= COMPILED_WIDE:
            return self._few(x)
        dtype = self._wide if x.shape[0] > WIDE else self.weight.dtype
        return functional.linear(x.to(dtype), self.weight.to(dtype))

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None) -> None:
        if self._few and x.shape[0] <= COMPILED_WIDE and processor.writable(out, bias):
            self._few.into(x, out, bias)
        else:
            super().into(x, out, bias)


class Prepacked(processor.Copying):
    """A bf16 weight in oneDNN's own order."""

    takes: Final = torch.bfloat16

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        half = x.to(self.takes)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(half, self._weight, None, "none", [], "")
        return product


class Table(Protocol):
    """An embedding table: ids in, their rows out."""

    def __call__(self, ids: torch.Tensor) -> torch.Tensor: ...


Weight = torch.Tensor | Packed  # as numbers, or as some file has packed it


class Storage(Protocol):
    """How a model's weights are stored: the plan and the decoder ask no more of it than this."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, or of their scales."""

    @property
    def form(self) -> Form | None:
        """The form of packed matrices that are taken as they are; None: they are unpacked."""

    @property
    def weight_bytes(self) -> float:
        """That a token reads, as the format defines it."""

    @property
    def fusion(self) -> str:
        """What is done to a weight on its way into a product; it stands before the row's name."""

    @property
    def keeps(self) -> bool:
        """Whether a matrix may be the very tensor that it was made of."""

    @property
    def held(self) -> float:
        """Bytes in memory for every weight of a matrix."""

    @property
    def beside(self) -> float:
        """Bytes for every weight of a tied table that is kept beside the head."""

    @property
    def passing(self) -> float:
        """Bytes for every weight of a matrix while it is made."""

    def matrix(self, weight: Weight, device: torch.device) -> Matrix: ...

    def ends(self, table: Weight, head: Weight | None, device: torch.device) -> tuple[Table, Matrix]:
        """Return the embedding and the head, which is the table itself where there is none."""


class Embedding:
    """A table in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.weight)


@dataclass(frozen=True)
class Packing:
    """Weights in a dtype, and how a tensor of that dtype becomes a Matrix."""

    name: str
    dtype: torch.dtype
    make: Callable[[torch.Tensor], Matrix]
    apart: bool = False  # a matrix lies in memory in another order than a table
    fusion: Final = ""

    @property
    def form(self) -> None:
        return None

    @property
    def weight_bytes(self) -> float:
        return self.dtype.itemsize

    @property
    def keeps(self) -> bool:
        return not self.apart

    @property
    def held(self) -> float:
        return self.dtype.itemsize

    @property
    def beside(self) -> float:
        return self.dtype.itemsize if self.apart else 0.0

    @property
    def passing(self) -> float:
        return self.dtype.itemsize

    def matrix(self, weight: Weight, device: torch.device) -> Matrix:
        stored = self._stored(weight, device)
        return self.make(unshared(stored) if self.keeps else stored)

    def ends(self, table: Weight, head: Weight | None, device: torch.device) -> tuple[Table, Matrix]:
        stored = unshared(self._stored(table, device))
        return Embedding(stored), self.make(stored) if head is None else self.matrix(head, device)

    def _stored(self, weight: Weight, device: torch.device) -> torch.Tensor:
        numbers = weight.unpacked() if isinstance(weight, Packed) else weight
        return to_dtype(numbers, self.dtype).to(device)


def unshared(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight itself, or a copy where it is part of something larger that others share."""
    return weight.clone() if weight.untyped_storage().nbytes() > weight.nbytes else weight


def to_dtype(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight in another dtype. Raise OverflowError for values beyond fp16."""
    if dtype == torch.float16 and weight.dtype != dtype and weight.abs().max() > FP16_MAX:
        raise OverflowError("a weight is beyond fp16; choose --dtype bf16")
    return weight.to(dtype)


def _wide_dtype() -> torch.dtype:
    """Return the dtype in which this processor multiplies many rows fastest."""
    return torch.bfloat16 if fast_bf16() else torch.float32


def fast_bf16() -> bool:
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


FP32: Final = Packing("fp32", torch.float32, Plain)
FP16: Final = Packing("fp16", torch.float16, Plain)
BF16: Final = Packing("bf16", torch.bfloat16, Plain)
BF16_PREPACKED: Final = Packing("bf16 prepacked", torch.bfloat16, Prepacked, apart=True)

DTYPES: Final = ("auto", "fp32", "fp16", "bf16")


def is_compiled(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether compiled code multiplies a few rows with weights of a dtype."""
    return processor.has(_KINDS.get(dtype, ""), device)


def candidates(dtype: str, device: str) -> tuple[Packing, ...]:
    """Return the ways worth measuring for what `--dtype` asks, the usual one first.

    Compiled code reads bf16 where it lies, as fast as the memory gives it: nothing else is worth measuring.
    """
    compiled = is_compiled(torch.bfloat16, torch.device(device))
    prepacks = device == "cpu" and fast_bf16() and not compiled
    bf16 = (BF16_PREPACKED, BF16) if prepacks else (BF16,)
    if dtype != "auto":
        return {"fp32": (FP32,), "fp16": (FP16,), "bf16": bf16}[dtype]
    if device != "cpu" or compiled:
        return (FP16,) if device == "mps" else (BF16,)
    return (BF16_PREPACKED, FP16, BF16) if prepacks else (FP16, BF16)
