"""Norms, rotation, cache and attention under Triton's interpreter, against their references."""

import pytest
import torch

from engines.kernels import add_rmsnorm, decode_attention, qknorm_rope_append
from tests.engines.kernels.compare import DTYPES, close, rand


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 45), (2, 130)])
@pytest.mark.parametrize("kind", ["plain", "add", "sandwich"])
def test_add_rmsnorm(rows: int, width: int, kind: str, dtype: torch.dtype) -> None:
    x, weight = rand(rows, width, dtype=dtype), rand(width)
    stream = None if kind == "plain" else rand(rows, width)
    post = rand(width).flip(0) if kind == "sandwich" else None
    wanted, after = add_rmsnorm.reference(x, weight, 1e-6, stream=stream, post=post)
    out = torch.empty(rows, width, dtype=dtype)
    add_rmsnorm.launch(x, weight, 1e-6, out, stream=stream, post=post)
    close(out, wanted)
    if stream is not None:
        close(stream, after)


def test_a_stream_beyond_fp16_stays_whole() -> None:
    x, weight, stream = rand(1, 40, dtype=torch.float16), rand(40), torch.full((1, 40), 3e5)
    wanted, after = add_rmsnorm.reference(x, weight, 1e-6, stream=stream.clone())
    out = torch.empty(1, 40, dtype=torch.float16)
    add_rmsnorm.launch(x, weight, 1e-6, out, stream=stream)
    close(out, wanted)
    assert torch.equal(stream, after)


def test_partial_sums_are_added_first() -> None:
    partial, weight, stream = rand(4, 2, 45), rand(45), rand(2, 45)
    wanted, after = add_rmsnorm.reference(partial.sum(0), weight, 1e-6, stream=stream.clone())
    out = torch.empty(2, 45)
    add_rmsnorm.launch(partial, weight, 1e-6, out, stream=stream)
    close(out, wanted)
    close(stream, after)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 1, 64), (4, 4, 80), (14, 2, 16), (8, 2, 128)])
@pytest.mark.parametrize("normed", [False, True])
def test_qknorm_rope_append(heads: int, kv_heads: int, dim: int, normed: bool, dtype: torch.dtype) -> None:
    """Two sequences at different positions; the second has turned the ring."""
    room, position = 8, torch.tensor([5, 11], dtype=torch.int32)
    qkv = rand(2, heads + 2 * kv_heads, dim, dtype=dtype)
    weight = rand(heads + kv_heads, dim) if normed else None
    angle = torch.arange(16.0)[:, None] * 1e4 ** (-torch.arange(0, dim, 2) / dim)
    tables = (angle.cos(), angle.sin())
    mine, theirs = (torch.zeros(2, 2 * kv_heads, room, dim, dtype=dtype).chunk(2, 1) for _ in range(2))
    wanted = qknorm_rope_append.reference(qkv, *theirs, position, tables, weight)
    out = torch.empty(2, heads, dim, dtype=dtype)
    qknorm_rope_append.launch(qkv, out, *mine, position, tables, weight)
    close(out, wanted)
    for a, b in zip(mine, theirs, strict=True):
        close(a, b.float())
        assert torch.equal(a[1, :, 3] != 0, b[1, :, 3] != 0)
        assert not a[0, :, :5].any() and not a[0, :, 6:].any()


def test_rope_reads_wide_tables_by_their_stride() -> None:
    angle = rand(4, 16)
    wide = torch.cat((angle.cos(), torch.zeros(4, 5), angle.sin()), -1)
    tables = (wide[:, :16], wide[:, 21:])
    qkv, position = rand(1, 3, 32), torch.tensor([3], dtype=torch.int32)
    wanted = qknorm_rope_append.reference(qkv, *(torch.zeros(1, 1, 4, 32) for _ in "kv"), position, tables)
    out = torch.empty(1, 1, 32)
    qknorm_rope_append.launch(qkv, out, *(torch.zeros(1, 1, 4, 32) for _ in "kv"), position, tables)
    close(out, wanted)


ATTENTION = [  # query heads, key heads, head_dim, room, positions, window, split
    (1, 1, 64, 100, (0, 99), 0, 4),
    (4, 1, 256, 70, (69,), 0, 2),
    (8, 2, 64, 130, (3, 129), 0, 8),
    (14, 2, 64, 97, (40,), 0, 4),
    (2, 2, 80, 65, (64,), 0, 2),
    (4, 1, 128, 40, (200,), 0, 4),
    (4, 1, 64, 200, (150, 20), 33, 4),
    (4, 2, 32, 64, (63,), 64, 2),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dim", "room", "positions", "window", "split"), ATTENTION)
@pytest.mark.parametrize("dots", [True, False])
def test_decode_attention(
    heads: int, kv_heads: int, dim: int, room: int, positions: tuple[int, ...], window: int, split: int,
    dtype: torch.dtype, dots: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With tensor cores, and as GPUs without registers for them do it."""
    monkeypatch.setattr(decode_attention, "has_dots", lambda device: dots)
    batch, position = len(positions), torch.tensor(positions, dtype=torch.int32)
    q = rand(batch, heads, dim, dtype=dtype)
    keys, values = rand(batch, 2 * kv_heads, room, dim, dtype=dtype).chunk(2, 1)
    wanted = decode_attention.reference(q, keys, values, position, dim**-0.5, window)
    seen = torch.arange(room) > max(positions)  # what lies beyond must not be read
    keys[:, :, seen], values[:, :, seen] = float("nan"), float("nan")
    between, out = decode_attention.allocate_scratch(q, room, split), torch.empty_like(q)
    decode_attention.launch(q, keys, values, position, out, between, dim**-0.5, window)
    close(out, wanted)
    assert not between.arrived.any(), "ready for the next launch"
    if positions[0] == 0:
        assert torch.isinf(between.peak[0, 1:]).all(), "one key leaves the other parts empty"


def test_attention_agrees_with_torch() -> None:
    """The reference itself, against torch's own attention."""
    q, keys, values = rand(2, 14, 64), rand(2, 2, 50, 64), rand(2, 2, 50, 64)
    wanted = torch.nn.functional.scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)
    actual = decode_attention.reference(q, keys, values, torch.tensor([49, 49]), 64**-0.5)
    close(actual, wanted[:, :, 0])
