"""Shared by all launchers: cases to compile, metadata for Triton's profiler, tiles, sizes of blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch

Work = tuple[float, float]  # flops, bytes
POINTER: Final = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16",
    torch.int8: "*i8", torch.int32: "*i32",
}  # fmt: skip


QUIET: Final = {"shuffles": 0, "barriers": 0}  # a loop in which no thread waits for another


class Tile(NamedTuple):
    """How a matrix is cut: rows and columns of a program, its warps, programs along one row."""

    rows: int
    columns: int
    warps: int
    split: int = 1


@dataclass(frozen=True)
class Case:
    """One compilation of a kernel: the types of its arguments, its constants, what it must come out as."""

    label: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int
    wide: int = 0  # 16-byte loads at least
    stages: int = 2
    limits: Mapping[str, int] = field(default_factory=dict)  # of `Compiled`, by name: the most of each


@dataclass(frozen=True)
class Tiles:
    """The tile for a matrix by its number of rows: (most rows, tile), the fewest first."""

    by_rows: tuple[tuple[int, Tile], ...]

    def of(self, rows: int) -> Tile:
        """Return the tile for a matrix of so many rows."""
        return next(tile for most, tile in self.by_rows if rows <= most)

    def split_of(self, rows: int) -> int:
        """Return among how many programs each row of a matrix of so many rows is split."""
        return self.of(rows).split


def metadata_of(bits: int, work: Callable[[Mapping[str, Any]], Work]) -> Callable[..., dict[str, Any]]:
    """Return what tells Triton's profiler of a launch: name, flops of a width, bytes."""

    def metadata(_grid: Any, compiled: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        flops, moved = work(arguments)
        return {"name": compiled.name, f"flops{bits}": flops, "bytes": moved}

    return metadata


def size(tensor: torch.Tensor | None) -> int:
    """Return the bytes of a tensor; none for none."""
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


def parts(count: int, each: int) -> int:
    """Return how many parts of a size cover a count."""
    return -(-count // each)


def power_of_two(n: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << max(n - 1, 0).bit_length()


def product_grid(x: torch.Tensor, rows: int, out: torch.Tensor, tile: Tile) -> tuple[int, int]:
    """Return the programs of x times a matrix of so many rows: along rows, and along a row into its parts.

    An `out` of three dimensions takes partial sums, one for each part of a row.
    """
    return x.shape[0] * -(-rows // tile.rows), out.shape[0] if out.dim() == 3 else 1
