"""Mixture of experts: one method per op of the plan, from router to combination."""

from typing import NamedTuple

import torch
from torch.nn import functional

from engines.layer import StepState
from engines.models.spec import Experts
from engines.weights.matrix_storage import Matrix


class Expert(NamedTuple):
    """Matrices of one expert, gate above up, and their biases."""

    gate_up: Matrix
    down: Matrix
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


class MixtureWeights(NamedTuple):
    """Experts of a layer, and the router, which stays in fp32: it is small, and decides."""

    mixture: Experts
    router: torch.Tensor
    router_bias: torch.Tensor | None
    experts: tuple[Expert, ...]


class Mixture:
    """The feed-forward of one layer; every public method is an op.

    Rows are grouped by expert, so that each expert multiplies once.
    """

    def __init__(self, weights: MixtureWeights, state: StepState) -> None:
        self._w, self._s = weights, state
        self._shares = self._rows = self._hidden = torch.empty(0)
        self._expert_rows: list[tuple[Expert, slice]] = []

    def router(self) -> None:
        mixture = self._w.mixture
        scores = functional.linear(self._s.h.float(), self._w.router, self._w.router_bias)
        top, experts = scores.topk(mixture.active, -1)
        shares = top.softmax(-1) if mixture.normalises_shares else scores.softmax(-1).gather(-1, experts)
        order = experts.flatten().argsort(stable=True)
        self._rows = order // mixture.active
        self._shares = shares.flatten()[order, None]
        numbers, counts = experts.flatten()[order].unique_consecutive(return_counts=True)
        ends = counts.cumsum(0).tolist()
        self._expert_rows = [
            (self._w.experts[number], slice(end - count, end))
            for number, count, end in zip(numbers.tolist(), counts.tolist(), ends, strict=True)
        ]

    def experts_gate_up(self) -> None:
        rows = self._s.h[self._rows]
        self._hidden = torch.cat(
            [_add_bias(expert.gate_up(rows[run]), expert.gate_up_bias) for expert, run in self._expert_rows]
        )

    def experts_act(self) -> None:
        gate, up = self._hidden.chunk(2, -1)
        mixture = self._w.mixture
        if not mixture.limit:
            self._hidden = functional.silu(gate) * up
            return
        gate, up = gate.clamp(max=mixture.limit), up.clamp(-mixture.limit, mixture.limit)
        self._hidden = gate * torch.sigmoid(mixture.alpha * gate) * (up + 1)

    def experts_down(self) -> None:
        self._hidden = torch.cat(
            [_add_bias(expert.down(self._hidden[run]), expert.down_bias) for expert, run in self._expert_rows]
        )

    def moe_combine(self) -> None:
        s, weighted = self._s, (self._hidden * self._shares).to(self._s.dtype)
        if s.row_count == 1:
            s.h = weighted.sum(0, keepdim=True)
        else:
            s.h = weighted.new_zeros(s.row_count, weighted.shape[1]).index_add_(0, self._rows, weighted)


def _add_bias(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return product if bias is None else product + bias
