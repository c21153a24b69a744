"""A training step as single ops: forward pass and optimizer; the backward pass is one call.

The model is that of the CS336 course: everything is written out, only attention may be torch's fused op.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from engines.training.model_sizes import ModelSize
from engines.training.training_plan import SOFTMAX

Op = Callable[[], None]
Maths = Callable[..., torch.Tensor]
BETAS: Final = (0.9, 0.999)
LEARNING_RATE: Final = 1e-3
WEIGHT_DECAY: Final = 0.01
ADAM_EPS: Final = 1e-8


class GraphNode(NamedTuple):
    """One op of the forward pass, and the names of its inputs and output."""

    maths: Maths
    reads: tuple[str, ...]
    writes: str


class Trainer:
    """A model, its data and its optimizer; the ops of a phase have the order of its plan."""

    def __init__(
        self,
        size: ModelSize,
        device: torch.device,
        optimizer: str = "cs336",
        seed: int = 0,
        report: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.size = size
        random = torch.Generator().manual_seed(seed)
        self.parameters: dict[str, torch.Tensor] = {}
        tensors = size.list_tensors()
        for name, shape in tensors.items():
            self.parameters[name] = _make_parameter(shape, random).to(device).requires_grad_()
            report(len(self.parameters) / len(tensors))
        self.ids = torch.randint(size.vocab, (size.batch, size.context + 1), generator=random).to(device)
        self._rope = _build_rope_tables(size, device)
        self._causal_mask = torch.ones(size.context, size.context, dtype=torch.bool, device=device).tril()
        self.values: dict[str, torch.Tensor] = {}
        self.forward = tuple(self._make_op(*node) for node in _iter_with_last_reads(list(self._iter_graph())))
        self.optimizer = (*build_updates(self.parameters, optimizer), self._clear_gradients)

    def enter_precision(self, phase: str) -> AbstractContextManager[Any]:
        """Return the context of a phase: for bf16 products, torch casts the inputs of the forward pass."""
        if self.size.is_mixed_precision and phase == "forward":
            return torch.autocast(self.ids.device.type, torch.bfloat16)
        return nullcontext()

    @property
    def loss(self) -> float:
        return self.values["loss"].item()

    def backward(self) -> None:
        """Compute all gradients by autograd."""
        self.values["loss"].backward()

    def _make_op(self, node: GraphNode, released: tuple[str, ...]) -> Op:
        def op() -> None:
            self.values[node.writes] = node.maths(*(self.values[name] for name in node.reads))
            for name in released:
                del self.values[name]

        return op

    def _clear_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _iter_graph(self) -> Iterator[GraphNode]:
        yield GraphNode(lambda: self.parameters["token_embeddings"][self.ids[:, :-1]], (), "x0")
        for layer in range(self.size.layers):
            yield from self._iter_layer(layer)
        last = f"x{2 * self.size.layers}"
        yield self._make_norm("ln_final", last, "normed")
        yield self._make_linear("lm_head", "normed", "logits")
        yield GraphNode(self._compute_loss, ("logits",), "loss")

    def _iter_layer(self, layer: int) -> Iterator[GraphNode]:
        at, x, middle, after = f"layers.{layer}.", *(f"x{2 * layer + i}" for i in range(3))
        yield self._make_norm(f"{at}ln1", x, "h")
        for name in "qkv":
            yield self._make_linear(f"{at}attn.{name}_proj", "h", name)
        for name in "qk":
            yield GraphNode(self._rotate, (name,), f"turned_{name}")
        yield from self._iter_attention()
        yield self._make_linear(f"{at}attn.output_proj", "mixed", "out")
        yield GraphNode(torch.add, (x, "out"), middle)
        yield self._make_norm(f"{at}ln2", middle, "g")
        yield self._make_linear(f"{at}ffn.w1", "g", "gate")
        yield self._make_linear(f"{at}ffn.w3", "g", "up")
        yield GraphNode(lambda gate, up: functional.silu(gate) * up, ("gate", "up"), "act")
        yield self._make_linear(f"{at}ffn.w2", "act", "down")
        yield GraphNode(torch.add, (middle, "down"), after)

    def _iter_attention(self) -> Iterator[GraphNode]:
        if not self.size.has_explicit_attention:
            yield GraphNode(self._attend_fused, ("turned_q", "turned_k", "v"), "mixed")
            return
        yield GraphNode(lambda q, k: q @ k.mT, ("turned_q", "turned_k"), "scores")
        yield GraphNode(self._mask_scores, ("scores",), "masked")
        largest, powers, total, chances = SOFTMAX
        yield GraphNode(lambda scores: scores.max(-1, keepdim=True).values, ("masked",), largest)
        yield GraphNode(lambda scores, top: (scores - top).exp(), ("masked", largest), powers)
        yield GraphNode(lambda each: each.sum(-1, keepdim=True), (powers,), total)
        yield GraphNode(torch.div, (powers, total), chances)
        yield GraphNode(self._mix_values, (chances, "v"), "mixed")

    def _make_linear(self, name: str, reads: str, writes: str) -> GraphNode:
        return GraphNode(lambda x: functional.linear(x, self.parameters[name]), (reads,), writes)

    def _make_norm(self, name: str, reads: str, writes: str) -> GraphNode:
        def maths(x: torch.Tensor) -> torch.Tensor:
            scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.size.eps)
            return x * scale * self.parameters[name]

        return GraphNode(maths, (reads,), writes)

    def _split_heads(self, x: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = x.unflatten(-1, (self.size.heads, -1))
        return heads.transpose(1, 2)

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate neighbouring numbers; the first and second of all pairs become the halves of the result."""
        x = self._split_heads(x)
        cos, sin = self._rope
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)

    def _mask_scores(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.where(self._causal_mask, scores / math.sqrt(self.size.head_dim), -torch.inf)

    def _mix_values(self, chances: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (chances @ self._split_heads(v)).transpose(1, 2).flatten(2)

    def _attend_fused(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mixed = functional.scaled_dot_product_attention(q, k, self._split_heads(v), is_causal=True)
        return mixed.transpose(1, 2).flatten(2)

    def _compute_loss(self, logits: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())


def build_updates(parameters: dict[str, torch.Tensor], optimizer: str) -> tuple[Op, ...]:
    """Build the ops of AdamW: one per tensor, as the course has it, or torch's over all at once."""
    if optimizer == "cs336":
        return tuple(map(_make_update, parameters.values()))
    settings: dict[str, Any] = {"lr": LEARNING_RATE, "betas": BETAS, "eps": ADAM_EPS, optimizer: True}
    adam = torch.optim.AdamW(parameters.values(), weight_decay=WEIGHT_DECAY, **settings)
    return (adam.step,)


def _make_update(parameter: torch.Tensor) -> Op:
    """Make AdamW of one tensor, a dozen launches, as the course writes it: decay comes last."""
    mean, square, steps = torch.zeros_like(parameter), torch.zeros_like(parameter), count(1)

    @torch.no_grad()
    def op() -> None:
        step, grad = next(steps), parameter.grad
        assert grad is not None, "the backward pass goes before"
        mean.mul_(BETAS[0]).add_((1 - BETAS[0]) * grad)
        square.mul_(BETAS[1]).add_((1 - BETAS[1]) * grad * grad)
        rate = LEARNING_RATE * (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
        parameter.sub_(rate * mean / (square.sqrt() + ADAM_EPS))
        parameter.sub_(LEARNING_RATE * WEIGHT_DECAY * parameter)

    return op


def _iter_with_last_reads(nodes: list[GraphNode]) -> Iterator[tuple[GraphNode, tuple[str, ...]]]:
    """Iterate over nodes with the values that no later node reads: only autograd may keep those."""
    for i, node in enumerate(nodes):
        released = {n for n in node.reads if not _is_read_again(n, nodes[i + 1 :])}
        yield node, tuple(sorted(released))


def _is_read_again(name: str, later: list[GraphNode]) -> bool:
    """Return whether a value is read before another one takes its name."""
    uses = (name in node.reads for node in later if name in (*node.reads, node.writes))
    return next(uses, False)


def _make_parameter(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random).mul_(0.02)


def _build_rope_tables(size: ModelSize, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = size.theta ** (-torch.arange(0, size.head_dim, 2, dtype=torch.float32) / size.head_dim)
    angle = torch.arange(size.context, dtype=torch.float32)[:, None] * frequencies
    return angle.cos().to(device), angle.sin().to(device)
