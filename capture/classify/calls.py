"""One call of an operator as a profiler records it, and how much work it is."""

from dataclasses import dataclass
from typing import Final

from capture.classify.annotations import StepAnnotation

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of an operator as a profiler records it; an operand that is no tensor has no dims.

    `step` says what is known of the step in which it ran: ragged attention is told by it alone.
    """

    name: str
    dims: tuple[Dims, ...]
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    step: StepAnnotation | None = None

    def operand(self, place: int, rank: int) -> Dims | None:
        """Return the dims of an operand where it is a tensor of that rank with known sizes, else None."""
        dims = self.dims[place] if place < len(self.dims) else ()
        return dims if len(dims) == rank and all(n > 0 for n in dims) else None

    def width(self, place: int) -> float | None:
        """Return the bytes of one element of an operand, None where its type is not known."""
        return width_of(self.types[place]) if place < len(self.types) else None

    def tensors(self, rank: int | None = None) -> list[tuple[int, Dims]]:
        """Return place and dims of every operand that is a tensor, of one rank where it is given."""
        return [(i, d) for i, d in enumerate(self.dims) if d and (rank is None or len(d) == rank)]


@dataclass(frozen=True)
class Work:
    """Operations, bytes and the shape by which the work is known; `dtype` is that of the largest operand."""

    flops: float
    bytes: float
    shape: str
    dtype: str
    model: str = ""


_WIDTHS: Final = {
    "double": 8.0, "long int": 8.0, "long": 8.0, "int64": 8.0, "float": 4.0, "int": 4.0, "c10::tf32": 4.0,
    "c10::half": 2.0, "c10::bfloat16": 2.0, "short int": 2.0, "short": 2.0, "signed char": 1.0, "char": 1.0,
    "unsigned char": 1.0, "bool": 1.0, "c10::complex<float>": 8.0,
}  # fmt: skip
_NAMES: Final = {"c10::bfloat16": "bf16", "c10::half": "fp16", "float": "fp32", "double": "fp64"}


def width_of(type_name: str) -> float | None:
    """Return the bytes of one element of a type as torch writes it, None for a type that is not known."""
    name = type_name.lower()
    if "float4" in name:
        return 0.5
    return 1.0 if "float8" in name else _WIDTHS.get(name)


def dtype_of(type_name: str) -> str:
    """Return the short name of a type: bf16, fp8, int8 …"""
    name = type_name.lower()
    if "float8" in name:
        return "fp8"
    if "float4" in name:
        return "fp4"
    return _NAMES.get(name, {"unsigned char": "uint8", "signed char": "int8"}.get(name, name))
