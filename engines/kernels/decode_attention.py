"""Attention of one new position over the cache: programs share the keys, the last one merges their results.

The query heads that share a key head are the rows of one small product, padded to 16. A program whose share
of the keys is empty contributes a weight of zero. The position is read from the device. A cache is a ring of
`room` slots; a window may be smaller than the ring only until the ring wraps around.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from engines.kernels.launch_support import (
    STAGES,
    CompileCase,
    Work,
    count_bytes,
    has_dots,
    has_dots_on_target,
    is_last_to_arrive,
    make_metadata,
    pad_to_power_of_2,
)

MIN_DOT_ROWS: Final = 16  # the least that a tensor core multiplies
MERGE_COLUMNS: Final = 32  # columns of a head that are merged at once


class LaunchShape(NamedTuple):
    """Tiling of one launch: keys per tile, and warps."""

    keys: int
    warps: int
    uses_dots: bool = True  # whether tensor cores multiply


# by head_dim, up to
TABLE: Final = {64: LaunchShape(64, 4), 256: LaunchShape(32, 4)}
FP32_TABLE: Final = {64: LaunchShape(32, 4), 80: LaunchShape(32, 8), 256: LaunchShape(16, 8)}
WITHOUT_DOTS: Final = LaunchShape(8, 8, uses_dots=False)
SPLITS: Final = ((512, 8), (2048, 16), (8192, 32), (1 << 31, 64))  # room up to: programs per key head


def reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    scale: float,
    window: int = 0,
) -> torch.Tensor:
    """Compute attention in fp32: q [batch, heads, head_dim], caches [batch, kv_heads, room, head_dim]."""
    group, room = q.shape[1] // keys.shape[1], keys.shape[2]
    mixed_rows = []
    for sequence, at in enumerate(position.tolist()):
        end = min(at + 1, room)
        span = slice(max(0, end - window) if window else 0, end)
        k, v = (c[sequence, :, span].float().repeat_interleave(group, 0) for c in (keys, values))
        chances = (q[sequence, :, None].float() @ k.mT * scale).softmax(-1)
        mixed_rows.append((chances @ v)[:, 0])
    return torch.stack(mixed_rows)


def _compute_work(a: Mapping[str, Any]) -> Work:
    """Return an upper bound, for a full room or window: only the device knows the position."""
    batch, heads, dim = a["q"].shape
    count = min(a["WINDOW"] or a["ROOM"], a["ROOM"])
    moved = 2 * batch * a["KV_HEADS"] * count * dim * a["keys"].element_size()
    return 4 * batch * heads * count * dim, moved + count_bytes(a, "q", "partial", "partial", "out")


@triton.jit
def merge_head(
    partial, peak, mass, out, head,
    DIM: tl.constexpr, PADDED: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merge the partial results of one query head."""
    line = head * SPLIT + tl.arange(0, SPLIT)
    best = tl.load(peak + line, cache_modifier=".cg")
    weight = tl.exp2(best - tl.max(best, 0))
    total = tl.sum(tl.load(mass + line, cache_modifier=".cg") * weight, 0)
    for chunk in range(0, PADDED, BLOCK):
        d = chunk + tl.arange(0, BLOCK)
        place = partial + line[:, None] * DIM + d[None, :]
        mixed = tl.load(place, mask=(d < DIM)[None, :], other=0.0, cache_modifier=".cg")
        merged = tl.sum(mixed * weight[:, None], 0) / total
        tl.store(out + head * DIM + d, merged.to(out.dtype.element_ty), mask=d < DIM)


@triton.jit
def compute_scores(query, key, scale, DOT: tl.constexpr):
    """Multiply queries with keys, on tensor cores if possible."""
    if DOT:
        score = tl.dot(query, tl.trans(key), input_precision="ieee")
    else:
        score = tl.sum(query.to(tl.float32)[:, None, :] * key.to(tl.float32)[None, :, :], 2)
    return score * scale


@triton.jit
def mix_values(chance, value, DOT: tl.constexpr):
    """Multiply probabilities with values, on tensor cores if possible."""
    if DOT:
        mixed = tl.dot(chance.to(value.dtype), value, input_precision="ieee")
    else:
        mixed = tl.sum(chance[:, :, None] * value.to(tl.float32)[None, :, :], 1)
    return mixed


