"""A row times a matrix of 4-bit codes, and its gate-up variant; the matrix is never unpacked in memory.

MLC's packing: eight codes 0-14 in a 32-bit word, lowest bits first, one scale per group of 32 codes; a weight
is (code - 7) · scale. A group is four words, which one thread loads as 16 bytes.

A code becomes a float without a conversion: it is placed in the lowest mantissa bits of 2^23, and subtracting
2^23 + 7 leaves (code - 7) exactly. The eight codes of a word are used one after the other, so that no thread
needs data of another until a row is done.
"""

from collections.abc import Iterator
from dataclasses import replace
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
from engines.kernels.launch_support import NO_WAIT_LIMITS, CompileCase, Tile, TileTable, make_metadata

TABLE: Final = TileTable(
    (  # rows of the matrix up to; columns in groups of 32
        (1024, Tile(4, 32, 2, split=4)),
        (4096, Tile(8, 32, 4, split=2)),
        (1 << 31, Tile(8, 32, 4)),
    )
)
GATE_UP_TABLE: Final = TileTable(((4096, Tile(4, 32, 2)), (1 << 31, Tile(8, 32, 4))))


def reference(x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    codes = (words[..., None] >> shifts) & 0xF
    grouped = codes.view(words.shape[0], -1, GROUP).float() - 7.0
    return x.float() @ (grouped * scales.float()[..., None]).flatten(1).T


@triton.jit
def multiply_groups(words, scales, x, n, g, N: tl.constexpr, K: tl.constexpr):
    """Return the products of [rows, groups]: the sum over the 32 codes of a group, times its scale.

    Beyond the end the last row and the last group are read again, with a scale of zero.
    """
    near = tl.minimum(g, K // 32 - 1)
    place = tl.minimum(n, N - 1)[:, None].to(tl.int64) * (K // 32) + near[None, :]
    at = place[:, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    word = tl.load(words + at, eviction_policy="evict_first")
    # one scale per thread, in the thread that has the codes: wider loads would have to be exchanged
    inside = tl.broadcast_to((g < K // 32)[None, :], place.shape)
    scale = tl.load(scales + tl.max_contiguous(place, [1, 1]), mask=inside, other=0.0)
    total = tl.zeros(word.shape, tl.float32)
    # each thread loads the x that its own words need, so that none waits for another
    first = (near[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]) * 8
    first = tl.broadcast_to(first, word.shape)
    for code in tl.static_range(8):
        value = tl.load(x + first + code, eviction_policy="evict_last")
        weight = (((word >> (4 * code)) & 15) | 0x4B000000).to(tl.float32, bitcast=True) - 8388615.0
        total += weight * value.to(tl.float32)
    return tl.sum(total, 2) * scale.to(tl.float32)


@triton.jit(launch_metadata=make_metadata(32, compute_product_work))
def w4a16_gemv_kernel(
    x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with a matrix of 4 bits."""
    multiply_row(
        multiply_groups, x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
        K // 32, N, K, ROWS, BIAS, SPLIT, NORM, POST, BLOCK_N, BLOCK_C,
    )  # fmt: skip


@triton.jit(launch_metadata=make_metadata(32, compute_product_work))
def w4a16_gate_up_kernel(
    x, weight, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with gate and up matrices of 4 bits."""
    multiply_gate_up(
        multiply_groups, x, weight, scales, weight + N * (K // 8), scales + N * (K // 32), out,
        K // 32, N, K, ROWS, GELU, BLOCK_N, BLOCK_C,
    )  # fmt: skip


launch: Final = partial(launch_product, w4a16_gemv_kernel, TABLE)
gate_up: Final = partial(launch_gate_up, w4a16_gate_up_kernel, GATE_UP_TABLE)
choose_split: Final = TABLE.choose_split

LIMITS: Final = {**NO_WAIT_LIMITS, "per_weight": 6.0}
SHAPES: Final = (  # label, rows, columns, the dtype of scales, bias
    ("llama-3.2-1b o q4f16_1", 2048, 2048, "*fp16", False),
    ("llama-3.2-1b o q4f32_1", 2048, 2048, "*fp32", False),
    ("gemma-3-1b o q4f16_1", 1152, 1024, "*fp16", False),
    ("gemma-3-1b lm_head q4f16_1", 262144, 1152, "*fp16", False),
    ("qwen2.5-0.5b qkv q4f16_1", 1152, 896, "*fp16", True),
    ("smollm2-135m o q4f16_1", 576, 576, "*fp16", False),
)
GATE_UP_SHAPES: Final = (  # label, rows of one matrix, columns, the dtype of scales
    ("llama-3.2-1b gate_up q4f16_1", 8192, 2048, "*fp16"),
    ("llama-3.2-1b gate_up q4f32_1", 8192, 2048, "*fp32"),
    ("smollm2-135m gate_up q4f16_1", 1536, 576, "*fp16"),
)


def cases() -> Iterator[CompileCase]:
    for label, n, k, dtype, bias in SHAPES:
        tile, types = TABLE.select(n), {**PACKED_TYPES, "weight": "*i32", "scales": dtype}
        finished = " o " in label
        case = build_product_case(label, w4a16_gemv_kernel, tile, n, k, types, bias=bias, finished=finished)
        yield replace(case, limits=LIMITS, weights=count_thread_weights(tile))
    for label, n, k, dtype in GATE_UP_SHAPES:
        tile, types = GATE_UP_TABLE.select(n), {**PACKED_TYPES, "weight": "*i32", "scales": dtype}
        case = build_case(label, w4a16_gate_up_kernel, tile, n, k, types, GELU=False)
        yield replace(case, limits=LIMITS, weights=2 * count_thread_weights(tile))


def count_thread_weights(tile: Tile) -> int:
    """Count the weights of one matrix that a thread multiplies in one turn of the loop."""
    return tile.rows * tile.columns * GROUP // (32 * tile.warps)
