"""Start of a step: the position advances by one, and the row of the last token becomes the stream.

Token and position are read from the device and the position is written back, so that a captured graph
advances by itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.launch_support import (
    CompileCase,
    Work,
    count_bytes,
    make_metadata,
    pad_to_power_of_2,
)

MAX_BLOCK_COLUMNS: Final = 1024  # columns of a program


def reference(
    table: torch.Tensor, token: torch.Tensor, position: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the stream [batch, width] in fp32, and the positions of the step."""
    return table[token].float() * scale, position + 1


def _compute_work(a: Mapping[str, Any]) -> Work:
    numbers = a["token"].shape[0] * a["WIDTH"]
    return numbers, numbers * a["table"].element_size() + count_bytes(a, "stream")


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def embed_kernel(table, token, position, stream, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Copy one block of columns of one row; the first block advances the position."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    line = tl.load(token + row).to(tl.int64) * WIDTH
    value = tl.load(table + line + at, mask=at < WIDTH, other=0.0).to(tl.float32) * scale
    tl.store(stream + row * WIDTH + at, value.to(stream.dtype.element_ty), mask=at < WIDTH)
    if part == 0:
        tl.store(position + row, tl.load(position + row) + 1)


def launch(
    table: torch.Tensor, token: torch.Tensor, position: torch.Tensor, stream: torch.Tensor, scale: float
) -> None:
    """Copy rows of table [vocab, width] for token [batch] to stream [batch, width]; advance the position."""
    batch, width = stream.shape
    block = min(MAX_BLOCK_COLUMNS, pad_to_power_of_2(width))
    embed_kernel[(batch, -(-width // block))](
        table, token, position, stream, scale, WIDTH=width, BLOCK=block, num_warps=4
    )


def cases() -> Iterator[CompileCase]:
    for label, width in (("gemma-3-1b", 1152), ("llama-3.2-1b", 2048), ("smollm2-135m", 576)):
        block = min(MAX_BLOCK_COLUMNS, pad_to_power_of_2(width))
        yield CompileCase(label, embed_kernel, {"WIDTH": width, "BLOCK": block}, 4)
