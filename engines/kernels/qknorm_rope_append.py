"""Norm and rotation of query and key heads, and the append to the cache; one program per head.

The position is read from the device, so that a captured graph can be replayed. A cache of `room` positions is
a ring: position p is in slot p mod room. The two numbers of a rotary pair are adjacent.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch.nn import functional

from engines.kernels.launch_support import (
    CompileCase,
    Work,
    count_bytes,
    make_metadata,
    pad_to_power_of_2,
)

RotaryTables = tuple[torch.Tensor, torch.Tensor]  # cosine and sine of positions, [positions, head_dim / 2]


def reference(
    qkv: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    tables: RotaryTables,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Return the rotated queries [batch, heads, head_dim]; write the caches in place.

    qkv is [batch, heads + 2·kv_heads, head_dim], weight [heads + kv_heads, head_dim].
    """
    kv_heads, room = keys.shape[1:3]
    turned = qkv[:, : qkv.shape[1] - kv_heads].float()
    if weight is not None:
        turned = functional.rms_norm(turned, turned.shape[-1:], None, eps) * weight.float()
    cos, sin = (table[position.long()][:, None] for table in tables)
    even, odd = turned[..., ::2], turned[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    for sequence, at in enumerate(position.tolist()):
        keys[sequence, :, at % room] = turned[sequence, -kv_heads:].to(keys.dtype)
        values[sequence, :, at % room] = qkv[sequence, -kv_heads:].to(values.dtype)
    return turned[:, :-kv_heads]


def _compute_work(a: Mapping[str, Any]) -> Work:
    batch = a["position"].shape[0]
    flops = batch * (a["HEADS"] + a["KV_HEADS"]) * a["DIM"] * (7 if a["NORM"] else 3)
    appended = 2 * batch * a["KV_HEADS"] * a["DIM"] * a["keys"].element_size()
    return flops, count_bytes(a, "qkv", "out") + appended


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def qknorm_rope_append_kernel(
    qkv, out, keys, values, weight, cos, sin, position, table_stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, ROOM: tl.constexpr, SPAN: tl.constexpr,
    NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Norm, rotate and store one head per program."""
    batch = tl.program_id(0)
    head = tl.program_id(1)
    at = tl.arange(0, BLOCK)
    inside = at < DIM
    x = tl.load(qkv + (batch * (HEADS + 2 * KV_HEADS) + head) * DIM + at, mask=inside, other=0.0)
    x = x.to(tl.float32)
    now = tl.load(position + batch)
    if head < HEADS + KV_HEADS:
        if NORM:
            scale = tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)
            x *= scale * tl.load(weight + head * DIM + at, mask=inside, other=0.0).to(tl.float32)
        pair = tl.arange(0, BLOCK // 2)
        c = tl.load(cos + now * table_stride + pair, mask=pair < DIM // 2, other=0.0).to(tl.float32)
        s = tl.load(sin + now * table_stride + pair, mask=pair < DIM // 2, other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK // 2, 2)))
        x = tl.interleave(even * c - odd * s, odd * c + even * s)
    slot = now % ROOM
    if head < HEADS:
        tl.store(out + (batch * HEADS + head) * DIM + at, x.to(out.dtype.element_ty), mask=inside)
    elif head < HEADS + KV_HEADS:
        target = keys + batch.to(tl.int64) * SPAN + ((head - HEADS) * ROOM + slot) * DIM + at
        tl.store(target, x.to(keys.dtype.element_ty), mask=inside)
    else:
        target = values + batch.to(tl.int64) * SPAN + ((head - HEADS - KV_HEADS) * ROOM + slot) * DIM + at
        tl.store(target, x.to(values.dtype.element_ty), mask=inside)


def launch(
    qkv: torch.Tensor,
    out: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    tables: RotaryTables,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> None:
    """Write rotated queries to `out`, the new pair to caches [batch, kv_heads, room, head_dim]."""
    batch, heads, dim = out.shape
    (kv_heads, room), (cos, sin) = keys.shape[1:3], tables
    qknorm_rope_append_kernel[(batch, heads + 2 * kv_heads)](
        qkv, out, keys, values, weight, cos, sin, position, cos.stride(0), eps,
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, ROOM=room, SPAN=keys.stride(0), NORM=weight is not None,
        BLOCK=pad_to_power_of_2(dim), num_warps=1,
    )  # fmt: skip


SHAPES: Final = (  # label, heads, kv heads, head_dim, norm
    ("gemma-3-1b", 4, 1, 256, True), ("llama-3.2-1b", 32, 8, 64, False),
    ("qwen2.5-0.5b", 14, 2, 64, False), ("qwen3-0.6b", 16, 8, 128, True), ("head_dim 80", 32, 32, 80, False),
)  # fmt: skip


def cases() -> Iterator[CompileCase]:
    for label, heads, kv_heads, dim, norm in SHAPES:
        constants = {
            "HEADS": heads, "KV_HEADS": kv_heads, "DIM": dim, "ROOM": 4096, "SPAN": 2 * kv_heads * 4096 * dim,
            "NORM": norm, "BLOCK": pad_to_power_of_2(dim),
        }  # fmt: skip
        yield CompileCase(label, qknorm_rope_append_kernel, constants, 1, {"weight": "*fp32"})
