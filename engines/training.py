"""Models to train as data: the CS336 family, and every op of a training step.

They are llama-like: RMS norms, rotation, a gated feed-forward, an untied head; all in fp32.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from engines.plan import Row

FP32: Final = 4
VOCAB: Final = 10_000
SOFTMAX: Final = ("softmax_max", "softmax_exp", "softmax_sum", "softmax_div")
OPTIMIZERS: Final = ("cs336", "foreach", "fused")


@dataclass(frozen=True)
class Size:
    """A model of the family, and what one step of its training takes."""

    name: str
    width: int
    ffn: int
    layers: int
    heads: int
    vocab: int = VOCAB
    batch: int = 4
    context: int = 128
    explicit: bool = True  # attention as its own matrices and softmax; else torch's fused one
    theta: float = 1e4
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def tokens(self) -> int:
        return self.batch * self.context

    @property
    def parameters(self) -> int:
        return sum(_product(shape) for shape in self.tensors().values())

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every parameter."""
        d, f = self.width, self.ffn
        shapes: dict[str, tuple[int, ...]] = {"token_embeddings": (self.vocab, d)}
        for i in range(self.layers):
            shapes |= {f"layers.{i}.attn.{n}_proj": (d, d) for n in ("q", "k", "v", "output")}
            shapes |= {
                f"layers.{i}.ffn.w1": (f, d),
                f"layers.{i}.ffn.w2": (d, f),
                f"layers.{i}.ffn.w3": (f, d),
            }
            shapes |= {f"layers.{i}.ln1": (d,), f"layers.{i}.ln2": (d,)}
        return {**shapes, "ln_final": (d,), "lm_head": (self.vocab, d)}

    def bytes_needed(self) -> int:
        """Parameters, gradients, both moments, and what the forward pass keeps for the backward pass."""
        t, scores = self.tokens, self.batch * self.heads * self.context**2
        layer = t * (12 * self.width + 4 * self.ffn) + (4 * scores if self.explicit else 0)
        kept = self.layers * layer + 2 * t * (self.width + self.vocab)
        return FP32 * (4 * self.parameters + kept)

    def with_layers(self, layers: int) -> "Size":
        """A part of the model, named as one."""
        return replace(self, name=f"{self.name} ({layers} of {self.layers} layers)", layers=layers)


SIZES: Final = {
    size.name: size
    for size in (
        Size("small", 768, 3072, 12, 12),
        Size("medium", 1024, 4096, 24, 16),
        Size("large", 1280, 5120, 36, 20),
        Size("xl", 1600, 6400, 48, 25),
        Size("2.7B", 2560, 10240, 32, 32),
    )
}


def forward_rows(size: Size) -> tuple[Row, ...]:
    """The ops of a forward pass, in their order."""
    ends = (
        _norm(size, "ln_final", None),
        _matmul(size, "lm_head", "lm_head", size.vocab, size.width, None),
        _each("loss", "loss", "other", size.tokens * size.vocab, None, flops=5, passes=2),
    )
    embed = _each("embed", "embed", "copy", size.tokens * size.width, None, flops=0, passes=2)
    return (embed, *(row for layer in range(size.layers) for row in _layer(size, layer)), *ends)


def backward_rows(size: Size) -> tuple[Row, ...]:
    """The same ops in reverse: a product is two products, everything else twice the traffic."""
    return tuple(
        replace(r, flops=(2 * r.flops[0], 0.0), bytes=(2 * r.bytes[0], 0.0))
        for r in reversed(forward_rows(size))
    )


def optimizer_rows(size: Size, optimizer: str) -> tuple[Row, ...]:
    """AdamW: a row for every tensor where it goes one by one, else one for all."""
    last = Row("zero_grad", "optimizer", "elementwise", shape=f"n={size.parameters}")
    if optimizer != "cs336":
        passes = 7 if optimizer == "fused" else 20
        whole = _each(f"adamw_{optimizer}", "optimizer", "elementwise", size.parameters, None, 12, passes)
        return whole, last
    return (*(_update(name, shape) for name, shape in size.tensors().items()), last)


def _layer(size: Size, layer: int) -> Iterator[Row]:
    d, f, n = size.width, size.ffn, size.tokens
    yield _norm(size, "ln1", layer)
    for name in "qkv":
        yield _matmul(size, f"{name}_proj", f"attn.{name}", d, d, layer)
    yield _each("rope", "attn.rope", "elementwise", 2 * n * d, layer, flops=3, passes=2)
    yield from _attention(size, layer)
    yield _matmul(size, "output_proj", "attn.out", d, d, layer)
    yield _each("attn_residual", "residual", "elementwise", n * d, layer, flops=1, passes=3)
    yield _norm(size, "ln2", layer)
    yield _matmul(size, "w1", "mlp.gate", f, d, layer)
    yield _matmul(size, "w3", "mlp.up", f, d, layer)
    yield _each("swiglu", "mlp.act", "elementwise", n * f, layer, flops=6, passes=3)
    yield _matmul(size, "w2", "mlp.down", d, f, layer)
    yield _each("ffn_residual", "residual", "elementwise", n * d, layer, flops=1, passes=3)


def _attention(size: Size, layer: int) -> Iterator[Row]:
    pairs = size.batch * size.heads * size.context**2
    flops = (2 * pairs * size.head_dim, 0.0)
    moved = (FP32 * (pairs + 2.0 * size.tokens * size.width), 0.0)
    shape = f"b={size.batch * size.heads} m={size.context} n={size.context} k={size.head_dim}"
    if not size.explicit:
        ends = (FP32 * 4.0 * size.tokens * size.width, 0.0)
        yield Row("attention", "attn.core", "attention", layer, shape, (2 * flops[0], 0.0), ends)
        return
    yield Row("scores", "attn.core", "matmul", layer, shape, flops, moved)
    yield _each("mask", "attn.core", "elementwise", pairs, layer, flops=2, passes=2)
    for name in SOFTMAX:
        passes = 2 if name in ("softmax_exp", "softmax_div") else 1
        yield _each(name, "attn.core", "softmax", pairs, layer, flops=1, passes=passes)
    yield Row("mix", "attn.core", "matmul", layer, shape, flops, moved)


def _matmul(size: Size, name: str, op: str, n: int, k: int, layer: int | None) -> Row:
    m = size.tokens
    moved = FP32 * (n * k + m * (n + k))
    return Row(name, op, "matmul", layer, f"m={m} n={n} k={k}", (2 * m * n * k, 0), (moved, 0))


def _norm(size: Size, name: str, layer: int | None) -> Row:
    return _each(name, "norm", "norm", size.tokens * size.width, layer, flops=4, passes=2)


def _each(name: str, op: str, category: str, count: int, layer: int | None, flops: int, passes: int) -> Row:
    return Row(name, op, category, layer, f"n={count}", (flops * count, 0), (passes * count * FP32, 0))


def _update(name: str, shape: tuple[int, ...]) -> Row:
    layer = int(name.split(".")[1]) if name.startswith("layers.") else None
    return _each("adamw", "optimizer", "elementwise", _product(shape), layer, flops=12, passes=20)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
