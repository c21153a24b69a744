"""Shared by all kernels: tiles, arrival counters, cases to compile, and metadata for Triton's profiler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

Work = tuple[float, float]  # flops, bytes
# types that arguments of these names have in a case that gives no other
ARGUMENT_TYPES: Final = {
    **dict.fromkeys(("x", "out", "normed", "weight", "table", "qkv", "q", "keys", "values"), "*bf16"),
    **dict.fromkeys(("stream", "post", "norm", "bias", "cos", "sin", "logits"), "*fp32"),
    **dict.fromkeys(("partial", "peak", "mass", "best"), "*fp32"),
    **dict.fromkeys(("position", "arrived", "index", "step", "cut"), "*i32"),
    **dict.fromkeys(("token", "fewer"), "*i64"),
    **dict.fromkeys(("eps", "scale", "inverse", "top_p"), "fp32"),
    **dict.fromkeys(("rows", "table_stride", "seed"), "i32"),
}
STAGES: Final = 2  # of the pipeline of loads
NO_WAIT_LIMITS: Final = {"shuffles": 0, "barriers": 0}  # no thread waits for another within a loop


class Tile(NamedTuple):
    """How a matrix is tiled: rows and columns per program, its warps, and programs per row."""

    rows: int
    columns: int
    warps: int
    split: int = 1


@dataclass(frozen=True)
class TileTable:
    """Tiles by the number of matrix rows: (up to so many rows, tile), ascending."""

    by_rows: tuple[tuple[int, Tile], ...]

    def select(self, rows: int) -> Tile:
        return next(tile for most, tile in self.by_rows if rows <= most)

    def choose_split(self, rows: int) -> int:
        """Return the number of programs that share each row of a matrix of so many rows."""
        return self.select(rows).split


@triton.jit
def is_last_to_arrive(arrived, count):
    """Return whether this program is the last of `count` to call this; it sees what the others have stored.

    The last one resets the counter for the next launch.
    """
    tl.debug_barrier()  # every thread of this program has stored its part
    last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == count - 1
    if last:
        tl.store(arrived, 0)
    return last


@dataclass(frozen=True)
class CompileCase:
    """One compilation of a kernel: argument types, constants, and what its machine code must fulfil."""

    label: str
    kernel: Any
    constants: Mapping[str, Any]
    warps: int
    types: Mapping[str, str] = field(default_factory=dict)  # that differ from ARGUMENT_TYPES
    wide: int = 0  # minimum of 16-byte loads
    # field of `MachineCode` → maximum; that of `per_weight` is for sm_90
    limits: Mapping[str, float] = field(default_factory=dict)
    weights: int = 0  # multiplied by a thread in one turn of the loop; 0: not counted
    fits: Callable[[str], bool] = lambda target: True  # whether to compile for a target of this name


def make_metadata(bits: int, work: Callable[[Mapping[str, Any]], Work]) -> Callable[..., dict[str, Any]]:
    """Make the launch metadata for Triton's profiler: name, flops of `bits` width, bytes."""

    def build_metadata(_grid: Any, compiled: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        flops, moved = work(arguments)
        return {"name": compiled.name, f"flops{bits}": flops, "bytes": moved}

    return build_metadata


def count_bytes(arguments: Mapping[str, Any], *names: str) -> int:
    """Return the bytes of the tensors of these names; one may be missing or None."""
    tensors = (arguments.get(name) for name in names)
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def divide_up(count: int, size: int) -> int:
    """Return the number of parts of a size that cover a count."""
    return -(-count // size)


def has_dots(device: torch.device) -> bool:
    """Return whether tensor cores multiply 16 padded rows within the registers of a device.

    On NVIDIA GPUs before Ampere, and on AMD GPUs with warps of 32, such a product spills registers.
    """
    if device.type != "cuda":
        return True
    if torch.version.hip:
        return int(torch.cuda.get_device_properties(device).warp_size) != 32
    return torch.cuda.get_device_capability(device) >= (8, 0)


def has_dots_on_target(target: str) -> bool:
    """Return the same for the name of a compile target."""
    return target != "sm_75" and not target.startswith("gfx1")


def pad_to_power_of_2(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()
