"""A row times a matrix of bytes with a scale for each group of 32, as q8_0 stores it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.gate_up_act import activation
from engines.kernels.launch import Case, Tile, Tiles, Work, metadata_of, product_grid, size

GROUP: Final = 32
TABLE: Final = Tiles(
    (  # rows of the matrix up to
        (1024, Tile(8, 512, 4, split=8)),
        (4096, Tile(8, 512, 4, split=4)),
        (1 << 31, Tile(8, 512, 4)),
    )
)


def reference(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    grouped = codes.float().view(codes.shape[0], -1, GROUP) * scales.float()[..., None]
    return x.float() @ grouped.flatten(1).T


def work(a: Mapping[str, Any]) -> Work:
    flops = 2 * a["ROWS"] * a["N"] * a["K"]
    return flops, size(a["codes"]) + size(a["scales"]) + size(a["x"]) + size(a["out"])


@triton.jit(launch_metadata=metadata_of(32, work))
def int8_gemv_kernel(
    x, codes, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    line = codes + n[:, None].to(tl.int64) * K
    steps = scales + n[:, None].to(tl.int64) * (K // 32)
    total = tl.zeros([BLOCK_N, BLOCK_K // 32], tl.float32)
    for start in range(part * BLOCK_K, K, SPLIT * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        g = start // 32 + tl.arange(0, BLOCK_K // 32)
        mine = (n < N)[:, None] & (k < K)[None, :]
        code = tl.load(line + k[None, :], mask=mine, other=0, eviction_policy="evict_first")
        value = tl.load(x + row * K + k, mask=k < K, other=0.0, eviction_policy="evict_last")
        inside = (n < N)[:, None] & (g < K // 32)[None, :]
        scale = tl.load(steps + g[None, :], mask=inside, other=0.0)
        product = code.to(tl.float32) * value.to(tl.float32)[None, :]
        grouped = tl.reshape(product, [BLOCK_N, BLOCK_K // 32, 32])
        total += tl.sum(grouped, 2) * scale.to(tl.float32)
    product = tl.sum(total, 1)
    tl.store(out + (part * ROWS + row) * N + n, product.to(out.dtype.element_ty), mask=n < N)


split_of: Final = TABLE.split_of


def launch(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, tile: Tile | None = None
) -> None:
    """Put x [rows, k] times codes [n, k] into out [rows, n], or into partial sums [split, rows, n]."""
    (n, k), rows = codes.shape, x.shape[0]
    tile = tile or TABLE.of(n)
    grid = product_grid(x, n, out, tile)
    int8_gemv_kernel[grid](
        x, codes, scales, out, N=n, K=k, ROWS=rows, SPLIT=grid[1],
        BLOCK_N=tile.rows, BLOCK_K=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


def gate_up(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, *, gelu: bool
) -> None:
    """Put x [rows, k] through codes [2·n, k], gate above up, into out [rows, n]: one product, then torch."""
    both = x.new_empty(len(x), len(codes))
    launch(x, codes, scales, both)
    gate, up = both.chunk(2, -1)
    torch.mul(activation(gate, gelu=gelu), up, out=out)


SHAPES: Final = (
    ("llama-3.2-1b o", 2048, 2048),
    ("llama-3.2-1b gate_up", 16384, 2048),
    ("gemma-3-1b lm_head", 262144, 1152),
    ("smollm2-135m o", 576, 576),
)


def cases() -> Iterator[Case]:
    for label, n, k in SHAPES:
        tile = TABLE.of(n)
        out = "*fp32" if tile.split > 1 else "*fp16"
        yield Case(
            label, int8_gemv_kernel, {"x": "*fp16", "codes": "*i8", "scales": "*fp16", "out": out},
            {"N": n, "K": k, "ROWS": 1, "SPLIT": tile.split, "BLOCK_N": tile.rows, "BLOCK_K": tile.columns},
            tile.warps, wide=1,
        )  # fmt: skip
