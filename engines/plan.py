"""Ops of a step: layer, role, shape, FLOPs and bytes as a + b·context.

Bytes follow the minimal-traffic convention: each input is read once, each output written once. The name of an
op is the method that does it, after the conversion fused into it: `dequant+qkv_proj`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from engines.models.spec import Experts, Spec

Linear = tuple[float, float]  # a + b · min(context, window)
REPEATED_OPS: Final = frozenset(("norm", "residual", "comm"))  # ops that a layer does more than once
MOE_PREFIX: Final = "moe."  # what begins the op of every row of a mixture of experts


@dataclass(frozen=True)
class PlannedOp:
    """One op of a step, with its work and its place in the model."""

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
        """Name in profiler annotations, such as `L3.attn.qkv`, unique in a step."""
        name = f"{self.op}.{self.name.partition('+')[0]}" if self.op in REPEATED_OPS else self.op
        return name if self.layer is None else f"L{self.layer}.{name}"

    def build_plan_entry(self, number: int) -> dict[str, Any]:
        """Build the entry of a `plan` line."""
        entry: dict[str, Any] = {
            "id": number, "name": self.name, "kind": self.kind, "category": self.category, "lens": self.lens,
            "layer": self.layer, "op": self.op or None, "shape": self.shape or None, "window": self.window,
        }  # fmt: skip
        if any(self.flops) or any(self.bytes):
            entry |= {"flops": list(self.flops), "bytes": list(self.bytes)}
        return {key: value for key, value in entry.items() if value is not None}


Plan = tuple[PlannedOp, ...]  # of a step, in order


@dataclass(frozen=True)
class StepLoad:
    """Size of one step: rows, and bytes per number in memory."""

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
    def row_count(self) -> int:
        return self.batch * self.tokens


def plan_device_ops(spec: Spec, load: StepLoad, sampling: tuple[str, ...]) -> Plan:
    """Plan all computing ops, in the order of a step."""
    rows = [_plan_embedding(spec, load)]
    for layer in range(spec.layers):
        rows += _plan_attention_block(spec, load, layer)
        rows += _plan_ffn_block(spec, load, layer)
    last_position = replace(load, tokens=1, start=0)
    rows.append(_plan_norm("final_norm", spec.hidden, last_position, None))
    vocab_share = -(-spec.vocab // load.ranks)
    rows.append(_plan_matmul("lm_head", "lm_head", vocab_share, spec.hidden, last_position, None))
    rows += _plan_collective("logits_all_gather", spec.vocab, last_position, None, passes=1)
    logits, shape = load.batch * spec.vocab, f"m={load.batch} n={spec.vocab}"
    work = (logits, 0), (logits * load.stream_bytes, 0)
    return (*rows, *(PlannedOp(name, "sample", "sampling", None, shape, *work) for name in sampling))


def plan_host_op(name: str) -> PlannedOp:
    """Plan work of the host between kernels."""
    return PlannedOp(name, f"host.{name}", "host", lens="host")


TOKEN_WAIT = PlannedOp("next_token_wait", "wait", "wait", lens="wait")


def _plan_attention_block(spec: Spec, load: StepLoad, layer: int) -> Iterator[PlannedOp]:
    q, kv, d = spec.query_width, spec.kv_width, spec.hidden
    if spec.pre_norm:
        yield _plan_norm("attn_norm", d, load, layer)
    if load.fused:
        yield _plan_matmul("qkv_proj", "attn.qkv", q + 2 * kv, d, load, layer)
    else:
        yield _plan_matmul("q_proj", "attn.q", q, d, load, layer)
        yield _plan_matmul("k_proj", "attn.k", kv, d, load, layer)
        yield _plan_matmul("v_proj", "attn.v", kv, d, load, layer)
    if spec.qk_norm:
        yield _plan_elementwise("qk_norm", "norm", q + kv, load, layer, flops=4, passes=2, category="norm")
    yield _plan_elementwise("rope", "attn.rope", q + kv, load, layer, flops=6, passes=2)
    yield _plan_elementwise("kv_append", "attn.kv", 2 * kv, load, layer, flops=0, passes=2, category="copy")
    yield _plan_attention(spec, load, layer)
    yield _plan_matmul("o_proj", "attn.out", d, q, load, layer)
    yield from _plan_collective("attn_all_reduce", d, load, layer, passes=2)
    if spec.sandwich:
        yield _plan_norm("post_attn_norm", d, load, layer)
    yield _plan_elementwise("attn_residual", "residual", d, load, layer, flops=1, passes=3)


def _plan_ffn_block(spec: Spec, load: StepLoad, layer: int) -> Iterator[PlannedOp]:
    d, ffn = spec.hidden, spec.ffn
    if spec.pre_norm:
        yield _plan_norm("ffn_norm", d, load, layer)
    if mixture := spec.find_experts(layer):
        yield from _plan_mixture(mixture, d, load, layer)
    elif load.fused:
        yield _plan_matmul("ffn_gate_up", "mlp.gate_up", 2 * ffn, d, load, layer)
    else:
        yield _plan_matmul("ffn_gate", "mlp.gate", ffn, d, load, layer)
        yield _plan_matmul("ffn_up", "mlp.up", ffn, d, load, layer)
    if not mixture:
        yield _plan_elementwise("ffn_act", "mlp.act", ffn, load, layer, flops=8, passes=3)
        yield _plan_matmul("ffn_down", "mlp.down", d, ffn, load, layer)
    yield from _plan_collective("ffn_all_reduce", d, load, layer, passes=2)
    if spec.sandwich:
        yield _plan_norm("post_ffn_norm", d, load, layer)
    yield _plan_elementwise("ffn_residual", "residual", d, load, layer, flops=1, passes=3)


def _plan_mixture(mixture: Experts, d: int, load: StepLoad, layer: int) -> Iterator[PlannedOp]:
    """Plan the ops of a mixture: each row goes through its experts.

    The number of experts that several rows use is the expected one for uniform routing.
    """
    rows = load.row_count * mixture.active
    pairs_load = replace(load, batch=rows, tokens=1)
    router = _plan_matmul("router", f"{MOE_PREFIX}router", mixture.count, d, replace(load, fusion=""), layer)
    stream_bytes = load.row_count * (d + mixture.count) * load.stream_bytes
    yield replace(router, bytes=(4 * mixture.count * d + stream_bytes, 0))  # its weights are in fp32
    yield _plan_experts_product("experts_gate_up", "up", mixture, (2 * mixture.ffn, d), load, layer)
    activation = _plan_elementwise(
        "experts_act", f"{MOE_PREFIX}experts.act", mixture.ffn, pairs_load, layer, flops=8, passes=3
    )
    yield replace(activation, category="moe")
    yield _plan_experts_product("experts_down", "down", mixture, (d, mixture.ffn), load, layer)
    moved_bytes = (rows + load.row_count) * d * load.stream_bytes
    shape, work = f"m={load.row_count} n={d} e={mixture.count}/{mixture.active}", (2 * rows * d, 0)
    yield PlannedOp("moe_combine", f"{MOE_PREFIX}combine", "moe", layer, shape, work, (moved_bytes, 0))


def _plan_experts_product(
    name: str, role: str, mixture: Experts, size: tuple[int, int], load: StepLoad, layer: int
) -> PlannedOp:
    n, k = size
    rows, active = load.row_count * mixture.active, mixture.estimate_active(load.row_count)
    moved_bytes = active * n * k * load.weight_bytes + rows * (n + k) * load.stream_bytes
    shape = f"m={load.row_count} n={n} k={k} e={mixture.count}/{mixture.active}"
    work = (2 * rows * n * k, 0), (moved_bytes, 0)
    return PlannedOp(_prefix_fusion(name, load), f"{MOE_PREFIX}experts.{role}", "moe", layer, shape, *work)


def _plan_embedding(spec: Spec, load: StepLoad) -> PlannedOp:
    moved_bytes = load.row_count * spec.hidden * (load.weight_bytes + load.stream_bytes)
    name, shape = _prefix_fusion("embed", load), f"m={load.row_count} n={spec.hidden}"
    return PlannedOp(name, "embed", "copy", shape=shape, bytes=(moved_bytes, 0))


def _plan_matmul(name: str, op: str, n: int, k: int, load: StepLoad, layer: int | None) -> PlannedOp:
    m = load.row_count
    moved_bytes = n * k * load.weight_bytes + m * (n + k) * load.stream_bytes
    work = (2 * m * n * k, 0), (moved_bytes, 0)
    return PlannedOp(_prefix_fusion(name, load), op, "matmul", layer, f"m={m} n={n} k={k}", *work)


def _prefix_fusion(name: str, load: StepLoad) -> str:
    return f"{load.fusion}+{name}" if load.fusion else name


def _plan_norm(name: str, width: int, load: StepLoad, layer: int | None) -> PlannedOp:
    return _plan_elementwise(name, "norm", width, load, layer, flops=4, passes=2, category="norm")


def _plan_collective(
    name: str, width: int, load: StepLoad, layer: int | None, *, passes: int
) -> Iterator[PlannedOp]:
    """Plan an exchange between ranks if there are several; bytes are those that a ring sends."""
    if load.ranks > 1:
        moved_bytes = passes * (load.ranks - 1) / load.ranks * load.row_count * width * load.stream_bytes
        yield PlannedOp(name, "comm", "comm", layer, f"m={load.row_count} n={width}", bytes=(moved_bytes, 0))


def _plan_elementwise(
    name: str,
    op: str,
    width: int,
    load: StepLoad,
    layer: int | None,
    *,
    flops: int,
    passes: int,
    category: str = "elementwise",
) -> PlannedOp:
    size = load.row_count * width
    work = (flops * size, 0), (passes * size * load.stream_bytes, 0)
    return PlannedOp(name, op, category, layer, f"m={load.row_count} n={width}", *work)


def _plan_attention(spec: Spec, load: StepLoad, layer: int) -> PlannedOp:
    """Plan attention: in a decode step it grows with the context, in a prefill the pairs are known."""
    window = spec.find_window(layer)
    per_key = 4 * load.batch * spec.query_width
    key_bytes = 2 * load.batch * spec.kv_width * load.cache_bytes
    end_bytes = 2 * load.row_count * spec.query_width * load.stream_bytes
    shape = f"b={load.batch} q={load.tokens} heads={spec.heads} kv={spec.kv_heads} d={spec.head_dim}"
    if load.tokens == 1:
        flops: Linear = (0, per_key)
        moved_bytes: Linear = (end_bytes, key_bytes)
    else:
        pairs = sum(min(load.start + i + 1, window or 1 << 62) for i in range(load.tokens))
        keys = load.tokens + min(load.start, window or load.start)
        flops, moved_bytes = (per_key * pairs, 0), (end_bytes + key_bytes * keys, 0)
    return PlannedOp("attention", "attn.core", "attention", layer, shape, flops, moved_bytes, window)
