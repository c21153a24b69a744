"""A training step as ops that can be timed one by one: forward and optimizer; the backward pass is one call.

The model is the course's own: all is written out, and only attention may be left to torch as one op.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import functional

from engines.training.rows import SOFTMAX
from engines.training.sizes import Size

Op = Callable[[], None]
Maths = Callable[..., torch.Tensor]
BETAS: Final = (0.9, 0.999)
RATE: Final = 1e-3
DECAY: Final = 0.01
TINY: Final = 1e-8


@dataclass(frozen=True)
class Node:
    """One op of the forward pass: what it reads and writes by name."""

    maths: Maths
    reads: tuple[str, ...]
    writes: str


class Trainer:
    """A model, its data and its optimizer; the ops of a phase stand in the order of its rows."""

    def __init__(
        self,
        size: Size,
        device: torch.device,
        *,
        optimizer: str = "cs336",
        seed: int = 0,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.size = size
        random = torch.Generator().manual_seed(seed)
        self.parameters: dict[str, torch.Tensor] = {}
        tensors = size.tensors()
        for name, shape in tensors.items():
            self.parameters[name] = _parameter(shape, random).to(device).requires_grad_()
            progress(len(self.parameters) / len(tensors))
        self.ids = torch.randint(size.vocab, (size.batch, size.context + 1), generator=random).to(device)
        self._rope = _rope_tables(size, device)
        self._seen = torch.ones(size.context, size.context, dtype=torch.bool, device=device).tril()
        self.values: dict[str, torch.Tensor] = {}
        self.forward = tuple(self._forward(*node) for node in _with_last_reads(list(self._graph())))
        update = (
            AdamWByTensor(self.parameters) if optimizer == "cs336" else TorchAdamW(self.parameters, optimizer)
        )
        self.optimizer = (*update.ops(), self._zero_grad)

    def precision(self, phase: str) -> AbstractContextManager[Any]:
        """Return the context of a phase: for products in bf16, torch casts what the forward pass reads."""
        if self.size.mixed and phase == "forward":
            return torch.autocast(self.ids.device.type, torch.bfloat16)
        return nullcontext()

    @property
    def loss(self) -> float:
        return self.values["loss"].item()

    def backward(self) -> None:
        """Compute all gradients, as autograd goes through the graph of the forward pass."""
        self.values["loss"].backward()

    def _forward(self, node: Node, done_with: tuple[str, ...]) -> Op:
        def op() -> None:
            self.values[node.writes] = node.maths(*(self.values[name] for name in node.reads))
            for name in done_with:
                del self.values[name]

        return op

    def _zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _graph(self) -> Iterator[Node]:
        yield Node(lambda: self.parameters["token_embeddings"][self.ids[:, :-1]], (), "x0")
        for layer in range(self.size.layers):
            yield from self._layer(layer)
        last = f"x{2 * self.size.layers}"
        yield self._norm("ln_final", last, "normed")
        yield self._linear("lm_head", "normed", "logits")
        yield Node(self._loss, ("logits",), "loss")

    def _layer(self, layer: int) -> Iterator[Node]:
        at, x, middle, after = f"layers.{layer}.", *(f"x{2 * layer + i}" for i in range(3))
        yield self._norm(f"{at}ln1", x, "h")
        for name in "qkv":
            yield self._linear(f"{at}attn.{name}_proj", "h", name)
        for name in "qk":
            yield Node(self._turned, (name,), f"turned_{name}")
        yield from self._attention()
        yield self._linear(f"{at}attn.output_proj", "mixed", "out")
        yield Node(torch.add, (x, "out"), middle)
        yield self._norm(f"{at}ln2", middle, "g")
        yield self._linear(f"{at}ffn.w1", "g", "gate")
        yield self._linear(f"{at}ffn.w3", "g", "up")
        yield Node(_swiglu, ("gate", "up"), "act")
        yield self._linear(f"{at}ffn.w2", "act", "down")
        yield Node(torch.add, (middle, "down"), after)

    def _attention(self) -> Iterator[Node]:
        if not self.size.explicit:
            yield Node(self._fused, ("turned_q", "turned_k", "v"), "mixed")
            return
        yield Node(_scores, ("turned_q", "turned_k"), "scores")
        yield Node(self._masked, ("scores",), "masked")
        largest, powers, total, chances = SOFTMAX
        yield Node(_largest, ("masked",), largest)
        yield Node(_powers, ("masked", largest), powers)
        yield Node(_total, (powers,), total)
        yield Node(torch.div, (powers, total), chances)
        yield Node(self._mixed, (chances, "v"), "mixed")

    def _linear(self, name: str, reads: str, writes: str) -> Node:
        return Node(lambda x: functional.linear(x, self.parameters[name]), (reads,), writes)

    def _norm(self, name: str, reads: str, writes: str) -> Node:
        def maths(x: torch.Tensor) -> torch.Tensor:
            scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.size.eps)
            return x * scale * self.parameters[name]

        return Node(maths, (reads,), writes)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = x.unflatten(-1, (self.size.heads, -1))
        return heads.transpose(1, 2)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate neighbours against each other; the halves of the result are the first and the second."""
        x = self._heads(x)
        cos, sin = self._rope
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)

    def _masked(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.where(self._seen, scores / math.sqrt(self.size.head_dim), -torch.inf)

    def _mixed(self, chances: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (chances @ self._heads(v)).transpose(1, 2).flatten(2)

    def _fused(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mixed = functional.scaled_dot_product_attention(q, k, self._heads(v), is_causal=True)
        return mixed.transpose(1, 2).flatten(2)

    def _loss(self, logits: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())


class AdamWByTensor:
    """AdamW tensor by tensor, a dozen launches each, as the course writes it: decay comes last."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        self._of = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters.values()]
        self._steps = [0] * len(self._of)

    def ops(self) -> tuple[Op, ...]:
        return tuple(self._update(number) for number in range(len(self._of)))

    def _update(self, number: int) -> Op:
        parameter, mean, square = self._of[number]

        @torch.no_grad()
        def op() -> None:
            self._steps[number] += 1
            step, grad = self._steps[number], parameter.grad
            assert grad is not None, "the backward pass goes before"
            mean.mul_(BETAS[0]).add_((1 - BETAS[0]) * grad)
            square.mul_(BETAS[1]).add_((1 - BETAS[1]) * grad * grad)
            rate = RATE * (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
            parameter.sub_(rate * mean / (square.sqrt() + TINY))
            parameter.sub_(RATE * DECAY * parameter)

        return op


class TorchAdamW:
    """AdamW over all tensors at once, by torch."""

    def __init__(self, parameters: dict[str, torch.Tensor], how: str) -> None:
        self._optimizer = torch.optim.AdamW(
            parameters.values(),
            lr=RATE,
            betas=BETAS,
            eps=TINY,
            weight_decay=DECAY,
            foreach=how == "foreach",
            fused=how == "fused",
        )

    def ops(self) -> tuple[Op, ...]:
        return (self._step,)

    def _step(self) -> None:
        self._optimizer.step()


def _with_last_reads(nodes: list[Node]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Yield each node with the values that none after it reads: only the graph may hold on to them."""
    for at, node in enumerate(nodes):
        last = {n for n in node.reads if not _read_again(n, nodes[at + 1 :])}
        yield node, tuple(sorted(last))


def _read_again(name: str, later: list[Node]) -> bool:
    """Return whether a value is read before another takes its name."""
    for node in later:
        if name in node.reads:
            return True
        if node.writes == name:
            return False
    return False


def _parameter(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random).mul_(0.02)


def _rope_tables(size: Size, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = size.theta ** (-torch.arange(0, size.head_dim, 2, dtype=torch.float32) / size.head_dim)
    angle = torch.arange(size.context, dtype=torch.float32)[:, None] * frequencies
    return angle.cos().to(device), angle.sin().to(device)


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _largest(scores: torch.Tensor) -> torch.Tensor:
    return scores.max(-1, keepdim=True).values


def _powers(scores: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    return (scores - largest).exp()


def _total(powers: torch.Tensor) -> torch.Tensor:
    return powers.sum(-1, keepdim=True)
