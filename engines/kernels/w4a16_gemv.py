"""A row times a matrix of four-bit codes, and its gate-and-up variant; it is never unpacked in memory.

MLC's packing: eight codes 0–14 in a 32-bit word, lowest bits first, a scale for each group of 32 codes;
a weight is (code - 7) · scale. A group is four words, which is one 16-byte load of one thread.

A code becomes a float without a conversion: it is the last digits of the mantissa of 2^23, and taking off
2^23 + 7 leaves (code - 7) exactly. The eight codes of a word are taken one after the other, so that no thread
needs what another holds until a row is done.
"""

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
    (  # rows of the matrix up to; columns in groups of 32
        (1024, Tile(4, 32, 2, split=4)),
        (4096, Tile(8, 32, 4, split=2)),
        (1 << 31, Tile(8, 32, 4)),
    )
)
GATE_UP_TABLE: Final = Tiles(((4096, Tile(4, 32, 2)), (1 << 31, Tile(8, 32, 4))))


def unpacked(words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the weights that the words stand for, in fp32."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    codes = (words[..., None] >> shifts) & 0xF
    grouped = codes.view(words.shape[0], -1, GROUP).float() - 7.0
    return (grouped * scales.float()[..., None]).flatten(1)


def reference(x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return x.float() @ unpacked(words, scales).T


def gate_up_reference(
    x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, *, gelu: bool
) -> torch.Tensor:
    gate, up = reference(x, words, scales).chunk(2, -1)
    return activation(gate, gelu=gelu) * up


def work(a: Mapping[str, Any]) -> Work:
    rows_of_weights = a["words"].shape[0]
    flops = 2 * a["ROWS"] * rows_of_weights * a["K"]
    return flops, size(a["words"]) + size(a["scales"]) + size(a["x"]) + size(a["out"])


@triton.jit
def group_products(words, scales, x, n, g, N: tl.constexpr, K: tl.constexpr):
    """Return the products of [rows, groups]: the sum over a group's 32 codes, times its scale.

    Beyond the end the last row and the last group are read again, without a scale.
    """
    near = tl.minimum(g, K // 32 - 1)
    place = tl.minimum(n, N - 1)[:, None].to(tl.int64) * (K // 32) + near[None, :]
    at = place[:, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    word = tl.load(words + at, eviction_policy="evict_first")
    # one scale a thread, in the thread that has the codes: wider, they would have to be handed round
    there = tl.broadcast_to((g < K // 32)[None, :], place.shape)
    scale = tl.load(scales + tl.max_contiguous(place, [1, 1]), mask=there, other=0.0)
    total = tl.zeros(word.shape, tl.float32)
    # each thread reads of x what its own words take, so that none waits for another
    eighth = (near[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]) * 8
    eighth = tl.broadcast_to(eighth, word.shape)
    for code in tl.static_range(8):
        value = tl.load(x + eighth + code, eviction_policy="evict_last")
        weight = (((word >> (4 * code)) & 15) | 0x4B000000).to(tl.float32, bitcast=True) - 8388615.0
        total += weight * value.to(tl.float32)
    return tl.sum(total, 2) * scale.to(tl.float32)


@triton.jit(launch_metadata=metadata_of(32, work))
def w4a16_gemv_kernel(
    x, words, scales, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    total = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    for start in range(part * BLOCK_G, K // 32, SPLIT * BLOCK_G):
        g = start + tl.arange(0, BLOCK_G)
        total += group_products(words, scales, x + row * K, n, g, N, K)
    put_product(
        tl.sum(total, 1), n, part, row, bias, out, stream, post, norm, normed, arrived, eps,
        N, ROWS, BIAS, SPLIT, NORM, POST,
    )  # fmt: skip


@triton.jit(launch_metadata=metadata_of(32, work))
def w4a16_gate_up_kernel(
    x, words, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    up = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    for start in range(0, K // 32, BLOCK_G):
        g = start + tl.arange(0, BLOCK_G)
        gate += group_products(words, scales, x + row * K, n, g, N, K)
        up += group_products(words + N * (K // 8), scales + N * (K // 32), x + row * K, n, g, N, K)
    product = activated(tl.sum(gate, 1), GELU) * tl.sum(up, 1)
    tl.store(out + row * N + n, product.to(out.dtype.element_ty), mask=n < N)


split_of: Final = TABLE.split_of


def launch(
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    finish: Finish | None = None,
    tile: Tile | None = None,
) -> None:
    """Put x [rows, k] times the packed [n, k/8] into out [rows, n], or into partial sums [split, rows, n].

    What is to be finished comes from `out` in fp32, which then holds nothing that anybody else needs.
    """
    rows, k, n = x.shape[0], x.shape[1], words.shape[0]
    tile = tile or TABLE.of(n)
    grid = product_grid(x, n, out, tile)
    w4a16_gemv_kernel[grid](
        x, words, scales, bias, out, **arguments_of(finish, n), N=n, K=k, ROWS=rows, BIAS=bias is not None,
        SPLIT=grid[1], BLOCK_N=tile.rows, BLOCK_G=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


def gate_up(
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    *,
    gelu: bool,
    tile: Tile | None = None,
) -> None:
    """Put x [rows, k] through the packed [2·n, k/8], gate above up, into out [rows, n]."""
    (rows, k), n = x.shape, out.shape[1]
    tile = tile or GATE_UP_TABLE.of(n)
    w4a16_gate_up_kernel[(rows * parts(n, tile.rows),)](
        x, words, scales, out, N=n, K=k, ROWS=rows, GELU=gelu,
        BLOCK_N=tile.rows, BLOCK_G=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


LIMITS: Final = {**QUIET, "per_weight": 6.0}
SHAPES: Final = (  # label, rows, columns, the dtype of scales, bias
    ("llama-3.2-1b o q4f16_1", 2048, 2048, "*fp16", False),
    ("llama-3.2-1b o q4f32_1", 2048, 2048, "*fp32", False),
    ("gemma-3-1b o q4f16_1", 1152, 1024, "*fp16", False),
    ("gemma-3-1b lm_head q4f16_1", 262144, 1152, "*fp16", False),
    ("qwen2.5-0.5b qkv q4f16_1", 1152, 896, "*fp16", True),
    ("smollm2-135m o q4f16_1", 576, 576, "*fp16", False),
)
GATE_UP_SHAPES: Final = (
    ("llama-3.2-1b gate_up q4f16_1", 8192, 2048, "*fp16"),
    ("llama-3.2-1b gate_up q4f32_1", 8192, 2048, "*fp32"),
    ("smollm2-135m gate_up q4f16_1", 1536, 576, "*fp16"),
)


def cases() -> Iterator[Case]:
    for label, n, k, dtype, bias in SHAPES:
        tile = TABLE.of(n)
        shape = {"N": n, "K": k, "BIAS": bias, "SPLIT": tile.split}
        shape |= finish_constants(n, finished=" o " in label)
        yield _case(label, w4a16_gemv_kernel, tile, dtype, shape, 1)
    for label, n, k, dtype in GATE_UP_SHAPES:
        tile = GATE_UP_TABLE.of(n)
        yield _case(label, w4a16_gate_up_kernel, tile, dtype, {"N": n, "K": k, "GELU": False}, 2)


def _case(label: str, kernel: Any, tile: Tile, dtype: str, shape: dict[str, Any], wide: int) -> Case:
    """The stream is fp32 where weights are packed."""
    types = dict.fromkeys(("x", "bias", "out", "normed"), "*fp32") | FINISH_TYPES
    types |= {"words": "*i32", "scales": dtype}
    blocks = {"ROWS": 1, "BLOCK_N": tile.rows, "BLOCK_G": tile.columns}
    matrices = 2 if "GELU" in shape else 1
    weights = matrices * tile.rows * tile.columns * GROUP // (32 * tile.warps)
    constants = {**shape, **blocks}
    return Case(label, kernel, types, constants, tile.warps, wide, limits=LIMITS, weights=weights)
