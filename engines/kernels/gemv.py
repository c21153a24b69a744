"""A row times a matrix, as qkv, o, down and the head need it: memory's speed is the only goal.

Programs of several rows of one matrix block stand beside each other, so that the block is read from
memory once. Where a matrix has few rows, each is split among programs; their partial sums are added by
whoever reads them (add_rmsnorm does) or by `merge`, in a fixed order.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.add_rmsnorm import FINISH_TYPES, Finish, arguments_of, finish_constants, put_product
from engines.kernels.launch import QUIET, Case, Tile, Tiles, Work, metadata_of, parts, product_grid, size

TABLE: Final = Tiles(
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


def work(a: Mapping[str, Any]) -> Work:
    flops = 2 * a["ROWS"] * a["N"] * a["K"]
    return flops, size(a["weight"]) + size(a["x"]) + size(a["out"]) + size(a["bias"])


@triton.jit(launch_metadata=metadata_of(32, work))
def gemv_kernel(
    x, weight, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    NORM: tl.constexpr, POST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    line = weight + n[:, None].to(tl.int64) * K
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in range(part * BLOCK_K, K, SPLIT * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mine = (n < N)[:, None] & (k < K)[None, :]
        w = tl.load(line + k[None, :], mask=mine, other=0.0, eviction_policy="evict_first")
        # each thread reads of x what its weights take: handed round, it would cost a wait in every turn
        near = tl.broadcast_to(k[None, :], [BLOCK_N, BLOCK_K])
        value = tl.load(x + row * K + near, mask=near < K, other=0.0, eviction_policy="evict_last")
        total += w.to(tl.float32) * value.to(tl.float32)
    put_product(
        tl.sum(total, 1), n, part, row, bias, out, stream, post, norm, normed, arrived, eps,
        N, ROWS, BIAS, SPLIT, NORM, POST,
    )  # fmt: skip


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    finish: Finish | None = None,
    tile: Tile | None = None,
) -> None:
    """Put x [rows, k] times weight [n, k] into out [rows, n], or into partial sums [split, rows, n].

    What is to be finished comes from `out` in fp32, which then holds nothing that anybody else needs.
    """
    (n, k), rows = weight.shape, x.shape[0]
    tile = tile or TABLE.of(n)
    grid = product_grid(x, n, out, tile)
    gemv_kernel[grid](
        x, weight, bias, out, **arguments_of(finish, n), N=n, K=k, ROWS=rows, BIAS=bias is not None,
        SPLIT=grid[1], BLOCK_N=tile.rows, BLOCK_K=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


split_of: Final = TABLE.split_of


def merge_work(a: Mapping[str, Any]) -> Work:
    return a["partial"].numel(), size(a["partial"]) + size(a["out"])


@triton.jit(launch_metadata=metadata_of(32, merge_work))
def merge_kernel(partial, out, COUNT: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(partial + part * COUNT + at, mask=at < COUNT, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < COUNT)


def merge(partial: torch.Tensor, out: torch.Tensor) -> None:
    """Put the sum of partial sums [split, …] into `out`."""
    merge_kernel[(parts(out.numel(), 1024),)](
        partial, out, COUNT=out.numel(), SPLIT=partial.shape[0], BLOCK=1024, num_warps=4
    )


SHAPES: Final = (  # label, rows, columns, bias, whether the rows are normed at the end
    ("gemma-3-1b qkv", 1536, 1152, False, False), ("gemma-3-1b o", 1152, 1024, False, True),
    ("gemma-3-1b down", 1152, 6912, False, True), ("gemma-3-1b lm_head", 262144, 1152, False, False),
    ("qwen2.5-0.5b qkv", 1152, 896, True, False), ("llama-3.2-1b down", 2048, 8192, False, True),
    ("smollm2-135m down", 576, 1536, False, True),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for label, n, k, bias, finished in SHAPES:
        tile = TABLE.of(n)
        out = "*fp32" if tile.split > 1 else "*bf16"
        types = {"x": "*bf16", "weight": "*bf16", "bias": "*fp32", "out": out, "normed": "*bf16"}
        yield Case(
            label, gemv_kernel, types | FINISH_TYPES,
            {"N": n, "K": k, "ROWS": 1, "BIAS": bias, "SPLIT": tile.split,
             "BLOCK_N": tile.rows, "BLOCK_K": tile.columns, **finish_constants(n, finished=finished)},
            tile.warps, wide=1, limits=QUIET,
        )  # fmt: skip
    yield Case(
        "merge", merge_kernel, {"partial": "*fp32", "out": "*bf16"},
        {"COUNT": 1152, "SPLIT": 4, "BLOCK": 1024}, 4, wide=1,
    )  # fmt: skip
