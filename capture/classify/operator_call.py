"""An operator call as a profiler records it, its work, and the sizes of the types in it."""

from typing import Final

from msgspec import Struct

from capture.classify.step_annotations import StepAnnotation

Dims = tuple[int, ...]
ONNX_TYPE: Final = "tensor("  # begin of the type of an operand of ONNX: tensor(float)


class OperatorCall(Struct, frozen=True):
    """One operator call as a profiler records it; an operand that is not a tensor has no dims."""

    name: str
    dims: tuple[Dims, ...]
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    step: StepAnnotation | None = None  # of the step in which it ran: ragged attention needs it

    def find_dims(self, index: int, rank: int) -> Dims | None:
        """Find the dims of an operand; None unless it is a tensor of this rank with known sizes."""
        dims = self.dims[index] if index < len(self.dims) else ()
        return dims if len(dims) == rank and all(n > 0 for n in dims) else None

    def find_width(self, index: int) -> float | None:
        """Find the bytes per element of an operand; None for an unknown type."""
        return find_element_bytes(self.types[index]) if index < len(self.types) else None

    def list_tensors(self, rank: int | None = None) -> list[tuple[int, Dims]]:
        """List index and dims of every tensor operand, or of those of one rank."""
        return [(i, d) for i, d in enumerate(self.dims) if d and (rank is None or len(d) == rank)]

    def describe_node(self) -> tuple[str | None, str | None]:
        """Describe the first operand of a node of ONNX by its sizes and type; None for other calls."""
        if not (self.dims and self.types and self.types[0].startswith(ONNX_TYPE)):
            return None, None
        return "×".join(map(str, self.dims[0])) or None, shorten_dtype(self.types[0])


class OperatorWork(Struct, frozen=True):
    """Work of a call; `dtype` is the format that it multiplies in, `model` the id of the work model."""

    flops: float
    bytes: float
    shape: str  # as shown to the user, such as `m=32 n=24576 k=4096`
    dtype: str
    model: str = ""


_ELEMENT_BYTES: Final = {
    "double": 8.0, "long int": 8.0, "long": 8.0, "int64": 8.0, "float": 4.0, "int": 4.0, "c10::tf32": 4.0,
    "c10::half": 2.0, "c10::bfloat16": 2.0, "short int": 2.0, "short": 2.0, "signed char": 1.0, "char": 1.0,
    "half": 2.0, "bfloat16": 2.0, "byte": 1.0, "unsigned char": 1.0, "bool": 1.0, "c10::complex<float>": 8.0,
    "float16": 2.0, "int32": 4.0, "int16": 2.0, "int8": 1.0, "uint8": 1.0,  # of ONNX
}  # fmt: skip
STORED_BYTES: Final = {  # per weight, with the scales of its block: 32 weights in MXFP4, 16 in NVFP4
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1 + 1 / 32, "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
_SHORT_DTYPES: Final = {
    "c10::bfloat16": "bf16", "c10::half": "fp16", "float": "fp32", "double": "fp64",
    "bfloat16": "bf16", "half": "fp16", "byte": "uint8", "unsigned char": "uint8", "signed char": "int8",
    "float16": "fp16",
}  # fmt: skip


def find_element_bytes(type_name: str) -> float | None:
    """Find the bytes per element of a type as torch writes it; None for an unknown type."""
    name = _strip_type(type_name)
    if "float4" in name:
        return 0.5
    return 1.0 if "float8" in name else _ELEMENT_BYTES.get(name)


def shorten_dtype(type_name: str) -> str:
    """Shorten the name of a type to bf16, fp8, int8 …; unknown ones stay."""
    name = _strip_type(type_name)
    if "float8" in name:
        return "fp8"
    return "fp4" if "float4" in name else _SHORT_DTYPES.get(name, name)


def _strip_type(type_name: str) -> str:
    name = type_name.lower()
    return name.removeprefix(ONNX_TYPE).removesuffix(")") if name.startswith(ONNX_TYPE) else name
