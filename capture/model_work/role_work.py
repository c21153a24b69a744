"""Estimate FLOPs and bytes of each role of a layer from the sizes of its model and the tokens of a step."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from capture.classify.experts_work import SORTED_BYTES, estimate_combination, estimate_grouped_product
from capture.classify.operator_call import OperatorWork
from capture.classify.operator_work import estimate_paged_attention, estimate_product
from capture.classify.step_annotations import AttentionSums
from capture.model_work.model_config import DecoderConfig, LatentSizes, WeightFormat

ADDING_NORM: Final = "norm of a sum"  # roles that are no ops: they are found by place, name or category
HEADS_NORM: Final = "attn.qk_norm"
CHOICE: Final = "choice of experts"
PADDING: Final = 256  # sizes of experts in 4 bits are rounded up to it by vLLM on AMD's GPUs


class StepTokens(Struct, frozen=True):
    """What a step computes: new tokens, results of the head, and sums of its requests for attention."""

    tokens: int
    requests: int
    prefill: AttentionSums | None = None  # causal
    decode: AttentionSums | None = None

    def list_sums(self) -> list[AttentionSums]:
        """List the sums of prefill and decode; none if any of them is incomplete."""
        sums = [s for s in (self.prefill, self.decode) if s is not None]
        is_complete = all(s.keys is not None and s.queries and s.queries_keys is not None for s in sums)
        return sums if is_complete else []


class Sharding(Struct, frozen=True):
    """How many ranks share the weights of a layer (tp) and its experts (ep)."""

    tp: int = 1
    ep: int = 1
    is_padded: bool = False  # experts


def estimate_role(
    config: DecoderConfig, sharding: Sharding, role: str, layer: int | None, step: StepTokens
) -> OperatorWork | None:
    """Estimate the work of one rank for a role in a layer and a step; None if the config does not tell it."""
    model = ROLES.get(role)
    return model(config, sharding, layer or 0, step) if model else None


def _estimate_rows(
    rows: int, n: int, k: int, weight: WeightFormat | None, result: float
) -> OperatorWork | None:
    if weight is None or min(rows, n, k) <= 0:
        return None
    widths = (weight.activation_bytes, weight.weight_bytes, result)
    return estimate_product(rows, n, k, widths, weight.dtype)


def _count_heads(config: DecoderConfig, sharding: Sharding) -> tuple[int, int]:
    """Count the query and key heads of a rank; fewer key heads than ranks are copied."""
    return math.ceil(config.heads / sharding.tp), math.ceil(config.kv_heads / sharding.tp)


def _has_plain_attention(config: DecoderConfig, layer: int) -> bool:
    return config.is_plain_attention and layer not in config.linear_layers


def _build_projection(queries: bool, keys: int) -> "RoleModel":
    """Build the model of a projection to the queries, and to keys and values (0 to 2 of them)."""

    def estimate(
        config: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
    ) -> OperatorWork | None:
        heads, kv_heads = _count_heads(config, sharding)
        query_heads = heads * (2 if config.has_gated_queries else 1) if queries else 0
        n = (query_heads + keys * kv_heads) * config.head_size
        is_known = _has_plain_attention(config, layer)
        width = config.base.activation_bytes
        return _estimate_rows(step.tokens, n, config.hidden, config.attention, width) if is_known else None

    return estimate


def _estimate_out(c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens) -> OperatorWork | None:
    is_known = _has_plain_attention(c, layer)
    size = c.latent.value if c.latent else c.head_size if is_known else 0
    k = _count_heads(c, sharding)[0] * size
    return _estimate_rows(step.tokens, c.hidden, k, c.attention, c.base.activation_bytes)


def _estimate_linear_in(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    """The products in front of linear attention: queries, keys, values, a gate, and two numbers a head."""
    if c.linear is None or layer not in c.linear_layers:
        return None
    keys, values = c.linear.key_heads * c.linear.key_size, c.linear.value_heads * c.linear.value_size
    n = (2 * keys + 2 * values + 2 * c.linear.value_heads) // sharding.tp
    return _estimate_rows(step.tokens, n, c.hidden, c.attention, c.base.activation_bytes)


def _estimate_linear_out(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    if c.linear is None or layer not in c.linear_layers:
        return None
    k = c.linear.value_heads * c.linear.value_size // sharding.tp
    return _estimate_rows(step.tokens, c.hidden, k, c.attention, c.base.activation_bytes)


def _build_network(parts: int, *, is_down: bool = False) -> "RoleModel":
    """Build the model of a dense network's product: to one or both of gate and up, or down."""

    def estimate(
        config: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
    ) -> OperatorWork | None:
        if config.has_experts(layer):
            return None
        inner, width = config.inner // sharding.tp, config.base.activation_bytes
        n, k = (config.hidden, inner) if is_down else (parts * inner, config.hidden)
        return _estimate_rows(step.tokens, n, k, config.network, width)

    return estimate


