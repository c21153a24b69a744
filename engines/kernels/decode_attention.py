"""Attention of one new position over the cache: keys are split among programs, a merge adds them up.

The query heads that share a key head are the rows of one small product, padded to 16. A program whose
share of the keys is empty writes a weight of nothing. The position is read from the device. A cache is
a ring of `room` slots; a window is smaller than a ring only as long as the ring has not turned.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from engines.kernels.launch import POINTER, Case, Work, metadata_of, parts, power_of_two, size

ROWS: Final = 16  # the least that a tensor core multiplies
MERGED: Final = 64  # columns of a head that one program merges


class Shape(NamedTuple):
    """How one launch goes over the keys: keys at a time, warps, stages of loads in flight."""

    keys: int
    warps: int
    stages: int = 2


TABLE: Final = {64: Shape(64, 4), 80: Shape(32, 4), 128: Shape(32, 4), 256: Shape(32, 8)}  # by head_dim
WIDE_TABLE: Final = {64: Shape(32, 4), 80: Shape(32, 8), 128: Shape(32, 8), 256: Shape(16, 8)}  # fp32 caches
SPLITS: Final = ((512, 8), (2048, 16), (8192, 32), (1 << 31, 64))  # room up to: programs per key head


def reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    scale: float,
    window: int = 0,
) -> torch.Tensor:
    """Return attention in fp32 for q [batch, heads, head_dim], caches [batch, kv_heads, room, head_dim]."""
    group, room = q.shape[1] // keys.shape[1], keys.shape[2]
    mixed_rows = []
    for sequence, at in enumerate(position.tolist()):
        end = min(at + 1, room)
        span = slice(max(0, end - window) if window else 0, end)
        k, v = (c[sequence, :, span].float().repeat_interleave(group, 0) for c in (keys, values))
        chances = (q[sequence, :, None].float() @ k.mT * scale).softmax(-1)
        mixed_rows.append((chances @ v)[:, 0])
    return torch.stack(mixed_rows)


def work(a: Mapping[str, Any]) -> Work:
    """Return an upper bound, the cost of a full room or window: only the device knows the position."""
    batch, heads, dim = a["q"].shape
    count = min(a["WINDOW"] or a["ROOM"], a["ROOM"])
    moved = 2 * batch * a["KV_HEADS"] * count * dim * a["keys"].element_size()
    return 4 * batch * heads * count * dim, moved + size(a["q"]) + size(a["partial"])


@triton.jit(launch_metadata=metadata_of(16, work))
def decode_attention_kernel(
    q, keys, values, position, partial, peak, mass, scale,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    ROOM: tl.constexpr, SPAN: tl.constexpr, WINDOW: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0)  # a sequence and one of its key heads
    part = tl.program_id(1)
    end = tl.minimum(tl.load(position + pair // KV_HEADS) + 1, ROOM)
    begin = tl.maximum(0, end - WINDOW) if WINDOW > 0 else 0
    share = tl.cdiv(tl.cdiv(end - begin, SPLIT), BLOCK) * BLOCK
    first = begin + part * share
    last = tl.minimum(end, first + share)
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
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        score = tl.where((slot < last)[None, :], score, float("-inf"))
        top = tl.maximum(best, tl.max(score, 1))
        chance = tl.exp2(score - top[:, None])
        kept = tl.exp2(best - top)
        value = tl.load(values + place, mask=inside, other=0.0)
        mixed = mixed * kept[:, None] + tl.dot(chance.to(value.dtype), value, input_precision="ieee")
        total = total * kept + tl.sum(chance, 1)
        best = top
    target = (pair * GROUP + row) * SPLIT + part
    tl.store(partial + target[:, None] * DIM + d[None, :], mixed, mask=mine)
    tl.store(peak + target, best, mask=row < GROUP)
    tl.store(mass + target, total, mask=row < GROUP)


def merge_work(a: Mapping[str, Any]) -> Work:
    return 2 * a["partial"].numel(), size(a["partial"]) + size(a["out"])


@triton.jit(launch_metadata=metadata_of(32, merge_work))
def merge_kernel(partial, peak, mass, out, DIM: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(0)
    part = tl.arange(0, SPLIT)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    best = tl.load(peak + head * SPLIT + part)
    weight = tl.exp2(best - tl.max(best, 0))
    total = tl.sum(tl.load(mass + head * SPLIT + part) * weight, 0)
    place = partial + (head * SPLIT + part)[:, None] * DIM + d[None, :]
    mixed = tl.load(place, mask=(d < DIM)[None, :], other=0.0)
    merged = tl.sum(mixed * weight[:, None], 0) / total
    tl.store(out + head * DIM + d, merged.to(out.dtype.element_ty), mask=d < DIM)


LOG2E: Final = 1.4426950408889634


class Scratch(NamedTuple):
    """Where the parts of a launch lie until they are merged."""

    partial: torch.Tensor  # [batch · heads, split, head_dim]
    peak: torch.Tensor
    mass: torch.Tensor


def scratch(q: torch.Tensor, room: int, split: int = 0) -> Scratch:
    """Return room for the parts of q [batch, heads, head_dim] over a cache."""
    batch, heads, dim = q.shape
    count = split or splits(room)
    partial = torch.empty(batch * heads, count, dim, dtype=torch.float32, device=q.device)
    return Scratch(partial, torch.empty_like(partial[..., 0]), torch.empty_like(partial[..., 0]))


def splits(room: int) -> int:
    """Return among how many programs the keys of a cache are split."""
    return next(count for most, count in SPLITS if room <= most)


def launch(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    out: torch.Tensor,
    between: Scratch,
    scale: float,
    window: int = 0,
) -> None:
    """Put attention of q [batch, heads, head_dim] over the caches, or parts of one tensor, into `out`."""
    batch, heads, dim = q.shape
    kv_heads, room = keys.shape[1:3]
    split, shape = between.partial.shape[1], shape_of(dim, keys.dtype)
    group = heads // kv_heads
    decode_attention_kernel[(batch * kv_heads, split)](
        q, keys, values, position, *between, scale * LOG2E,
        GROUP=group, KV_HEADS=kv_heads, DIM=dim, PADDED=power_of_two(dim),
        ROOM=room, SPAN=keys.stride(0), WINDOW=window, SPLIT=split,
        BLOCK=shape.keys, ROWS=max(ROWS, power_of_two(group)),
        num_warps=shape.warps, num_stages=shape.stages,
    )  # fmt: skip
    merge_kernel[(batch * heads, parts(dim, MERGED))](
        *between, out, DIM=dim, SPLIT=split, BLOCK=MERGED, num_warps=4
    )


def shape_of(dim: int, dtype: torch.dtype) -> Shape:
    table = WIDE_TABLE if dtype == torch.float32 else TABLE
    return next(shape for most, shape in table.items() if dim <= most)


SHAPES: Final = (  # label, query heads of a key head, key heads, head_dim, room, window
    ("gemma-3-1b full", 4, 1, 256, 4096, 0), ("gemma-3-1b window", 4, 1, 256, 512, 512),
    ("llama-3.2-1b", 4, 8, 64, 4096, 0), ("qwen2.5-0.5b", 7, 2, 64, 4096, 0),
    ("qwen3-0.6b", 2, 8, 128, 4096, 0), ("head_dim 80", 1, 32, 80, 1024, 0),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float32):
        for label, group, kv_heads, dim, room, window in SHAPES:
            shape, pointer = shape_of(dim, dtype), POINTER[dtype]
            yield Case(
                f"{label} {pointer[1:]}", decode_attention_kernel,
                {
                    "q": pointer, "keys": pointer, "values": pointer, "position": "*i32",
                    "partial": "*fp32", "peak": "*fp32", "mass": "*fp32", "scale": "fp32",
                },
                {
                    "GROUP": group, "KV_HEADS": kv_heads, "DIM": dim, "PADDED": power_of_two(dim),
                    "ROOM": room, "SPAN": 2 * kv_heads * room * dim, "WINDOW": window,
                    "SPLIT": splits(room), "BLOCK": shape.keys, "ROWS": ROWS,
                },
                shape.warps, wide=2, stages=shape.stages,
            )  # fmt: skip
    for dim, split in ((256, 64), (80, 16)):
        yield Case(
            f"merge of {split}, head_dim {dim}", merge_kernel,
            {"partial": "*fp32", "peak": "*fp32", "mass": "*fp32", "out": "*bf16"},
            {"DIM": dim, "SPLIT": split, "BLOCK": MERGED}, 4, wide=1,
        )  # fmt: skip
