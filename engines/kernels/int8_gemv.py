"""A row times a matrix of bytes with one scale per group of 32, the format q8_0; and its gate-up variant."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import torch
import triton
import triton.language as tl

from engines.kernels.gemv_template import (
    GROUP,
    PACKED_TYPES,
    build_case,
    build_product_case,
    compute_product_work,
    launch_gate_up,
    launch_product,
    multiply_gate_up,
    multiply_row,
)
from engines.kernels.launch_support import CompileCase, Tile, TileTable, make_metadata

TABLE: Final = TileTable(
    (  # rows of the matrix up to; columns in half groups of 16
        (1024, Tile(8, 32, 4, split=8)),
        (4096, Tile(8, 32, 4, split=4)),
        (1 << 31, Tile(8, 32, 4)),
    )
)
GATE_UP_TABLE: Final = TileTable(((1 << 31, Tile(4, 32, 4)),))


def reference(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    grouped = codes.float().view(codes.shape[0], -1, GROUP) * scales.float()[..., None]
    return x.float() @ grouped.flatten(1).T


@triton.jit
def multiply_half_groups(codes, scales, x, n, h, N: tl.constexpr, K: tl.constexpr):
    """Return the products of [rows, half groups]: the sum over 16 codes, one load, times their scale.

    Beyond the end the last row and the last half group are read again, with a scale of zero.
    """
    near = tl.minimum(h, K // 16 - 1)
    place = tl.minimum(n, N - 1)[:, None].to(tl.int64) * (K // 16) + near[None, :]
    at = place[:, :, None] * 16 + tl.arange(0, 16)[None, None, :]
    code = tl.load(codes + at, eviction_policy="evict_first")
    # each thread loads the x that its own codes need, so that none waits for another
    of_code = tl.broadcast_to(near[None, :, None] * 16 + tl.arange(0, 16)[None, None, :], code.shape)
    value = tl.load(x + of_code, eviction_policy="evict_last")
    inside = tl.broadcast_to((h < K // 16)[None, :], place.shape)
    scale = tl.load(scales + place // 2, mask=inside, other=0.0)
    return tl.sum(code.to(tl.float32) * value.to(tl.float32), 2) * scale.to(tl.float32)


@triton.jit(launch_metadata=make_metadata(32, compute_product_work))
def int8_gemv_kernel(
    x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with a matrix of 8 bits."""
    multiply_row(
        multiply_half_groups, x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
        K // 16, N, K, ROWS, BIAS, SPLIT, NORM, POST, BLOCK_N, BLOCK_C,
    )  # fmt: skip


@triton.jit(launch_metadata=make_metadata(32, compute_product_work))
def int8_gate_up_kernel(
    x, weight, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with gate and up matrices of 8 bits."""
    multiply_gate_up(
        multiply_half_groups, x, weight, scales, weight + N * K, scales + N * (K // 32), out,
        K // 16, N, K, ROWS, GELU, BLOCK_N, BLOCK_C,
    )  # fmt: skip


launch: Final = partial(launch_product, int8_gemv_kernel, TABLE)
gate_up: Final = partial(launch_gate_up, int8_gate_up_kernel, GATE_UP_TABLE)
choose_split: Final = TABLE.choose_split

SHAPES: Final = (  # label, rows, columns, bias
    ("llama-3.2-1b o", 2048, 2048, False),
    ("gemma-3-1b lm_head", 262144, 1152, False),
    ("qwen2.5-0.5b qkv", 1152, 896, True),
    ("smollm2-135m o", 576, 576, False),
)
GATE_UP_SHAPES: Final = (  # label, rows of one matrix, columns, gelu
    ("llama-3.2-1b gate_up", 8192, 2048, False),
    ("gemma-3-1b gate_up", 6912, 1152, True),
)


def cases() -> Iterator[CompileCase]:
    types = {**PACKED_TYPES, "weight": "*i8", "scales": "*fp16"}
    for label, n, k, bias in SHAPES:
        tile, finished = TABLE.select(n), label.endswith(" o")
        yield build_product_case(label, int8_gemv_kernel, tile, n, k, types, bias=bias, finished=finished)
    for label, n, k, gelu in GATE_UP_SHAPES:
        yield build_case(label, int8_gate_up_kernel, GATE_UP_TABLE.select(n), n, k, types, GELU=gelu)
