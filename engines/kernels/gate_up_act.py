"""Gate and up in one pass over the row, and the activation: act(x·gate) · (x·up).

The matrices are stacked, gate above up: [2·ffn, hidden].
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch.nn import functional

from engines.kernels.launch import QUIET, Case, Tile, Tiles, Work, metadata_of, parts, size

TABLE: Final = Tiles(
    (  # width of the feed-forward up to
        (4096, Tile(4, 512, 4)),
        (1 << 31, Tile(8, 512, 8)),
    )
)


def activation(gate: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    """Return SiLU, or GELU by its tanh, in plain torch."""
    return functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate)


def reference(x: torch.Tensor, weight: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    """Return act(x·gate) · (x·up) in fp32 for x [rows, k] and weight [2·n, k]."""
    gate, up = (x.float() @ weight.float().T).chunk(2, -1)
    return activation(gate, gelu=gelu) * up


def work(a: Mapping[str, Any]) -> Work:
    flops = a["ROWS"] * a["N"] * (4 * a["K"] + 8)
    return flops, size(a["weight"]) + size(a["x"]) + size(a["out"])


@triton.jit
def activated(gate, GELU: tl.constexpr):
    """Return SiLU, or GELU with tanh(t) = 2·sigmoid(2t) - 1, which needs no device library."""
    slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate
    return gate * tl.sigmoid(slope)


@triton.jit(launch_metadata=metadata_of(32, work))
def gate_up_act_kernel(
    x, weight, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) % ROWS
    n = tl.program_id(0) // ROWS * BLOCK_N + tl.arange(0, BLOCK_N)
    gates = weight + n[:, None].to(tl.int64) * K
    ups = weight + (n[:, None] + N).to(tl.int64) * K
    gate = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    up = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mine = (n < N)[:, None] & (k < K)[None, :]
        near = tl.broadcast_to(k[None, :], [BLOCK_N, BLOCK_K])
        value = tl.load(x + row * K + near, mask=near < K, other=0.0, eviction_policy="evict_last")
        wide = value.to(tl.float32)
        g = tl.load(gates + k[None, :], mask=mine, other=0.0, eviction_policy="evict_first")
        u = tl.load(ups + k[None, :], mask=mine, other=0.0, eviction_policy="evict_first")
        gate += g.to(tl.float32) * wide
        up += u.to(tl.float32) * wide
    product = activated(tl.sum(gate, 1), GELU) * tl.sum(up, 1)
    tl.store(out + row * N + n, product.to(out.dtype.element_ty), mask=n < N)


def launch(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, gelu: bool, tile: Tile | None = None
) -> None:
    """Put x [rows, k] through weight [2·n, k] into out [rows, n]."""
    rows, n = out.shape
    tile = tile or TABLE.of(n)
    gate_up_act_kernel[(rows * parts(n, tile.rows),)](
        x, weight, out, N=n, K=weight.shape[1], ROWS=rows, GELU=gelu,
        BLOCK_N=tile.rows, BLOCK_K=tile.columns, num_warps=tile.warps,
    )  # fmt: skip


SHAPES: Final = (
    ("gemma-3-1b", 6912, 1152, True),
    ("llama-3.2-1b", 8192, 2048, False),
    ("smollm2-135m", 1536, 576, False),
)


def cases() -> Iterator[Case]:
    for label, n, k, gelu in SHAPES:
        tile = TABLE.of(n)
        yield Case(
            label, gate_up_act_kernel, {"x": "*bf16", "weight": "*bf16", "out": "*bf16"},
            {"N": n, "K": k, "ROWS": 1, "GELU": gelu, "BLOCK_N": tile.rows, "BLOCK_K": tile.columns},
            tile.warps, wide=2, limits=QUIET,
        )  # fmt: skip