def _estimate_router(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    experts = c.mixture.experts if c.mixture else 0
    return _estimate_rows(step.tokens, experts, c.hidden, c.base, c.base.activation_bytes)


def _estimate_shared(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    """The shared expert, which every token passes: gate, if there is one, up and down."""
    inner = c.mixture.shared_inner // sharding.tp if c.mixture else 0
    width, parts = c.base.activation_bytes, 2 if c.has_gate else 1
    up = _estimate_rows(step.tokens, parts * inner, c.hidden, c.network, width)
    down = _estimate_rows(step.tokens, c.hidden, inner, c.network, width)
    if up is None or down is None:
        return None
    return replace(up, flops=up.flops + down.flops, bytes=up.bytes + down.bytes)


def _pad(size: int, sharding: Sharding) -> int:
    return -(-size // PADDING) * PADDING if sharding.is_padded else size


def _build_experts(*, up: bool, down: bool) -> "RoleModel":
    """Build the model of the routed experts: their first product, their second, or both."""

    def estimate(
        config: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
    ) -> OperatorWork | None:
        weight, width, mixture = config.routed, config.base.activation_bytes, config.mixture
        if weight is None or mixture is None or not config.has_experts(layer):
            return None
        inner = mixture.inner // (1 if sharding.ep > 1 else sharding.tp)
        hidden, inner = (_pad(n, sharding) for n in (config.hidden, inner))
        gate = 2 if config.has_gate else 1
        parts = []
        for is_wanted, k, n, written, scattered in (
            (up, hidden, gate * inner, width / gate, False),  # the gate halves what is written
            (down, inner, hidden, width, True),
        ):
            widths, counts = (
                (weight.activation_bytes, weight.weight_bytes, written),
                (step.tokens, mixture.chosen, mixture.experts),
            )
            if is_wanted:
                part = estimate_grouped_product(
                    *counts, k, n, widths, weight.dtype, scattered=scattered, ranks=sharding.ep
                )
                parts.append(part)
        total = (sum(part.flops for part in parts), sum(part.bytes for part in parts))
        return OperatorWork(*total, parts[0].shape, weight.dtype)

    return estimate


def _estimate_head(c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens) -> OperatorWork | None:
    """The head, which only the last token of each request passes."""
    n = math.ceil(c.vocabulary / sharding.tp)
    return _estimate_rows(step.requests, n, c.hidden, c.base, c.base.activation_bytes)


def _estimate_attention(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    sums = step.list_sums()
    if sums and c.latent:
        return _estimate_latent_attention(c, c.latent, sharding, step)
    if not sums or c.windows is None or layer >= c.layers or not _has_plain_attention(c, layer):
        return None
    window = c.windows[layer]
    counts = [count_attention(s, window, is_causal=s is step.prefill) for s in sums]
    pairs, keys = (sum(part) for part in zip(*counts, strict=True))
    heads, kv_heads = _count_heads(c, sharding)
    new = sum(s.queries or 0 for s in sums)
    widths = (c.base.activation_bytes, c.cache_bytes)
    return estimate_paged_attention(
        (heads, kv_heads, c.head_size), new, round(keys), pairs, widths, c.base.dtype
    )


def _estimate_latent_attention(
    c: DecoderConfig, latent: LatentSizes, sharding: Sharding, step: StepTokens
) -> OperatorWork:
    """Latent attention: decode works on the cached vectors, which absorb the expansion; prefill expands."""
    heads, width = _count_heads(c, sharding)[0], c.base.activation_bytes
    flops = moved = 0.0
    for sums in step.list_sums():
        is_causal = sums is step.prefill
        pairs, keys = count_attention(sums, None, is_causal=is_causal)
        key, value = latent.rank + latent.rope, latent.rank
        read = keys * key * c.cache_bytes
        if is_causal:
            key, value = latent.nope + latent.rope, latent.value
            read = keys * heads * (key + value) * width
        flops += 2.0 * heads * pairs * (key + value)
        moved += (sums.queries or 0) * heads * (key + value) * width + read
    new, cached = (sum(getattr(s, part) or 0 for s in step.list_sums()) for part in ("queries", "keys"))
    return OperatorWork(flops, moved, f"q={new} k={cached} h={heads} r={latent.rank}", c.base.dtype)


def count_attention(sums: AttentionSums, window: int | None, *, is_causal: bool) -> tuple[float, float]:
    """Count query-key pairs and keys that are read; with a window as if all requests were of equal length."""
    queries, keys, requests = sums.queries or 0, sums.keys or 0, sums.requests or 1
    if window is None or keys / requests <= window:
        masked = (sums.queries_squared or 0) / 2 if is_causal else 0.0
        return (sums.queries_keys or 0) - masked, keys
    each, length = queries / requests, keys / requests
    growing = min(each, max(0.0, window - (length - each)))  # queries that still see all before them
    pairs = growing * (length - each) + growing**2 / 2 + (each - growing) * window
    return requests * pairs, requests * min(length, window + each - 1)


# roles that only move numbers: at least what is read once and written once


def _build_move(elements: int, passes: float, c: DecoderConfig, *, flops: float = 0.0) -> OperatorWork | None:
    """Build the work of passing over `elements` numbers; None if another format may be written."""
    formats = [f.activation_bytes for f in (c.attention, c.network) if f is not None]
    if elements <= 0 or len(formats) < 2 or set(formats) != {c.base.activation_bytes}:
        return None
    moved = passes * elements * c.base.activation_bytes
    return OperatorWork(flops * elements, moved, str(elements), c.base.dtype)


def _build_norm(*, adds: bool) -> "RoleModel":
    """Build the model of a norm of hidden numbers, which may first add a residual and return the sum."""

    def estimate(c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens) -> OperatorWork | None:
        if c.latent is not None or layer in c.linear_layers:  # these also have norms of other sizes
            return None
        passes, flops = (4, 5.0) if adds else (2, 4.0)
        work = _build_move(step.tokens * c.hidden, passes, c, flops=flops)
        weights = c.hidden * c.base.activation_bytes
        return work and replace(work, bytes=work.bytes + weights, shape=f"{step.tokens}×{c.hidden}")

    return estimate


def _build_rotation(flops: float) -> "RoleModel":
    """Build the model of what changes queries and keys in place."""

    def estimate(c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens) -> OperatorWork | None:
        heads = sum(_count_heads(c, sharding)) if _has_plain_attention(c, layer) else 0
        return _build_move(step.tokens * heads * c.head_size, 2, c, flops=flops)

    return estimate


def _estimate_kv_store(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    heads = _count_heads(c, sharding)[1] if _has_plain_attention(c, layer) else 0
    return _build_move(step.tokens * heads * c.head_size, 4, c)


def _estimate_activation(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    inner = 0 if c.has_experts(layer) else c.inner // sharding.tp
    return _build_move(step.tokens * inner, 3 if c.has_gate else 2, c, flops=5.0)


def _estimate_embedding(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    return _build_move(step.tokens * c.hidden, 2, c) if sharding.tp == 1 else None


def _estimate_choice(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    return _build_move(step.tokens * c.mixture.experts, 1, c) if c.mixture else None


def _estimate_sort(c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens) -> OperatorWork | None:
    if c.mixture is None:
        return None
    choices = step.tokens * c.mixture.chosen
    return OperatorWork(0.0, choices * SORTED_BYTES, str(choices), c.base.dtype)


def _estimate_combination(
    c: DecoderConfig, sharding: Sharding, layer: int, step: StepTokens
) -> OperatorWork | None:
    if c.mixture is None or sharding.ep > 1:
        return None
    size = _pad(c.hidden, sharding)
    return estimate_combination(step.tokens, c.mixture.chosen, size, c.base.activation_bytes, c.base.dtype)


RoleModel = Callable[[DecoderConfig, Sharding, int, StepTokens], OperatorWork | None]
ROLES: Final[Mapping[str, RoleModel]] = {
    "attn.qkv": _build_projection(queries=True, keys=2),
    "attn.q": _build_projection(queries=True, keys=0),
    "attn.k": _build_projection(queries=False, keys=1),
    "attn.v": _build_projection(queries=False, keys=1),
    "attn.core": _estimate_attention,
    "attn.out": _estimate_out,
    "ssm.in": _estimate_linear_in,
    "ssm.out": _estimate_linear_out,
    "mlp.gate_up": _build_network(2),
    "mlp.gate": _build_network(1),
    "mlp.up": _build_network(1),
    "mlp.down": _build_network(1, is_down=True),
    "moe.router": _estimate_router,
    "moe.experts": _build_experts(up=True, down=True),
    "moe.experts.up": _build_experts(up=True, down=False),
    "moe.experts.down": _build_experts(up=False, down=True),
    "moe.shared": _estimate_shared,
    "lm_head": _estimate_head,
    "norm": _build_norm(adds=False),
    ADDING_NORM: _build_norm(adds=True),
    HEADS_NORM: _build_rotation(4.0),
    "attn.rope": _build_rotation(3.0),
    "attn.kv": _estimate_kv_store,
    "mlp.act": _estimate_activation,
    "embed": _estimate_embedding,
    CHOICE: _estimate_choice,
    "moe.sort": _estimate_sort,
    "moe.combine": _estimate_combination,
}
# Categories of the kernels that do the work of a role; others of the role move or reorder.
_OTHER_CATEGORIES: Final[Mapping[str, Sequence[str]]] = {
    "attn.core": ("attention",), "norm": ("norm",), HEADS_NORM: ("norm",), "attn.rope": ("elementwise",),
    "attn.kv": ("copy",), "mlp.act": ("elementwise",), "embed": ("copy",), "moe.sort": ("moe",),
    "moe.combine": ("moe",),
}  # fmt: skip
WORKING_CATEGORIES: Final[Mapping[str, Sequence[str]]] = {
    role: _OTHER_CATEGORIES.get(role, ("matmul", "moe") if "experts" in role else ("matmul",))
    for role in ROLES
}
REPEATED: Final = ("norm", ADDING_NORM, "moe.sort")  # roles of which each kernel does the whole work
