"""A row times a matrix of bytes with a scale for each group of 32, as q8_0 stores it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.add_rmsnorm import FINISH_TYPES, Finish, arguments_of, finish_constants, put_product
from engines.kernels.gate_up_act import activated, activation
from engines.kernels.launch import QUIET, Case, Tile, Tiles, Work, metadata_of, parts, product_grid, size

GROUP: Final = 32
TABLE: Final = Tiles(
    (  # rows of the matrix up to; columns in half groups of 16
        (1024, Tile(8, 32, 4, split=8)),
        (4096, Tile(8, 32, 4, split=4)),
        (1 << 31, Tile(8, 32, 4)),
    )
)
GATE_UP_TABLE: Final = Tiles(((1 << 31, Tile(4, 32, 4)),))


def reference(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    grouped = codes.float().view(codes.shape[0], -1, GROUP) * scales.float()[..., None]
    return x.float() @ grouped.flatten(1).T


def gate_up_reference(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, *, gelu: bool
) -> torch.Tensor:
    gate, up = reference(x, codes, scales).chunk(2, -1)
    return activation(gate, gelu=gelu) * up


def work(a: Mapping[str, Any]) -> Work:
    flops = 2 * a["ROWS"] * a["codes"].numel()
    return flops, size(a["codes"]) + size(a["scales"]) + size(a["x"]) + size(a["out"])


@triton.jit
def half_groups(codes, scales, x, n, h, N: tl.constexpr, K: tl.constexpr):
    """Return the products of [rows, half groups]: the sum over 16 codes, one load, times their scale.

    Beyond the end the last row and the last half group are read again, without a scale.
    """
    near = tl.minimum(h, K // 16 - 1)
    place = tl.minimum(n, N - 1)[:, None].to(tl.int64) * (K // 16) + near[None, :]
    at = place[:, :, None] * 16 + tl.arange(0, 16)[None, None, :]
    code = tl.load(codes + at, eviction_policy="evict_first")
    # each thread reads of x what its own codes take, so that none waits for another
    of_code = tl.broadcast_to(near[None, :, None] * 16 + tl.arange(0, 16)[None, None, :], code.shape)
    value = tl.load(x + of_code, eviction_policy="evict_last")
    there = tl.broadcast_to((h < K // 16)[None, :], place.shape)
    scale = tl.load(scales + place // 2, mask=there, other=0.0)
    return tl.sum(code.to(tl.float32) * value.to(tl.float32), 2) * scale.to(tl.float32)


@triton.jit(launch_metadata=metadata_of(32, work))
def int8_gemv_kernel(
    x, codes, scales, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    total = tl.zeros([BLOCK_N, BLOCK_H], tl.float32)
    for start in range(part * BLOCK_H, K // 16, SPLIT * BLOCK_H):
        h = start + tl.arange(0, BLOCK_H)
        total += half_groups(codes, scales, x + row * K, n, h, N, K)
    put_product(
        tl.sum(total, 1), n, part, row, bias, out, stream, post, norm, normed, arrived, eps,
        N, ROWS, BIAS, SPLIT, NORM, POST,
    )  # fmt: skip


@triton.jit(launch_metadata=metadata_of(32, work))
def int8_gate_up_kernel(
    x, codes, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros([BLOCK_N, BLOCK_H], tl.float32)
    up = tl.zeros([BLOCK_N, BLOCK_H], tl.float32)
    for start in range(0, K // 16, BLOCK_H):
        h = start + tl.arange(0, BLOCK_H)
        gate += half_groups(codes, scales, x + row * K, n, h, N, K)
        up += half_groups(codes + N * K, scales + N * (K // 32), x + row * K, n, h, N, K)
    product = activated(tl.sum(gate, 1), GELU) * tl.sum(up, 1)
    tl.store(out + row * N + n, product.to(out.dtype.element_ty), mask=n < N)


split_of: Final = TABLE.split_of


def launch(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    finish: Finish | None = None,
    tile: Tile | None = None,
) -> None:
    """Put x [rows, k] times codes [n, k] into out [rows, n], or into partial sums [split, rows, n].

    What is to be finished comes from `out` in fp32, which then holds nothing that anybody else needs.
    """
    (n, k), rows = codes.shape, x.shape[0]
    tile = tile or TABLE.of(n)
    grid = product_grid(x, n, out, tile)
    int8_gemv_kernel[grid](
        x, codes, scales, bias, out, **arguments_of(finish, n), N=n, K=k, ROWS=rows, BIAS=bias is not None,
        SPLIT=grid[1], BLOCK_N=tile.rows, BLOCK_H=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


def gate_up(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    *,
    gelu: bool,
    tile: Tile | None = None,
) -> None:
    """Put x [rows, k] through codes [2·n, k], gate above up, into out [rows, n]."""
    (rows, k), n = x.shape, out.shape[1]
    tile = tile or GATE_UP_TABLE.of(n)
    int8_gate_up_kernel[(rows * parts(n, tile.rows),)](
        x, codes, scales, out, N=n, K=k, ROWS=rows, GELU=gelu,
        BLOCK_N=tile.rows, BLOCK_H=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


SHAPES: Final = (
    ("llama-3.2-1b o", 2048, 2048, False),
    ("gemma-3-1b lm_head", 262144, 1152, False),
    ("qwen2.5-0.5b qkv", 1152, 896, True),
    ("smollm2-135m o", 576, 576, False),
)
GATE_UP_SHAPES: Final = (
    ("llama-3.2-1b gate_up", 8192, 2048, False),
    ("gemma-3-1b gate_up", 6912, 1152, True),
)


def cases() -> Iterator[Case]:
    for label, n, k, bias in SHAPES:
        tile = TABLE.of(n)
        shape = {"N": n, "K": k, "SPLIT": tile.split, "BIAS": bias}
        shape |= finish_constants(n, finished=label.endswith(" o"))
        yield _case(label, int8_gemv_kernel, tile, shape, 1)
    for label, n, k, gelu in GATE_UP_SHAPES:
        tile = GATE_UP_TABLE.of(n)
        yield _case(label, int8_gate_up_kernel, tile, {"N": n, "K": k, "GELU": gelu}, 2)


def _case(label: str, kernel: Any, tile: Tile, shape: dict[str, Any], wide: int) -> Case:
    """The stream is fp32 where weights are packed; the scales of q8_0 have 16 bits."""
    types = dict.fromkeys(("x", "bias", "out", "normed"), "*fp32") | FINISH_TYPES
    types |= {"codes": "*i8", "scales": "*fp16"}
    blocks = {"ROWS": 1, "BLOCK_N": tile.rows, "BLOCK_H": tile.columns}
    return Case(label, kernel, types, {**shape, **blocks}, tile.warps, wide, limits=QUIET)
