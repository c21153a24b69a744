"""A mixture of experts: a method for every row of the plan, from the choice to the sum of what was chosen."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from engines.layer import State
from engines.models.spec import Experts
from engines.weights.storage import Matrix


@dataclass(frozen=True)
class Expert:
    """One expert's matrices, gate above up, and what is added to their products."""

    gate_up: Matrix
    down: Matrix
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


@dataclass(frozen=True)
class MixtureWeights:
    """A layer's experts, and the router that scores them; it is small and decides, so it stays in fp32."""

    mixture: Experts
    router: torch.Tensor
    router_bias: torch.Tensor | None
    experts: tuple[Expert, ...]


class Mixture:
    """The feed-forward of one layer; every public method is an op.

    A row and one of its experts make a pair; pairs of one expert lie together, so that it multiplies once.
    """

    def __init__(self, weights: MixtureWeights, state: State) -> None:
        self._w, self._s = weights, state
        self._shares = self._rows = self._wide = torch.empty(0)
        self._runs: list[tuple[Expert, slice]] = []

    def router(self) -> None:
        mixture = self._w.mixture
        scores = functional.linear(self._s.h.float(), self._w.router, self._w.router_bias)
        best, experts = scores.topk(mixture.chosen, -1)
        shares = best.softmax(-1) if mixture.normed else scores.softmax(-1).gather(-1, experts)
        order = experts.flatten().argsort(stable=True)
        self._rows = order // mixture.chosen
        self._shares = shares.flatten()[order, None]
        numbers, counts = experts.flatten()[order].unique_consecutive(return_counts=True)
        ends = counts.cumsum(0).tolist()
        self._runs = [
            (self._w.experts[number], slice(end - count, end))
            for number, count, end in zip(numbers.tolist(), counts.tolist(), ends, strict=True)
        ]

    def experts_gate_up(self) -> None:
        rows = self._s.h[self._rows]
        self._wide = torch.cat(
            [_added(expert.gate_up(rows[run]), expert.gate_up_bias) for expert, run in self._runs]
        )

    def experts_act(self) -> None:
        gate, up = self._wide.chunk(2, -1)
        mixture = self._w.mixture
        if not mixture.limit:
            self._wide = functional.silu(gate) * up
            return
        gate, up = gate.clamp(max=mixture.limit), up.clamp(-mixture.limit, mixture.limit)
        self._wide = gate * torch.sigmoid(mixture.alpha * gate) * (up + 1)

    def experts_down(self) -> None:
        self._wide = torch.cat(
            [_added(expert.down(self._wide[run]), expert.down_bias) for expert, run in self._runs]
        )

    def moe_combine(self) -> None:
        s, shared = self._s, (self._wide * self._shares).to(self._s.dtype)
        if s.rows == 1:
            s.h = shared.sum(0, keepdim=True)
        else:
            s.h = shared.new_zeros(s.rows, shared.shape[1]).index_add_(0, self._rows, shared)


def _added(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return product if bias is None else product + bias
