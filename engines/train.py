"""A training step as ops that can be timed one by one: forward, backward, optimizer.

Every op's input is cut from the graph that made it, so each op can be differentiated alone: the whole
backward pass belongs to ops, and none is lost on another thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from capture.errors import EngineError
from engines.plan import Row
from engines.training import SOFTMAX, Size, backward_rows, forward_rows, optimizer_rows

Op = Callable[[], None]
Maths = Callable[..., torch.Tensor]
BETAS: Final = (0.9, 0.999)
RATE: Final = 1e-3
DECAY: Final = 0.01
TINY: Final = 1e-8


@dataclass(frozen=True)
class Phase:
    """A part of a step: its rows, and the calls that do them."""

    name: str
    rows: tuple[Row, ...]
    ops: tuple[Op, ...]


@dataclass(slots=True)
class Node:
    """One op of the forward pass: what it reads and writes by name, and what it made."""

    maths: Maths
    reads: tuple[str, ...]
    writes: str
    made: torch.Tensor | None = None


class Trainer:
    """A model, its data and its optimizer; `phases` are the steps' rows as calls."""

    def __init__(
        self, size: Size, device: torch.device, *, optimizer: str = "cs336", seed: int = 0, limit: int = 0
    ) -> None:
        refuse_beyond(size, limit)
        self.size = size
        random = torch.Generator().manual_seed(seed)
        self.parameters = {n: _parameter(s, random).to(device) for n, s in size.tensors().items()}
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self.ids = torch.randint(size.vocab, (size.batch, size.context + 1), generator=random).to(device)
        self._rope = _rope_tables(size, device)
        self._hidden = torch.ones(size.context, size.context, dtype=torch.bool, device=device).triu(1)
        self.values: dict[str, torch.Tensor] = {}
        self._nodes = tuple(self._graph())
        update = Unfused(self.parameters) if optimizer == "cs336" else Whole(self.parameters, optimizer)
        self.phases = (
            Phase("forward", forward_rows(size), tuple(self._forward(n) for n in self._nodes)),
            Phase("backward", backward_rows(size), tuple(self._backward(n) for n in reversed(self._nodes))),
            Phase("optimizer", optimizer_rows(size, optimizer), (*update.ops(), self._zero_grad)),
        )

    @property
    def loss(self) -> float:
        return self.values["loss"].item()

    def _forward(self, node: Node) -> Op:
        def op() -> None:
            node.made = node.maths(*(self.values[name] for name in node.reads))
            self.values[node.writes] = node.made.detach().requires_grad_()

        return op

    def _backward(self, node: Node) -> Op:
        def op() -> None:
            assert node.made is not None, "forward comes first"
            if node.writes == "loss":
                node.made.backward()
            else:
                node.made.backward(self.values.pop(node.writes).grad)
            node.made = None

        return op

    def _zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _graph(self) -> Iterator[Node]:
        yield Node(
            lambda: functional.embedding(self.ids[:, :-1], self.parameters["token_embeddings"]), (), "x0"
        )
        for layer in range(self.size.layers):
            yield from self._layer(layer)
        last = f"x{2 * self.size.layers}"
        yield self._norm("ln_final", last, "normed")
        yield self._linear("lm_head", "normed", "logits")
        yield Node(self._loss, ("logits",), "loss")

    def _layer(self, layer: int) -> Iterator[Node]:
        at, x, middle, after = f"layers.{layer}.", *(f"x{2 * layer + i}" for i in range(3))
        yield self._norm(f"{at}ln1", x, f"{at}h")
        for name in "qkv":
            yield self._linear(f"{at}attn.{name}_proj", f"{at}h", f"{at}{name}")
        yield Node(self._turned, (f"{at}q", f"{at}k"), f"{at}qk")
        yield from self._attention(at)
        yield self._linear(f"{at}attn.output_proj", f"{at}seen", f"{at}out")
        yield Node(torch.add, (x, f"{at}out"), middle)
        yield self._norm(f"{at}ln2", middle, f"{at}g")
        yield self._linear(f"{at}ffn.w1", f"{at}g", f"{at}gate")
        yield self._linear(f"{at}ffn.w3", f"{at}g", f"{at}up")
        yield Node(_swiglu, (f"{at}gate", f"{at}up"), f"{at}act")
        yield self._linear(f"{at}ffn.w2", f"{at}act", f"{at}down")
        yield Node(torch.add, (middle, f"{at}down"), after)

    def _attention(self, at: str) -> Iterator[Node]:
        if not self.size.explicit:
            yield Node(self._fused, (f"{at}qk", f"{at}v"), f"{at}seen")
            return
        yield Node(self._scores, (f"{at}qk",), f"{at}scores")
        yield Node(self._masked, (f"{at}scores",), f"{at}masked")
        largest, powers, total, chances = (at + name for name in SOFTMAX)
        yield Node(_largest, (f"{at}masked",), largest)
        yield Node(_powers, (f"{at}masked", largest), powers)
        yield Node(_total, (powers,), total)
        yield Node(torch.div, (powers, total), chances)
        yield Node(self._mixed, (chances, f"{at}v"), f"{at}seen")

    def _linear(self, name: str, reads: str, writes: str) -> Node:
        return Node(lambda x: functional.linear(x, self.parameters[name]), (reads,), writes)

    def _norm(self, name: str, reads: str, writes: str) -> Node:
        eps = self.size.eps
        return Node(
            lambda x: functional.rms_norm(x, x.shape[-1:], self.parameters[name], eps), (reads,), writes
        )

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)

    def _turned(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Neighbours turned against each other; the halves of the result are the first and the second."""
        both = torch.stack((self._heads(q), self._heads(k)))
        cos, sin = self._rope
        first, second = both[..., 0::2], both[..., 1::2]
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)

    def _scores(self, qk: torch.Tensor) -> torch.Tensor:
        return qk[0] @ qk[1].mT

    def _masked(self, scores: torch.Tensor) -> torch.Tensor:
        return (scores * self.size.head_dim**-0.5).masked_fill(self._hidden, -torch.inf)

    def _mixed(self, chances: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (chances @ self._heads(v)).transpose(1, 2).flatten(2)

    def _fused(self, qk: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen = functional.scaled_dot_product_attention(qk[0], qk[1], self._heads(v), is_causal=True)
        return seen.transpose(1, 2).flatten(2)

    def _loss(self, logits: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())


class Unfused:
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
            mean.mul_(BETAS[0]).add_((1 - BETAS[0]) * grad)
            square.mul_(BETAS[1]).add_((1 - BETAS[1]) * grad * grad)
            rate = RATE * (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
            parameter.sub_(rate * mean / (square.sqrt() + TINY))
            parameter.sub_(RATE * DECAY * parameter)

        return op


class Whole:
    """AdamW over all tensors at once, by torch."""

    def __init__(self, parameters: dict[str, torch.Tensor], how: str) -> None:
        self._optimizer = torch.optim.AdamW(
            parameters.values(), lr=RATE, betas=BETAS, eps=TINY, weight_decay=DECAY,
            foreach=how == "foreach", fused=how == "fused",
        )  # fmt: skip

    def ops(self) -> tuple[Op, ...]:
        return (self._step,)

    def _step(self) -> None:
        self._optimizer.step()


def refuse_beyond(size: Size, limit: int) -> None:
    """A size that does not fit into so many bytes is refused with the sum; 0: no limit is known."""
    needed, states = size.bytes_needed(), 16 * size.parameters
    if limit and needed > limit:
        raise EngineError(
            f"training {size.name} does not fit",
            why=f"weights, gradients and moments are {states / 1e9:.1f} GB, with what the forward pass keeps "
            f"{needed / 1e9:.1f} GB; {limit / 1e9:.1f} GB are free",
            todo="train a part of it with --layers, or a smaller size",
        )


def _parameter(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random).mul_(0.02)


def _rope_tables(size: Size, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = size.theta ** (-torch.arange(0, size.head_dim, 2, dtype=torch.float32) / size.head_dim)
    angle = torch.arange(size.context, dtype=torch.float32)[:, None] * frequencies
    return angle.cos().to(device), angle.sin().to(device)


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _largest(scores: torch.Tensor) -> torch.Tensor:
    return scores.amax(-1, keepdim=True)


def _powers(scores: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    return (scores - largest).exp()


def _total(powers: torch.Tensor) -> torch.Tensor:
    return powers.sum(-1, keepdim=True)
