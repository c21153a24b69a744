"""The decoder: what stands before and after its layers, and the ops of a step in the order of the plan.

The residual stream is fp32 on the CPU and wherever the weights are fp16: Gemma's exceeds fp16.
"""

from typing import NamedTuple

import torch

from engines.cache import Caches, LayerCache
from engines.experts import Mixture
from engines.host.trace import Op
from engines.layer import Layer, LayerParts, State, rms_norm
from engines.models.spec import Spec, parameters
from engines.plan import MIXTURE, Load, Row, device_rows
from engines.ranks.tensor_parallel import Collectives, Team
from engines.rope import Rope
from engines.sample import GREEDY, Sampler, SamplingOptions
from engines.weights.loader import Loader
from engines.weights.sources import Source
from engines.weights.storage import Matrix, Storage, Table

CHUNK = 512  # positions of a prompt that are taken at once


class Parts(NamedTuple):
    """What a decoder is made of: the fused step shares it."""

    table: Table
    scale: float
    layers: tuple[LayerParts, ...]
    final: torch.Tensor
    head: Matrix


class Decoder:
    """A model, its cache and its sampler; `ops` are the plan's rows as calls."""

    def __init__(
        self,
        spec: Spec,
        source: Source,
        packing: Storage,
        device: torch.device,
        *,
        sampling: SamplingOptions = GREEDY,
        fused: bool = True,
        batch: int = 1,
        capacity: int = 1024,
        team: Team | None = None,
    ) -> None:
        """Build a decoder; for one of a team, spec and source are this rank's share."""
        self.spec, self.packing, self.capacity = spec, packing, capacity
        self.stream = stream_dtype(packing.dtype, device)
        self.fused, self._sampling = fused, sampling
        self.state = State(spec, batch, self.stream, device)
        self.sampler = Sampler(sampling, device)
        self._ranks = team.rank.size if team else 1
        self._collectives = Collectives(team, self.sampler, self.state, spec.vocab) if team else None
        self._loader = Loader(spec, source, packing, device, fused=fused)
        self._load_ends(device)
        self._ropes = {
            local: Rope(spec, capacity, self.stream, device, local=local) for local in {False, *spec.local}
        }
        self._caches = Caches(spec, batch, capacity, dtype=self.stream, device=device)
        self._layers = [
            Layer(
                i,
                self._loader.layer(i),
                self.caches[i],
                self._ropes[spec.window_of(i) is not None],
                self.state,
            )
            for i in range(spec.layers)
        ]
        mixtures = ((i, self._loader.mixture(i)) for i in range(spec.layers))
        self._mixtures = {i: Mixture(weights, self.state) for i, weights in mixtures if weights}
        self.ops: tuple[Op, ...] = tuple(self._op_of(row) for row in self.rows())

    @property
    def parts(self) -> Parts:
        layers = tuple(layer.parts for layer in self._layers)
        scale = self._scale if self.spec.embed_scale else 1.0
        return Parts(self._table, scale, layers, self._final, self._head)

    @property
    def caches(self) -> tuple[LayerCache, ...]:
        return self._caches.layers

    def rows(self, tokens: int = 1, start: int = 0) -> tuple[Row, ...]:
        """Return the plan of a step that takes so many positions of each sequence."""
        stream = self.stream.itemsize
        way = self.packing
        load = Load(
            self.state.batch,
            tokens,
            start,
            self.fused,
            way.weight_bytes,
            stream,
            stream,
            way.fusion,
            self._ranks,
        )
        return device_rows(self.spec, load, self._sampling.phases)

    def place(self, ids: torch.Tensor, at: int) -> None:
        """Set what the next pass over the ops takes: [batch, tokens] ids from a position on."""
        self.state.place(ids, at)
        self._caches.seek(at, ids.shape[1])
        for rope in self._ropes.values():
            rope.seek(at, ids.shape[1])

    def embed(self) -> None:
        s = self.state
        x = self._table(s.ids.reshape(-1)).to(self.stream)
        s.h = s.x = x * self._scale if self.spec.embed_scale else x

    def final_norm(self) -> None:
        s = self.state
        last = s.x.view(s.batch, s.tokens, -1)[:, -1]
        s.h = rms_norm(last, self._final, self.spec.eps, s.dtype, s.single(last.shape[1], self._head.takes))

    def lm_head(self) -> None:
        self.sampler.logits = self._head(self.state.h).to(self.stream)

    def _load_ends(self, device: torch.device) -> None:
        self._table, self._head = self._loader.ends()
        self._final = self._loader.norm("model.norm.weight")
        # the models were trained with the factor in bf16
        rounding = torch.float32 if self.packing.dtype == torch.float32 else torch.bfloat16
        self._scale = float(torch.tensor(self.spec.hidden**0.5).to(rounding))

    def _op_of(self, row: Row) -> Op:
        owner: object = self if row.layer is None else self._layers[row.layer]
        if row.op == "sample":
            owner = self.sampler
        elif row.layer is not None and row.op.startswith(MIXTURE):
            owner = self._mixtures[row.layer]
        elif row.op == "comm":
            owner = self._collectives
        op: Op = getattr(owner, row.method)
        return op


def stream_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype of the residual stream and of the cache."""
    if device.type == "cpu" or weights == torch.float16:
        return torch.float32
    return weights


def bytes_needed(spec: Spec, way: Storage, *, batch: int, capacity: int) -> int:
    """Return the memory that a decoder takes, before it is built."""
    ends = spec.vocab * spec.hidden
    stored = parameters(spec) * way.held + spec.tied * ends * way.beside
    kept = sum(min(spec.window_of(i) or capacity, capacity) for i in range(spec.layers))
    cache = 2 * kept * batch * spec.kv_width * 4
    passing = ends * way.passing + (256 << 20)  # one tensor on its way, and what torch itself takes
    return int(stored + cache + passing)
