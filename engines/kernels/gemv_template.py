"""What kernels that multiply one row with a matrix share: the loop over columns, launches, compile cases.

A format of weights is one `@triton.jit` function, `products(weight, scales, x, n, c, N, K)`. It returns a
number for each matrix row of `n` and each column unit of `c` (a column, or a group of them): the sum of that
unit's products. Where `scales` is not needed, it is None.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.add_rmsnorm import (
    ProductFinish,
    build_finish_arguments,
    build_finish_constants,
    store_product,
)
from engines.kernels.launch_support import (
    NO_WAIT_LIMITS,
    CompileCase,
    Tile,
    TileTable,
    Work,
    count_bytes,
    divide_up,
)

GROUP: Final = 32  # packed weights that share a scale
# argument types with packed weights, where activations are fp32
PACKED_TYPES: Final = dict.fromkeys(("x", "bias", "out", "normed"), "*fp32")


def compute_product_work(a: Mapping[str, Any]) -> Work:
    """Return flops and bytes of a launch with these arguments; a gate-up matrix counts both halves."""
    flops = 2 * a["ROWS"] * a["weight"].shape[0] * a["K"]
    return flops, count_bytes(a, "weight", "scales", "bias", "x", "out")


@triton.jit
def multiply_row(
    products, x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps, UNITS: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply a row of x with BLOCK_N rows of a matrix, or with every SPLIT-th block of their column units.

    Programs of different rows of x and the same matrix block are neighbours, so that the block is read from
    memory once.
    """
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    total = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
    for start in range(part * BLOCK_C, UNITS, SPLIT * BLOCK_C):
        total += products(weight, scales, x + row * K, n, start + tl.arange(0, BLOCK_C), N, K)
    store_product(
        tl.sum(total, 1), n, part, row, bias, out, stream, post, norm, normed, arrived, eps,
        N, ROWS, BIAS, SPLIT, NORM, POST,
    )  # fmt: skip


@triton.jit
def activate(gate, GELU: tl.constexpr):
    """Return SiLU, or GELU with tanh(t) = 2·sigmoid(2t) - 1, which needs no device library."""
    slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate
    return gate * tl.sigmoid(slope)


@triton.jit
def multiply_gate_up(
    products, x, weight, scales, up_weight, up_scales, out, UNITS: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply a row of x with BLOCK_N rows of the gate and of the up matrix: act(x·gate) · (x·up)."""
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
    up = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
    for start in range(0, UNITS, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        gate += products(weight, scales, x + row * K, n, c, N, K)
        up += products(up_weight, up_scales, x + row * K, n, c, N, K)
    product = activate(tl.sum(gate, 1), GELU) * tl.sum(up, 1)
    tl.store(out + row * N + n, product.to(out.dtype.element_ty), mask=n < N)


def launch_product(
    kernel: Any,
    tiles: TileTable,
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    finish: ProductFinish | None = None,
    tile: Tile | None = None,
) -> None:
    """Write x [rows, k] times the matrix to `out`: [rows, n], or partial sums [split, rows, n].

    With `finish`, `out` is fp32 and only a buffer between the product and what follows it.
    """
    (rows, k), n = x.shape, len(weight)
    tile = tile or tiles.select(n)
    split = out.shape[0] if out.dim() == 3 else 1
    kernel[(rows * divide_up(n, tile.rows), split)](
        x, weight, scales, bias, out, **build_finish_arguments(finish, n), N=n, K=k, ROWS=rows,
        BIAS=bias is not None, SPLIT=split, BLOCK_N=tile.rows, BLOCK_C=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


def launch_gate_up(
    kernel: Any,
    tiles: TileTable,
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    gelu: bool,
    scales: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """Write act(x·gate) · (x·up) to `out` [rows, n]; the matrix holds n rows of gate, then n rows of up."""
    (rows, k), n = x.shape, out.shape[1]
    tile = tile or tiles.select(n)
    kernel[(rows * divide_up(n, tile.rows),)](
        x, weight, scales, out, N=n, K=k, ROWS=rows, GELU=gelu,
        BLOCK_N=tile.rows, BLOCK_C=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


def build_product_case(
    label: str,
    kernel: Any,
    tile: Tile,
    n: int,
    k: int,
    types: Mapping[str, str],
    *,
    bias: bool,
    finished: bool,
) -> CompileCase:
    """Build a compile case of a product; `finished`: it also adds its rows to the stream and norms them."""
    finish = build_finish_constants(n, finished=finished)
    return build_case(label, kernel, tile, n, k, types, BIAS=bias, SPLIT=tile.split, **finish)


def build_case(
    label: str, kernel: Any, tile: Tile, n: int, k: int, types: Mapping[str, str], **constants: Any
) -> CompileCase:
    """Build a compile case of a product or, with the constant GELU, of a gate-up product."""
    if "scales" not in types:
        constants["scales"] = None
    constants |= {"N": n, "K": k, "ROWS": 1, "BLOCK_N": tile.rows, "BLOCK_C": tile.columns}
    wide = 2 if "GELU" in constants else 1
    return CompileCase(label, kernel, constants, tile.warps, types, wide, limits=NO_WAIT_LIMITS)
