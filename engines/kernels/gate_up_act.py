"""Gate and up in one pass over the row, and the activation: act(x·gate) · (x·up).

The matrices are stacked, gate above up: [2·ffn, hidden].
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch.nn import functional

from engines.kernels.gemv import multiply_columns
from engines.kernels.gemv_template import build_case, launch_gate_up, multiply_gate_up
from engines.kernels.launch_support import CompileCase, Tile, TileTable, Work, count_bytes, make_metadata

TABLE: Final = TileTable(
    (  # width of the feed-forward up to
        (4096, Tile(4, 512, 4)),
        (1 << 31, Tile(8, 512, 8)),
    )
)


def reference(x: torch.Tensor, weight: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    """Return act(x·gate) · (x·up) in fp32 for x [rows, k] and weight [2·n, k]."""
    gate, up = (x.float() @ weight.float().T).chunk(2, -1)
    return (functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate)) * up


def _compute_work(a: Mapping[str, Any]) -> Work:
    return a["ROWS"] * a["N"] * (4 * a["K"] + 8), count_bytes(a, "weight", "x", "out")


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def gate_up_act_kernel(
    x, weight, scales, out,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Multiply with plain gate and up matrices."""
    multiply_gate_up(
        multiply_columns, x, weight, scales, weight + N * K, scales, out,
        K, N, K, ROWS, GELU, BLOCK_N, BLOCK_C,
    )  # fmt: skip


launch: Final = partial(launch_gate_up, gate_up_act_kernel, TABLE)

SHAPES: Final = (  # label, rows of one matrix, columns, gelu
    ("gemma-3-1b", 6912, 1152, True),
    ("llama-3.2-1b", 8192, 2048, False),
    ("smollm2-135m", 1536, 576, False),
)


def cases() -> Iterator[CompileCase]:
    for label, n, k, gelu in SHAPES:
        yield build_case(label, gate_up_act_kernel, TABLE.select(n), n, k, {}, GELU=gelu)