@triton.jit
def compute_span(
    at, part, ROOM: tl.constexpr, WINDOW: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the first and the last key of a program, for a token at this position."""
    end = tl.minimum(at + 1, ROOM)
    begin = tl.maximum(0, end - WINDOW) if WINDOW > 0 else 0
    share = tl.cdiv(tl.cdiv(end - begin, SPLIT), BLOCK) * BLOCK
    first = begin + part * share
    return first, tl.minimum(end, first + share)


@triton.jit(launch_metadata=make_metadata(16, _compute_work))
def decode_attention_kernel(
    q, keys, values, position, out, partial, peak, mass, arrived, scale,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    ROOM: tl.constexpr, SPAN: tl.constexpr, WINDOW: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, DOT: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """Attend to one share of the keys of one key head; the last program merges all shares."""
    pair = tl.program_id(0)  # a sequence and one of its key heads
    part = tl.program_id(1)
    first, last = compute_span(tl.load(position + pair // KV_HEADS), part, ROOM, WINDOW, SPLIT, BLOCK)
    row = tl.arange(0, ROWS)
    d = tl.arange(0, PADDED)
    mine = (row < GROUP)[:, None] & (d < DIM)[None, :]
    query = tl.load(q + (pair * GROUP + row)[:, None] * DIM + d[None, :], mask=mine, other=0.0)
    query = query.to(keys.dtype.element_ty)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, PADDED], tl.float32)
    base = (pair // KV_HEADS).to(tl.int64) * SPAN + pair % KV_HEADS * ROOM * DIM
    for start in range(first, last, BLOCK):
        slot = start + tl.arange(0, BLOCK)
        inside = (slot < last)[:, None] & (d < DIM)[None, :]
        place = base + slot[:, None] * DIM + d[None, :]
        key = tl.load(keys + place, mask=inside, other=0.0)
        score = tl.where((slot < last)[None, :], compute_scores(query, key, scale, DOT), float("-inf"))
        top = tl.maximum(best, tl.max(score, 1))
        chance = tl.exp2(score - top[:, None])
        shrink = tl.exp2(best - top)
        value = tl.load(values + place, mask=inside, other=0.0)
        mixed = mixed * shrink[:, None] + mix_values(chance, value, DOT)
        total = total * shrink + tl.sum(chance, 1)
        best = top
    target = (pair * GROUP + row) * SPLIT + part
    tl.store(partial + target[:, None] * DIM + d[None, :], mixed, mask=mine)
    tl.store(peak + target, best, mask=row < GROUP)
    tl.store(mass + target, total, mask=row < GROUP)
    if is_last_to_arrive(arrived + pair, SPLIT):
        for head in range(pair * GROUP, (pair + 1) * GROUP):
            merge_head(partial, peak, mass, out, head, DIM, PADDED, SPLIT, MERGED)


LOG2E: Final = 1.4426950408889634


class AttentionScratch(NamedTuple):
    """Partial results of a launch until they are merged, and counters of arrived programs."""

    partial: torch.Tensor  # [batch · heads, split, head_dim]
    peak: torch.Tensor
    mass: torch.Tensor
    arrived: torch.Tensor


def allocate_scratch(q: torch.Tensor, room: int, split: int = 0) -> AttentionScratch:
    """Allocate the partial results for q [batch, heads, head_dim] over a cache."""
    batch, heads, dim = q.shape
    count = split or choose_split(room)
    partial = torch.empty(batch * heads, count, dim, dtype=torch.float32, device=q.device)
    arrived = torch.zeros(batch * heads, dtype=torch.int32, device=q.device)
    peak, mass = (torch.empty_like(partial[..., 0]) for _ in range(2))
    return AttentionScratch(partial, peak, mass, arrived)


def choose_split(room: int) -> int:
    """Return the number of programs that share the keys of a cache."""
    return next(count for most, count in SPLITS if room <= most)


def launch(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    out: torch.Tensor,
    between: AttentionScratch,
    scale: float,
    window: int = 0,
) -> None:
    """Write attention of q [batch, heads, head_dim] over the caches, or slices of one tensor, to `out`."""
    batch, heads, dim = q.shape
    kv_heads, room = keys.shape[1:3]
    split, shape = between.partial.shape[1], choose_shape(dim, keys.dtype, q.device)
    decode_attention_kernel[(batch * kv_heads, split)](
        q, keys, values, position, out, *between, scale * LOG2E, SPAN=keys.stride(0), SPLIT=split,
        **_build_constants(shape, heads // kv_heads, kv_heads, dim, room, window),
        num_warps=shape.warps, num_stages=STAGES,
    )  # fmt: skip


def _build_constants(
    shape: LaunchShape, group: int, kv_heads: int, dim: int, room: int, window: int
) -> dict[str, Any]:
    padded = pad_to_power_of_2(dim)
    return {
        "GROUP": group, "KV_HEADS": kv_heads, "DIM": dim, "PADDED": padded, "ROOM": room, "WINDOW": window,
        "BLOCK": shape.keys, "DOT": shape.uses_dots, "MERGED": min(MERGE_COLUMNS, padded),
        "ROWS": max(MIN_DOT_ROWS if shape.uses_dots else 1, pad_to_power_of_2(group)),
    }  # fmt: skip


def choose_shape(dim: int, dtype: torch.dtype, device: torch.device) -> LaunchShape:
    """Choose the tiling for keys of this width and dtype on a device."""
    if not has_dots(device):
        return WITHOUT_DOTS
    table = FP32_TABLE if dtype == torch.float32 else TABLE
    return next(shape for most, shape in table.items() if dim <= most)


# label, query heads of a key head, key heads, head_dim, room, window
SHAPES: Final[tuple[tuple[str, int, int, int, int, int], ...]] = (
    ("gemma-3-1b full", 4, 1, 256, 4096, 0), ("gemma-3-1b window", 4, 1, 256, 512, 512),
    ("llama-3.2-1b", 4, 8, 64, 4096, 0), ("qwen2.5-0.5b", 7, 2, 64, 4096, 0),
    ("qwen3-0.6b", 2, 8, 128, 4096, 0), ("head_dim 80", 1, 32, 80, 1024, 0),
)  # fmt: skip


def cases() -> Iterator[CompileCase]:
    for dtype, pointer in ((torch.bfloat16, "*bf16"), (torch.float32, "*fp32")):
        types = dict.fromkeys(("q", "keys", "values", "out"), pointer)
        for label, *sizes in SHAPES:
            _, kv_heads, dim, room, _ = sizes
            more = {"SPAN": 2 * kv_heads * room * dim, "SPLIT": choose_split(room)}
            for shape, fits in (
                (choose_shape(dim, dtype, torch.device("cpu")), has_dots_on_target),
                (WITHOUT_DOTS, lambda target: not has_dots_on_target(target)),
            ):
                yield CompileCase(
                    f"{label} {pointer[1:]}", decode_attention_kernel,
                    {**_build_constants(shape, *sizes), **more}, shape.warps, types,
                    wide=2 if shape.uses_dots else 0, fits=fits,
                )  # fmt: skip
