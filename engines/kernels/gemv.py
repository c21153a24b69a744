"""A row times a matrix, for qkv, o, down and the head: limited by memory bandwidth.

If a matrix has few rows, each row is split among programs. Their partial sums are added by add_rmsnorm, or by
`merge`, in a fixed order.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.gemv_template import (
    build_product_case,
    compute_product_work,
    launch_product,
    multiply_row,
)
from engines.kernels.launch_support import (
    CompileCase,
    Tile,
    TileTable,
    Work,
    count_bytes,
    divide_up,
    make_metadata,
)

TABLE: Final = TileTable(
    (  # rows of the matrix up to
        (1024, Tile(4, 512, 4, split=4)),
        (4096, Tile(4, 512, 4, split=2)),
        (32768, Tile(8, 512, 4)),
        (1 << 31, Tile(16, 512, 8)),
    )
)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    product = x.float() @ weight.float().T
    return product if bias is None else product + bias.float()


@triton.jit
def multiply_columns(weight, scales, x, n, k, N: tl.constexpr, K: tl.constexpr):
    """Return the products of [rows, columns] of a plain matrix."""
    inside = (n < N)[:, None] & (k < K)[None, :]
    line = weight + n[:, None].to(tl.int64) * K
    w = tl.load(line + k[None, :], mask=inside, other=0.0, eviction_policy="evict_first")
    # each thread loads the x that its own weights need: exchanging it would cost a wait per turn
    columns = tl.broadcast_to(k[None, :], w.shape)
    value = tl.load(x + columns, mask=columns < K, other=0.0, eviction_policy="evict_last")
    return w.to(tl.float32) * value.to(tl.float32)


@triton.jit(launch_metadata=make_metadata(32, compute_product_work))
def gemv_kernel(
    x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with a plain matrix."""
    multiply_row(
        multiply_columns, x, weight, scales, bias, out, stream, post, norm, normed, arrived, eps,
        K, N, K, ROWS, BIAS, SPLIT, NORM, POST, BLOCK_N, BLOCK_C,
    )  # fmt: skip


launch: Final = partial(launch_product, gemv_kernel, TABLE)
choose_split: Final = TABLE.choose_split


def _compute_merge_work(a: Mapping[str, Any]) -> Work:
    return a["partial"].numel(), count_bytes(a, "partial", "out")


@triton.jit(launch_metadata=make_metadata(32, _compute_merge_work))
def merge_kernel(partial, out, COUNT: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """Add partial sums."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(partial + part * COUNT + at, mask=at < COUNT, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < COUNT)


def merge(partial: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of partial sums [split, …] to `out`."""
    merge_kernel[(divide_up(out.numel(), 1024),)](
        partial, out, COUNT=out.numel(), SPLIT=partial.shape[0], BLOCK=1024, num_warps=4
    )


SHAPES: Final = (  # label, rows, columns, bias, whether the rows are normed at the end
    ("gemma-3-1b qkv", 1536, 1152, False, False), ("gemma-3-1b o", 1152, 1024, False, True),
    ("gemma-3-1b down", 1152, 6912, False, True), ("gemma-3-1b lm_head", 262144, 1152, False, False),
    ("qwen2.5-0.5b qkv", 1152, 896, True, False), ("llama-3.2-1b down", 2048, 8192, False, True),
    ("smollm2-135m down", 576, 1536, False, True),
)  # fmt: skip


def cases() -> Iterator[CompileCase]:
    for label, n, k, bias, finished in SHAPES:
        tile = TABLE.select(n)
        types = {"out": "*fp32" if tile.split > 1 else "*bf16"}
        yield build_product_case(label, gemv_kernel, tile, n, k, types, bias=bias, finished=finished)
    yield CompileCase("merge", merge_kernel, {"COUNT": 1152, "SPLIT": 4, "BLOCK": 1024}, 4, wide=1)
