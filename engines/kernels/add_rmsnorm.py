"""Norm of a product, its addition to the residual stream, and the next norm, in one pass over a row.

With `post`: stream + norm(x)·post, as in Gemma; without: stream + x. Norm weights include their offset. `x`
may be the partial sums of a split product, which are added first.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn import functional

from engines.kernels.launch_support import (
    CompileCase,
    Work,
    count_bytes,
    is_last_to_arrive,
    make_metadata,
    pad_to_power_of_2,
)


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    stream: torch.Tensor | None = None,
    post: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normed row and the new stream, both in fp32."""
    wide = x.float()
    if post is not None:
        wide = functional.rms_norm(wide, post.shape, post.float(), eps)
    if stream is not None:
        wide = wide + stream.float()
    return functional.rms_norm(wide, weight.shape, weight.float(), eps), wide


def _compute_work(a: Mapping[str, Any]) -> Work:
    norms = 2 if a["POST"] else 1
    flops = a["out"].shape[0] * a["WIDTH"] * (4 * norms + a["PARTS"])
    return flops, count_bytes(a, "x", "out", "stream", "stream") + norms * count_bytes(a, "weight")


@triton.jit
def norm_row(
    x, stream, post, weight, out, row, rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, ADD: tl.constexpr, POST: tl.constexpr,
):  # fmt: skip
    """Write one normed row to `out`, and the sum to `stream`."""
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        place = x + (part * rows + row) * WIDTH + at
        value += tl.load(place, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    if POST:
        scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
        value = value * scale * tl.load(post + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        place = stream + row * WIDTH + at
        value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        tl.store(place, value.to(stream.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    normed = value * scale * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def add_rmsnorm_kernel(
    x, stream, post, weight, out, rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, ADD: tl.constexpr, POST: tl.constexpr,
):  # fmt: skip
    """Norm one row per program."""
    norm_row(x, stream, post, weight, out, tl.program_id(0), rows, eps, WIDTH, BLOCK, PARTS, ADD, POST)


@triton.jit
def finish_row(
    product, stream, post, norm, normed, arrived, row, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, POST: tl.constexpr,
):  # fmt: skip
    """Norm a row at the end of its product: the program that completes the row does it."""
    if is_last_to_arrive(arrived + row, tl.num_programs(0) // ROWS * PARTS):
        norm_row(product, stream, post, norm, normed, row, ROWS, eps, WIDTH, BLOCK, PARTS, True, POST)


@triton.jit
def store_product(
    product, n, part, row, bias, out, stream, post, norm, normed, arrived, eps,
    N: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, PARTS: tl.constexpr, NORM: tl.constexpr,
    POST: tl.constexpr,
):  # fmt: skip
    """Store a part of the columns `n` of a row; the program that completes the row also norms it."""
    if BIAS:
        product += tl.load(bias + n, mask=n < tl.where(part == 0, N, 0), other=0.0).to(tl.float32)
    tl.store(out + (part * ROWS + row) * N + n, product.to(out.dtype.element_ty), mask=n < N)
    if NORM > 0:
        finish_row(out, stream, post, norm, normed, arrived, row, eps, N, NORM, ROWS, PARTS, POST)


class ProductFinish(NamedTuple):
    """What follows a product as soon as its rows are complete: add to the stream, then norm."""

    stream: torch.Tensor  # is added to
    weight: torch.Tensor  # of the norm behind that
    out: torch.Tensor  # the normed rows
    arrived: torch.Tensor  # zeros, one a row: how many programs are done with it
    eps: float
    post: torch.Tensor | None = None  # weight of a norm of the product itself


def build_finish_arguments(finish: ProductFinish | None, width: int) -> dict[str, Any]:
    """Build a product kernel's arguments for `finish`; None leaves the product as it is."""
    if finish is None:
        none = dict.fromkeys(("stream", "post", "norm", "normed", "arrived"))
        return {**none, "eps": 0.0, "NORM": 0, "POST": False}
    return {
        "stream": finish.stream, "post": finish.post, "norm": finish.weight, "normed": finish.out,
        "arrived": finish.arrived, "eps": finish.eps, "NORM": pad_to_power_of_2(width),
        "POST": finish.post is not None,
    }  # fmt: skip


def build_finish_constants(width: int, *, finished: bool) -> dict[str, Any]:
    """Build the constants of a case whose product is finished, or left as it is."""
    return {"NORM": pad_to_power_of_2(width) if finished else 0, "POST": finished}


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    *,
    stream: torch.Tensor | None = None,
    post: torch.Tensor | None = None,
) -> None:
    """Write the normed rows to `out`, the sum to `stream`; x is [rows, width] or partial sums of it."""
    rows, width = out.shape
    add_rmsnorm_kernel[(rows,)](
        x, stream, post, weight, out, rows, eps,
        WIDTH=width, BLOCK=pad_to_power_of_2(width), PARTS=x.numel() // out.numel(),
        ADD=stream is not None, POST=post is not None, num_warps=_choose_warps(width),
    )  # fmt: skip


def _choose_warps(width: int) -> int:
    return 4 if width <= 2048 else 8


def cases() -> Iterator[CompileCase]:
    for label, width, parts, post in (
        ("plain", 1152, 1, False), ("gemma-3-1b", 1152, 1, True), ("gemma-3-1b split", 1152, 4, True),
        ("llama-3.2-1b", 2048, 1, False), ("wide", 4096, 1, False),
    ):  # fmt: skip
        add = label != "plain"
        types = {"x": "*fp32" if parts > 1 else "*bf16", "weight": "*fp32"}
        constants = {
            "WIDTH": width,
            "BLOCK": pad_to_power_of_2(width),
            "PARTS": parts,
            "ADD": add,
            "POST": post,
        }
        yield CompileCase(label, add_rmsnorm_kernel, constants, _choose_warps(width), types, wide=1)
