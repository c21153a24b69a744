"""Every op of a training step, with where it stands in the model: forward, backward, optimizer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from capture.native.schema import PATH_SEPARATOR
from engines.plan import Row
from engines.training.sizes import FP32, Size

SOFTMAX: Final = ("softmax_max", "softmax_exp", "softmax_sum", "softmax_div")


@dataclass(frozen=True)
class PlacedRow(Row):
    """An op of a training step, and where it stands: its phase, then the modules around it."""

    path: str = ""

    @property
    def scope(self) -> str:
        """The name in a profiler annotation; no two rows of a step have the same."""
        return f"{self.path}{PATH_SEPARATOR}{self.name}"

    def as_op(self, number: int) -> dict[str, Any]:
        entry = {**super().as_op(number), "path": self.path}
        return {key: value for key, value in entry.items() if value != ""}

    def within(self, phase: str) -> "PlacedRow":
        return replace(self, path=f"{phase}{PATH_SEPARATOR}{self.path}" if self.path else phase)


# What a backward pass does for no op of its own.
GRADIENTS: Final = PlacedRow("grad_accum", "grad_accum", "elementwise", path="backward")
STRAY: Final = PlacedRow("unattributed", "unattributed", "", path="backward")


@dataclass(frozen=True)
class StepRows:
    """Every row of a step, phase by phase."""

    forward: tuple[PlacedRow, ...]
    backward: tuple[PlacedRow, ...]
    optimizer: tuple[PlacedRow, ...]


def step_rows(size: Size, optimizer: str) -> StepRows:
    return StepRows(forward_rows(size), backward_rows(size), optimizer_rows(size, optimizer))


def forward_rows(size: Size) -> tuple[PlacedRow, ...]:
    """Return the ops of a forward pass, in their order."""
    return tuple(row.within("forward") for row in _ops(size))


def backward_rows(size: Size) -> tuple[PlacedRow, ...]:
    """Return the same ops in reverse: a product is two products, everything else twice the traffic."""
    return tuple(
        replace(r.within("backward"), flops=(2 * r.flops[0], 0.0), bytes=(2 * r.bytes[0], 0.0))
        for r in reversed(tuple(_ops(size)))
    )


def optimizer_rows(size: Size, optimizer: str) -> tuple[PlacedRow, ...]:
    """Return the rows of AdamW: one for every tensor where it goes one by one, else one for all."""
    last = PlacedRow("zero_grad", "optimizer", "elementwise", shape=f"n={size.parameters}")
    if optimizer == "cs336":
        updates = [_update(name, shape) for name, shape in size.tensors().items()]
    else:
        passes = 7 if optimizer == "fused" else 20
        whole = f"adamw_{optimizer}"
        updates = [_each(whole, "optimizer", size.parameters, None, "", flops=12, passes=passes)]
    return tuple(row.within("optimizer") for row in (*updates, last))


def _ops(size: Size) -> Iterator[PlacedRow]:
    n, d = size.tokens, size.width
    embed = "token_embeddings"
    yield _each(embed, "embed", n * d, None, embed, flops=0, passes=2, category="copy")
    for layer in range(size.layers):
        yield from _layer(size, layer, f"layers.{layer}")
    yield _each("ln_final", "norm", n * d, None, "ln_final", flops=4, passes=2, category="norm")
    yield _matmul(size, "lm_head", "lm_head", size.vocab, d, None, "lm_head")
    yield _each("loss", "loss", n * size.vocab, None, "", flops=5, passes=2, category="other")


def _layer(size: Size, layer: int, at: str) -> Iterator[PlacedRow]:
    d, f, n, narrow = size.width, size.ffn, size.tokens, size.width_of_products
    attn, ffn = (f"{at}{PATH_SEPARATOR}{module}" for module in ("attn", "ffn"))
    yield _each("ln1", "norm", n * d, layer, at, flops=4, passes=2, category="norm")
    for name in "qkv":
        yield _matmul(size, f"{name}_proj", f"attn.{name}", d, d, layer, attn)
    for name in "qk":
        yield _each(
            f"rope_{name}", "attn.rope", n * d, layer, attn, flops=3, passes=2, width=(FP32 + narrow) / 2
        )
    yield from _attention(size, layer, attn)
    yield _matmul(size, "output_proj", "attn.out", d, d, layer, attn)
    added = (2 * FP32 + narrow) / 3  # to the stream, which stays in fp32
    yield _each("attn_residual", "residual", n * d, layer, at, flops=1, passes=3, width=added)
    yield _each("ln2", "norm", n * d, layer, at, flops=4, passes=2, category="norm")
    yield _matmul(size, "w1", "mlp.gate", f, d, layer, ffn)
    yield _matmul(size, "w3", "mlp.up", f, d, layer, ffn)
    yield _each("swiglu", "mlp.act", n * f, layer, ffn, flops=6, passes=3, width=narrow)
    yield _matmul(size, "w2", "mlp.down", d, f, layer, ffn)
    yield _each("ffn_residual", "residual", n * d, layer, at, flops=1, passes=3, width=added)


def _attention(size: Size, layer: int, at: str) -> Iterator[PlacedRow]:
    pairs = size.pairs
    flops = (2.0 * pairs * size.head_dim, 0.0)
    narrow = size.width_of_products
    moved = (narrow * (pairs + 2.0 * size.tokens * size.width), 0.0)
    shape = f"b={size.batch * size.heads} m={size.context} n={size.context} k={size.head_dim}"
    if not size.explicit:
        ends = (narrow * 4.0 * size.tokens * size.width, 0.0)
        both = (2 * flops[0], 0.0)
        yield PlacedRow("attention", "attn.core", "attention", layer, shape, both, ends, path=at)
        return
    yield PlacedRow("scores", "attn.core", "matmul", layer, shape, flops, moved, path=at)
    yield _each("mask", "attn.core", pairs, layer, at, flops=2, passes=2, width=narrow)
    unsure = 0 if size.mixed else FP32  # in bf16 or in fp32, as autocast has it on the device
    for name in SOFTMAX:
        writes = name in ("softmax_exp", "softmax_div")
        work = 2 if name == "softmax_exp" else 1  # it takes the largest off first
        yield _each(
            name,
            "attn.core",
            pairs,
            layer,
            at,
            flops=work,
            passes=1 + writes,
            width=unsure,
            category="softmax",
        )
    shape = f"b={size.batch * size.heads} m={size.context} n={size.head_dim} k={size.context}"
    yield PlacedRow("mix", "attn.core", "matmul", layer, shape, flops, moved, path=at)


def _matmul(size: Size, name: str, op: str, n: int, k: int, layer: int | None, at: str) -> PlacedRow:
    m = size.tokens
    moved = size.width_of_products * (n * k + m * (n + k))
    return PlacedRow(name, op, "matmul", layer, f"m={m} n={n} k={k}", (2 * m * n * k, 0), (moved, 0), path=at)


def _each(
    name: str,
    op: str,
    count: int,
    layer: int | None,
    at: str,
    *,
    flops: int,
    passes: int,
    width: float = FP32,
    category: str = "elementwise",
) -> PlacedRow:
    """Return the row of an op that looks at every element of so many, each of so many bytes."""
    work, moved = (flops * count, 0), (passes * count * width, 0)
    return PlacedRow(name, op, category, layer, f"n={count}", work, moved, path=at)


def _update(name: str, shape: tuple[int, ...]) -> PlacedRow:
    """Return the row of the optimizer's work on one tensor, under the name of its module."""
    first, _, rest = name.partition(".")
    layer, _, module = rest.partition(".")
    at = PATH_SEPARATOR.join((f"{first}.{layer}", *module.split("."))) if rest else first
    number = int(layer) if rest else None
    return _each("adamw", "optimizer", math.prod(shape), number, at, flops=12, passes=20)
