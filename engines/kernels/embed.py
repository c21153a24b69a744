"""A step's beginning: the position moves on by one, and the row of the last token becomes the stream.

Token and position are read from the device and the position is written back, so that a captured graph
goes on by itself from replay to replay.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl

from engines.kernels.launch import Case, Work, metadata_of, power_of_two, size

MOST: Final = 1024  # columns of a program


def reference(
    table: torch.Tensor, token: torch.Tensor, position: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the stream [batch, width] in fp32, and the positions that the step is at."""
    return table[token].float() * scale, position + 1


def work(a: Mapping[str, Any]) -> Work:
    rows = a["token"].shape[0]
    return rows * a["WIDTH"], rows * a["WIDTH"] * a["table"].element_size() + size(a["stream"])


@triton.jit(launch_metadata=metadata_of(32, work))
def embed_kernel(table, token, position, stream, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
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
    """Put rows of table [vocab, width] for token [batch] into stream [batch, width]; advance the position."""
    batch, width = stream.shape
    block = min(MOST, power_of_two(width))
    embed_kernel[(batch, -(-width // block))](
        table, token, position, stream, scale, WIDTH=width, BLOCK=block, num_warps=4
    )


def cases() -> Iterator[Case]:
    for label, width in (("gemma-3-1b", 1152), ("llama-3.2-1b", 2048), ("smollm2-135m", 576)):
        yield Case(
            label, embed_kernel,
            {"table": "*bf16", "token": "*i64", "position": "*i32", "stream": "*fp32", "scale": "fp32"},
            {"WIDTH": width, "BLOCK": min(MOST, power_of_two(width))},
            4,
        )  # fmt: skip
