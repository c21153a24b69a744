"""Every op of a step: its layer, role, shape, flops and bytes as a + b·context.

Bytes follow the minimal-traffic convention: each input is read once, each output written once.
A row's name is the name of the method that does it, behind what is fused into it: `dequant+qkv_proj`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from engines.models.spec import Experts, Spec

Linear = tuple[float, float]  # a + b · min(context, window)
MIXTURE: Final = "moe."  # what begins the op of every row of a mixture of experts


@dataclass(frozen=True)
class Row:
    """One op of a step, with its work and where it stands."""

    name: str
    op: str
    category: str
    layer: int | None = None
    shape: str = ""
    flops: Linear = (0.0, 0.0)
    bytes: Linear = (0.0, 0.0)
    window: int | None = None
    lens: str = "wall"
    kind: str = "kernel"

    @property
    def method(self) -> str:
        return self.name.rpartition("+")[2]

    @property
    def scope(self) -> str:
        """The name in a profiler annotation, such as `L3.attn.qkv`."""
        return self.op if self.layer is None else f"L{self.layer}.{self.op}"

    def as_op(self, number: int) -> dict[str, Any]:
        """Return the entry of a `plan` line."""
        optional = {
            "layer": self.layer,
            "op": self.op or None,
            "shape": self.shape or None,
            "window": self.window,
        }
        entry: dict[str, Any] = {
            "id": number,
            "name": self.name,
            "kind": self.kind,
            "category": self.category,
            "lens": self.lens,
            **{k: v for k, v in optional.items() if v is not None},
        }
        if any(self.flops) or any(self.bytes):
            entry |= {"flops": list(self.flops), "bytes": list(self.bytes)}
        return entry


@dataclass(frozen=True)
class Load:
    """What one step carries: how many rows, and the bytes of a number in memory."""

    batch: int = 1
    tokens: int = 1  # positions of each sequence; 1 in a decode step
    start: int = 0  # positions already seen, where tokens > 1
    fused: bool = True
    weight_bytes: float = 2.0
    stream_bytes: int = 4
    cache_bytes: int = 4
    fusion: str = ""  # what is done to a weight on its way into a product
    ranks: int = 1  # that share the work; the spec is then that of one share, but for its vocab

    @property
    def rows(self) -> int:
        return self.batch * self.tokens


def device_rows(spec: Spec, load: Load, sampling: tuple[str, ...]) -> tuple[Row, ...]:
    """Return all ops that compute, in the order in which a step does them."""
    rows = [_embed(spec, load)]
    for layer in range(spec.layers):
        rows += _attention_block(spec, load, layer)
        rows += _ffn_block(spec, load, layer)
    last = replace(load, tokens=1, start=0)
    rows.append(_norm("final_norm", spec.hidden, last, None))
    rows.append(_matmul("lm_head", "lm_head", -(-spec.vocab // load.ranks), spec.hidden, last, None))
    rows += _comm("logits_all_gather", spec.vocab, last, None, passes=1)
    size = load.batch * spec.vocab
    rows += [
        Row(
            name,
            "sample",
            "sampling",
            shape=f"m={load.batch} n={spec.vocab}",
            flops=(size, 0),
            bytes=(size * load.stream_bytes, 0),
        )
        for name in sampling
    ]
    return tuple(rows)


def host_row(name: str) -> Row:
    """Return the row of work that the processor does between kernels."""
    return Row(name, f"host.{name}", "host", lens="host")


WAIT = Row("next_token_wait", "wait", "wait", lens="wait")


def _attention_block(spec: Spec, load: Load, layer: int) -> Iterator[Row]:
    q, kv, d = spec.query_width, spec.kv_width, spec.hidden
    if spec.pre_norm:
        yield _norm("attn_norm", d, load, layer)
    if load.fused:
        yield _matmul("qkv_proj", "attn.qkv", q + 2 * kv, d, load, layer)
    else:
        yield _matmul("q_proj", "attn.q", q, d, load, layer)
        yield _matmul("k_proj", "attn.k", kv, d, load, layer)
        yield _matmul("v_proj", "attn.v", kv, d, load, layer)
    if spec.qk_norm:
        yield _elementwise("qk_norm", "norm", q + kv, load, layer, flops=4, passes=2, category="norm")
    yield _elementwise("rope", "attn.rope", q + kv, load, layer, flops=6, passes=2)
    yield _elementwise("kv_append", "attn.kv", 2 * kv, load, layer, flops=0, passes=2, category="copy")
    yield _attention(spec, load, layer)
    yield _matmul("o_proj", "attn.out", d, q, load, layer)
    yield from _comm("attn_all_reduce", d, load, layer, passes=2)
    if spec.sandwich:
        yield _norm("post_attn_norm", d, load, layer)
    yield _elementwise("attn_residual", "residual", d, load, layer, flops=1, passes=3)


def _ffn_block(spec: Spec, load: Load, layer: int) -> Iterator[Row]:
    d, ffn = spec.hidden, spec.ffn
    if spec.pre_norm:
        yield _norm("ffn_norm", d, load, layer)
    if mixture := spec.experts_of(layer):
        yield from _mixture(mixture, d, load, layer)
    elif load.fused:
        yield _matmul("ffn_gate_up", "mlp.gate_up", 2 * ffn, d, load, layer)
    else:
        yield _matmul("ffn_gate", "mlp.gate", ffn, d, load, layer)
        yield _matmul("ffn_up", "mlp.up", ffn, d, load, layer)
    if not mixture:
        yield _elementwise("ffn_act", "mlp.act", ffn, load, layer, flops=8, passes=3)
        yield _matmul("ffn_down", "mlp.down", d, ffn, load, layer)
    yield from _comm("ffn_all_reduce", d, load, layer, passes=2)
    if spec.sandwich:
        yield _norm("post_ffn_norm", d, load, layer)
    yield _elementwise("ffn_residual", "residual", d, load, layer, flops=1, passes=3)


def _mixture(mixture: Experts, d: int, load: Load, layer: int) -> Iterator[Row]:
    """Yield the rows of a mixture: a row of the stream goes through each of its experts.

    How many experts several rows take in all is what is expected of an even choice.
    """
    rows = load.rows * mixture.chosen
    pairs = replace(load, batch=rows, tokens=1)
    router = _matmul("router", f"{MIXTURE}router", mixture.count, d, replace(load, fusion=""), layer)
    passed = load.rows * (d + mixture.count) * load.stream_bytes
    yield replace(router, bytes=(4 * mixture.count * d + passed, 0))  # its weights are in fp32
    yield _experts_product("experts_gate_up", "up", mixture, (2 * mixture.ffn, d), load, layer)
    act = _elementwise("experts_act", f"{MIXTURE}experts.act", mixture.ffn, pairs, layer, flops=8, passes=3)
    yield replace(act, category="moe")
    yield _experts_product("experts_down", "down", mixture, (d, mixture.ffn), load, layer)
    moved = (rows + load.rows) * d * load.stream_bytes
    shape = f"m={load.rows} n={d} e={mixture.count}/{mixture.chosen}"
    yield Row("moe_combine", f"{MIXTURE}combine", "moe", layer, shape, (2 * rows * d, 0), (moved, 0))


def _experts_product(
    name: str, part: str, mixture: Experts, size: tuple[int, int], load: Load, layer: int
) -> Row:
    n, k = size
    rows, touched = load.rows * mixture.chosen, mixture.touched(load.rows)
    moved = touched * n * k * load.weight_bytes + rows * (n + k) * load.stream_bytes
    shape = f"m={load.rows} n={n} k={k} e={mixture.count}/{mixture.chosen}"
    flops = 2 * rows * n * k
    return Row(_fused(name, load), f"{MIXTURE}experts.{part}", "moe", layer, shape, (flops, 0), (moved, 0))


def _embed(spec: Spec, load: Load) -> Row:
    moved = load.rows * spec.hidden * (load.weight_bytes + load.stream_bytes)
    name = _fused("embed", load)
    return Row(name, "embed", "copy", shape=f"m={load.rows} n={spec.hidden}", bytes=(moved, 0))


def _matmul(name: str, op: str, n: int, k: int, load: Load, layer: int | None) -> Row:
    m = load.rows
    moved = n * k * load.weight_bytes + m * (n + k) * load.stream_bytes
    shape = f"m={m} n={n} k={k}"
    return Row(_fused(name, load), op, "matmul", layer, shape, (2 * m * n * k, 0), (moved, 0))


def _fused(name: str, load: Load) -> str:
    return f"{load.fusion}+{name}" if load.fusion else name


def _norm(name: str, width: int, load: Load, layer: int | None) -> Row:
    return _elementwise(name, "norm", width, load, layer, flops=4, passes=2, category="norm")


def _comm(name: str, width: int, load: Load, layer: int | None, *, passes: int) -> Iterator[Row]:
    """Yield the row of an exchange between ranks, if there are several; bytes are those that a ring sends."""
    if load.ranks > 1:
        moved = passes * (load.ranks - 1) / load.ranks * load.rows * width * load.stream_bytes
        yield Row(name, "comm", "comm", layer, f"m={load.rows} n={width}", bytes=(moved, 0))


def _elementwise(
    name: str,
    op: str,
    width: int,
    load: Load,
    layer: int | None,
    *,
    flops: int,
    passes: int,
    category: str = "elementwise",
) -> Row:
    size = load.rows * width
    shape = f"m={load.rows} n={width}"
    return Row(name, op, category, layer, shape, (flops * size, 0), (passes * size * load.stream_bytes, 0))


def _attention(spec: Spec, load: Load, layer: int) -> Row:
    """Return the row of attention: a decode step grows with the context, a prefill knows its pairs."""
    window = spec.window_of(layer)
    per_key = 4 * load.batch * spec.query_width
    key_bytes = 2 * load.batch * spec.kv_width * load.cache_bytes
    ends = 2 * load.rows * spec.query_width * load.stream_bytes
    shape = f"b={load.batch} q={load.tokens} heads={spec.heads} kv={spec.kv_heads} d={spec.head_dim}"
    if load.tokens == 1:
        flops: Linear = (0, per_key)
        moved: Linear = (ends, key_bytes)
    else:
        pairs = sum(min(load.start + i + 1, window or 1 << 62) for i in range(load.tokens))
        keys = load.tokens + min(load.start, window or load.start)
        flops, moved = (per_key * pairs, 0), (ends + key_bytes * keys, 0)
    return Row("attention", "attn.core", "attention", layer, shape, flops, moved, window)
