"""Shared by all kernels: who is last, cases to compile, metadata for Triton's profiler, sizes of blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

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


@triton.jit
def is_last(arrived, count):
    """Return whether this program is the last of `count` that come here; it sees what the others have stored.

    Whoever is the last counts from nothing again, for the next launch.
    """
    tl.debug_barrier()  # every thread of this program has stored its part
    last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == count - 1
    if last:
        tl.store(arrived, 0)
    return last


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
    limits: Mapping[str, float] = field(default_factory=dict)  # of `Compiled`, by name: the most of each;
    # that of `per_weight` is for sm_90
    weights: int = 0  # that a thread multiplies in one turn of the loop; 0: not counted
    fits: Callable[[str], bool] = lambda target: True  # by the name of a target: whether it is for that


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


def has_dots(device: torch.device) -> bool:
    """Return whether tensor cores multiply 16 padded rows within the registers of a device.

    On GPUs of NVIDIA before Ampere, and on AMD's with warps of 32, such a product spills.
    """
    if device.type != "cuda":
        return True
    if torch.version.hip:
        return int(torch.cuda.get_device_properties(device).warp_size) != 32
    return torch.cuda.get_device_capability(device) >= (8, 0)


def targets_with_dots(target: str) -> bool:
    """Return the same of a target that is compiled for, by its name."""
    return target != "sm_75" and not target.startswith("gfx1")


def power_of_two(n: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << max(n - 1, 0).bit_length()


def product_grid(x: torch.Tensor, rows: int, out: torch.Tensor, tile: Tile) -> tuple[int, int]:
    """Return the programs of x times a matrix of so many rows: along rows, and along a row into its parts.

    An `out` of three dimensions takes partial sums, one for each part of a row.
    """
    return x.shape[0] * -(-rows // tile.rows), out.shape[0] if out.dim() == 3 else 1
