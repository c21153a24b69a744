"""What all launchers share: cases to compile, what a launch tells Triton's profiler, sizes of blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

Work = tuple[float, float]  # flops, bytes
POINTER: Final = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16",
    torch.int8: "*i8", torch.int32: "*i32",
}  # fmt: skip


class Tile(NamedTuple):
    """How a matrix is cut: rows and columns of a program, its warps, programs along one row."""

    rows: int
    columns: int
    warps: int
    split: int = 1


@dataclass(frozen=True)
class Case:
    """One compilation of a kernel: the types of its arguments, its constants, what is promised of it."""

    label: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int
    wide: int = 0  # 16-byte loads at least
    stages: int = 2


def told(bits: int, work: Callable[[Mapping[str, Any]], Work]) -> Callable[..., dict[str, Any]]:
    """Launch metadata in the words of Triton's profiler: name, flops of a width, bytes."""

    def metadata(_grid: Any, compiled: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        flops, moved = work(arguments)
        return {"name": compiled.name, f"flops{bits}": flops, "bytes": moved}

    return metadata


def size(tensor: torch.Tensor | None) -> int:
    """Bytes of a tensor."""
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


def chosen(table: tuple[tuple[int, Tile], ...], rows: int) -> Tile:
    """The tile of the first line of a table that is for so many rows."""
    return next(tile for most, tile in table if rows <= most)


def parts(count: int, each: int) -> int:
    """How many parts of a size cover a count."""
    return -(-count // each)


def power_of_two(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(n - 1, 0).bit_length()
