"""Several rows times a matrix, on tensor cores: the matrix is read once for all of them.

The matrix is plain, or packed as in w4a16_gemv and int8_gemv, and unpacked in registers. Rows of fp32 are
multiplied as three parts of tf32 where tensor cores support it, which is as exact as fp32.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from engines.kernels import gemv
from engines.kernels.add_rmsnorm import (
    ProductFinish,
    build_finish_arguments,
    build_finish_constants,
    norm_row,
)
from engines.kernels.gemv_template import activate
from engines.kernels.launch_support import (
    CompileCase,
    Work,
    count_bytes,
    divide_up,
    has_dots,
    has_dots_on_target,
    is_last_to_arrive,
    make_metadata,
)


class ProductTile(NamedTuple):
    """Tile of a program: rows of x, rows and columns of the matrix; and its warps."""

    rows: int
    matrix_rows: int
    columns: int
    warps: int


FEW_ROWS_TILE: Final = ProductTile(16, 32, 128, 4)
MANY_ROWS_TILE: Final = ProductTile(32, 32, 128, 4)
BITS: Final = {torch.int32: 4, torch.int8: 8}  # of a packed matrix, by what it is packed into

reference: Final = gemv.reference


def _compute_work(a: Mapping[str, Any]) -> Work:
    flops = 2 * a["rows"] * a["N"] * a["K"] * (2 if a["GATED"] else 1)
    return flops, count_bytes(a, "weight", "scales", "x", "out")


@triton.jit
def add_products(
    total, x, weight, scales, m, n, start,
    K: tl.constexpr, BITS: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the products of a block of columns to `total` [rows of x, rows of the matrix]."""
    if BITS == 4:
        w = start // 8 + tl.arange(0, BLOCK_K // 8)
        there = tl.broadcast_to((w < K // 8)[None, :], [n.shape[0], BLOCK_K // 8])
        near = tl.minimum(w, K // 8 - 1)
        line = n[:, None].to(tl.int64)
        word = tl.load(weight + line * (K // 8) + near[None, :], eviction_policy="evict_first")
        scale = tl.load(scales + line * (K // 32) + near[None, :] // 4, mask=there, other=0.0)
        for code in tl.static_range(8):
            value = tl.load(x + m[:, None].to(tl.int64) * K + (near * 8 + code)[None, :])
            number = (((word >> (4 * code)) & 15) - 7).to(tl.float32) * scale.to(tl.float32)
            total += tl.dot(value, tl.trans(number).to(value.dtype), input_precision=PRECISION)
    else:
        k = start + tl.arange(0, BLOCK_K)
        there = tl.broadcast_to((k < K)[None, :], [n.shape[0], BLOCK_K])
        near = tl.minimum(k, K - 1)
        line = n[:, None].to(tl.int64)
        number = tl.load(weight + line * K + k[None, :], mask=there, other=0, eviction_policy="evict_first")
        if BITS == 8:
            scale = tl.load(scales + line * (K // 32) + near[None, :] // 32)
            number = number.to(tl.float32) * scale.to(tl.float32)
        value = tl.load(x + m[:, None].to(tl.int64) * K + near[None, :])
        total += tl.dot(value, tl.trans(number.to(value.dtype)), input_precision=PRECISION)
    return total


@triton.jit(launch_metadata=make_metadata(16, _compute_work))
def rows_product_kernel(
    x, weight, scales, bias, out, stream, post, norm, normed, arrived, rows, eps,
    N: tl.constexpr, K: tl.constexpr, BITS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply one tile; the last program norms the rows."""
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    near_m, near_n = tl.minimum(m, rows - 1), tl.minimum(n, N - 1)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(part * BLOCK_K, K, SPLIT * BLOCK_K):
        total = add_products(total, x, weight, scales, near_m, near_n, start, K, BITS, BLOCK_K, PRECISION)
        if GATED:
            up = add_products(up, x, weight, scales, near_m, near_n + N, start, K, BITS, BLOCK_K, PRECISION)
    if GATED:
        total = activate(total, GELU) * up
    if BIAS:
        added = tl.load(bias + n, mask=n < tl.where(part == 0, N, 0), other=0.0)
        total += added.to(tl.float32)[None, :]
    place = out + (part * rows + m[:, None]).to(tl.int64) * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(m < rows)[:, None] & (n < N)[None, :])
    if NORM > 0:  # noqa: SIM102
        if is_last_to_arrive(arrived, tl.num_programs(0) * SPLIT):
            for row in range(rows):
                norm_row(out, stream, post, norm, normed, row, rows, eps, N, NORM, SPLIT, True, POST)


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    finish: ProductFinish | None = None,
    gelu: bool | None = None,
) -> None:
    """Write x [rows, k] times the matrix to out [rows, n], or to partial sums [split, rows, n].

    With `gelu`, true or false, the matrix is gate above up, [2·n, k], and act(x·gate) · (x·up) is written.
    Only as many rows as one program takes can be finished.
    """
    bits, gated = BITS.get(weight.dtype, 16), gelu is not None
    (rows, k), n, block = x.shape, out.shape[-1], choose_tile(len(x), bits, gated=gated)
    split = out.shape[0] if out.dim() == 3 else 1
    rows_product_kernel[(divide_up(n, block.matrix_rows), split, divide_up(rows, block.rows))](
        x, weight, scales, bias, out, rows=rows, **build_finish_arguments(finish, n), N=n, K=k,
        BITS=bits, BIAS=bias is not None, SPLIT=split, GATED=gated, GELU=bool(gelu),
        BLOCK_M=block.rows, BLOCK_N=block.matrix_rows, BLOCK_K=block.columns,
        PRECISION=choose_precision(x), num_warps=block.warps,
    )  # fmt: skip


def is_one_by_one(x: torch.Tensor) -> bool:
    """Return whether the kernels for a single row take these rows: only one row, or no tensor cores."""
    return len(x) == 1 or not has_dots(x.device)


def choose_tile(rows: int, bits: int, *, gated: bool) -> ProductTile:
    """Choose the tile for so many rows; two products at once leave registers for few."""
    block = FEW_ROWS_TILE if gated or rows <= FEW_ROWS_TILE.rows else MANY_ROWS_TILE
    return block._replace(columns=block.columns // 2) if bits == 8 else block


def choose_precision(x: torch.Tensor) -> str:
    """Choose the precision of fp32 products: at least as exact as fp32, on any device."""
    return "tf32x3" if x.is_cuda and not torch.version.hip else "ieee"


TF32: Final = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
# precision of a product → targets that multiply so
BF16_PRECISIONS: Final = (("ieee", has_dots_on_target),)
FP32_PRECISIONS: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    ("tf32x3", lambda target: target in TF32),
    ("ieee", lambda target: has_dots_on_target(target) and target not in TF32),
)
SHAPES: Final = (  # label, dtype of x, of the matrix, of its scales, rows, columns, gated, finished
    ("gemma-3-1b down bf16", "*bf16", "*bf16", "", 1152, 6912, False, True),
    ("gemma-3-1b gate_up bf16", "*bf16", "*bf16", "", 6912, 1152, True, False),
    ("llama-3.2-1b down q4f16_1", "*fp32", "*i32", "*fp16", 2048, 8192, False, True),
    ("llama-3.2-1b gate_up q4f32_1", "*fp32", "*i32", "*fp32", 8192, 2048, True, False),
    ("llama-3.2-1b gate_up q8_0", "*fp32", "*i8", "*fp16", 8192, 2048, True, False),
    ("llama-3.2-1b qkv q4f16_1", "*fp32", "*i32", "*fp16", 3072, 2048, False, False),
    ("llama-3.2-1b qkv q8_0", "*fp32", "*i8", "*fp16", 3072, 2048, False, False),
)


def cases() -> Iterator[CompileCase]:
    for label, x, weight, scales, n, k, gated, finished in SHAPES:
        bits = {"*i32": 4, "*i8": 8}.get(weight, 16)
        types = {"x": x, "weight": weight, "scales": scales or "*fp32", "normed": x}
        types["out"] = "*fp32" if finished else x
        constants = {
            "N": n, "K": k, "BITS": bits, "BIAS": False, "GATED": gated, "SPLIT": 2 if finished else 1,
            "GELU": False, **build_finish_constants(n, finished=finished),
        }  # fmt: skip
        for rows in (FEW_ROWS_TILE.rows,) if gated or finished else (FEW_ROWS_TILE.rows, MANY_ROWS_TILE.rows):
            block = choose_tile(rows, bits, gated=gated)
            sides = {"BLOCK_M": block.rows, "BLOCK_N": block.matrix_rows, "BLOCK_K": block.columns}
            for precision, fits in BF16_PRECISIONS if x == "*bf16" else FP32_PRECISIONS:
                yield CompileCase(
                    f"{label}, {block.rows} rows", rows_product_kernel,
                    {**constants, **sides, "PRECISION": precision}, block.warps, types, fits=fits,
                )  # fmt: skip
