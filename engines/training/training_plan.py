"""Ops of a training step, with their place in the model: forward, backward, optimizer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from capture.native.schema import PATH_SEPARATOR
from engines.plan import PlannedOp
from engines.training.model_sizes import FP32_BYTES, ModelSize

SOFTMAX: Final = ("softmax_max", "softmax_exp", "softmax_sum", "softmax_div")


@dataclass(frozen=True)
class PlacedOp(PlannedOp):
    """An op of a training step, and its path: its phase, then the modules around it."""

    path: str = ""

    @property
    def scope(self) -> str:
        """Name in profiler annotations, unique in a step."""
        return f"{self.path}{PATH_SEPARATOR}{self.name}"

    def build_plan_entry(self, number: int) -> dict[str, Any]:
        entry = {**super().build_plan_entry(number), "path": self.path}
        return {key: value for key, value in entry.items() if value != ""}

    def place_in_phase(self, phase: str) -> "PlacedOp":
        return replace(self, path=f"{phase}{PATH_SEPARATOR}{self.path}" if self.path else phase)


# What a backward pass does for no op of its own.
GRADIENTS: Final = PlacedOp("grad_accum", "grad_accum", "elementwise", path="backward")
UNATTRIBUTED: Final = PlacedOp("unattributed", "unattributed", "", path="backward")


class StepPlan(NamedTuple):
    """Every op of a step, by phase."""

    forward: tuple[PlacedOp, ...]
    backward: tuple[PlacedOp, ...]
    optimizer: tuple[PlacedOp, ...]


def plan_training_step(size: ModelSize, optimizer: str) -> StepPlan:
    """Plan all ops of a training step."""
    return StepPlan(plan_forward(size), plan_backward(size), plan_optimizer(size, optimizer))


def plan_forward(size: ModelSize) -> tuple[PlacedOp, ...]:
    """Plan the ops of a forward pass, in order."""
    return tuple(row.place_in_phase("forward") for row in _plan_ops(size))


def plan_backward(size: ModelSize) -> tuple[PlacedOp, ...]:
    """Plan the same ops in reverse: a product becomes two products, everything else doubles its traffic."""
    return tuple(
        replace(r.place_in_phase("backward"), flops=(2 * r.flops[0], 0.0), bytes=(2 * r.bytes[0], 0.0))
        for r in reversed(tuple(_plan_ops(size)))
    )


def plan_optimizer(size: ModelSize, optimizer: str) -> tuple[PlacedOp, ...]:
    """Plan AdamW: an op per tensor if it updates them one by one, else one op for all."""
    zero_grad = PlacedOp("zero_grad", "optimizer", "elementwise", shape=f"n={size.parameters}")
    if optimizer == "cs336":
        updates = [_plan_update(name, shape) for name, shape in size.list_tensors().items()]
    else:
        passes = 7 if optimizer == "fused" else 20
        name = f"adamw_{optimizer}"
        updates = [_plan_elementwise(name, "optimizer", size.parameters, None, "", flops=12, passes=passes)]
    return tuple(row.place_in_phase("optimizer") for row in (*updates, zero_grad))


def _plan_ops(size: ModelSize) -> Iterator[PlacedOp]:
    n, d = size.tokens, size.width
    embed = "token_embeddings"
    yield _plan_elementwise(embed, "embed", n * d, None, embed, flops=0, passes=2, category="copy")
    for layer in range(size.layers):
        yield from _plan_layer(size, layer, f"layers.{layer}")
    yield _plan_elementwise("ln_final", "norm", n * d, None, "ln_final", flops=4, passes=2, category="norm")
    yield _plan_matmul(size, "lm_head", "lm_head", size.vocab, d, None, "lm_head")
    yield _plan_elementwise("loss", "loss", n * size.vocab, None, "", flops=5, passes=2, category="other")


def _plan_layer(size: ModelSize, layer: int, at: str) -> Iterator[PlacedOp]:
    d, f, n, narrow = size.width, size.ffn, size.tokens, size.product_bytes
    attn, ffn = (f"{at}{PATH_SEPARATOR}{module}" for module in ("attn", "ffn"))
    yield _plan_elementwise("ln1", "norm", n * d, layer, at, flops=4, passes=2, category="norm")
    for name in "qkv":
        yield _plan_matmul(size, f"{name}_proj", f"attn.{name}", d, d, layer, attn)
    mean = (FP32_BYTES + narrow) / 2
    for name in ("rope_q", "rope_k"):
        yield _plan_elementwise(name, "attn.rope", n * d, layer, attn, flops=3, passes=2, width=mean)
    yield from _plan_attention(size, layer, attn)
    yield _plan_matmul(size, "output_proj", "attn.out", d, d, layer, attn)
    stream = (2 * FP32_BYTES + narrow) / 3  # bytes of a number added to the stream, which stays in fp32
    yield _plan_elementwise("attn_residual", "residual", n * d, layer, at, flops=1, passes=3, width=stream)
    yield _plan_elementwise("ln2", "norm", n * d, layer, at, flops=4, passes=2, category="norm")
    yield _plan_matmul(size, "w1", "mlp.gate", f, d, layer, ffn)
    yield _plan_matmul(size, "w3", "mlp.up", f, d, layer, ffn)
    yield _plan_elementwise("swiglu", "mlp.act", n * f, layer, ffn, flops=6, passes=3, width=narrow)
    yield _plan_matmul(size, "w2", "mlp.down", d, f, layer, ffn)
    yield _plan_elementwise("ffn_residual", "residual", n * d, layer, at, flops=1, passes=3, width=stream)


def _plan_attention(size: ModelSize, layer: int, at: str) -> Iterator[PlacedOp]:
    pairs = size.score_count
    flops = (2.0 * pairs * size.head_dim, 0.0)
    product_bytes = size.product_bytes
    moved_bytes = (product_bytes * (pairs + 2.0 * size.tokens * size.width), 0.0)
    shape = f"b={size.batch * size.heads} m={size.context} n={size.context} k={size.head_dim}"
    if not size.has_explicit_attention:
        flops, end_bytes = (2 * flops[0], 0.0), (product_bytes * 4.0 * size.tokens * size.width, 0.0)
        yield PlacedOp("attention", "attn.core", "attention", layer, shape, flops, end_bytes, path=at)
        return
    yield PlacedOp("scores", "attn.core", "matmul", layer, shape, flops, moved_bytes, path=at)
    yield _plan_elementwise("mask", "attn.core", pairs, layer, at, flops=2, passes=2, width=product_bytes)
    # in bf16 or in fp32, as autocast has it on the device
    width = 0 if size.is_mixed_precision else FP32_BYTES
    for name in SOFTMAX:
        passes = 2 if name in ("softmax_exp", "softmax_div") else 1
        work = 2 if name == "softmax_exp" else 1  # it takes the largest off first
        sums = _plan_elementwise(name, "attn.core", pairs, layer, at, flops=work, passes=passes, width=width)
        yield replace(sums, category="softmax")
    shape = f"b={size.batch * size.heads} m={size.context} n={size.head_dim} k={size.context}"
    yield PlacedOp("mix", "attn.core", "matmul", layer, shape, flops, moved_bytes, path=at)


def _plan_matmul(size: ModelSize, name: str, op: str, n: int, k: int, layer: int | None, at: str) -> PlacedOp:
    m = size.tokens
    work = (2 * m * n * k, 0), (size.product_bytes * (n * k + m * (n + k)), 0)
    return PlacedOp(name, op, "matmul", layer, f"m={m} n={n} k={k}", *work, path=at)


def _plan_elementwise(
    name: str,
    op: str,
    count: int,
    layer: int | None,
    at: str,
    *,
    flops: int,
    passes: int,
    width: float = FP32_BYTES,
    category: str = "elementwise",
) -> PlacedOp:
    """Plan an op over `count` elements of `width` bytes each."""
    work, moved_bytes = (flops * count, 0), (passes * count * width, 0)
    return PlacedOp(name, op, category, layer, f"n={count}", work, moved_bytes, path=at)


def _plan_update(name: str, shape: tuple[int, ...]) -> PlacedOp:
    """Plan the optimizer's work on one tensor, under the path of its module."""
    first, _, rest = name.partition(".")
    layer, _, module = rest.partition(".")
    at = PATH_SEPARATOR.join((f"{first}.{layer}", *module.split("."))) if rest else first
    number = int(layer) if rest else None
    return _plan_elementwise("adamw", "optimizer", math.prod(shape), number, at, flops=12, passes=20)
