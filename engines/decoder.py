"""The decoder: embedding, layers, head, and the ops of a step in the order of the plan.

The residual stream is fp32 on the CPU, and wherever the weights are fp16: Gemma's exceeds fp16.
"""

import torch

from engines.host.op_runners import Op
from engines.kv_cache import allocate_caches
from engines.layer import DecoderLayer, StepState, apply_rms_norm
from engines.models.spec import Spec, count_parameters
from engines.moe import Mixture
from engines.plan import MOE_PREFIX, Plan, PlannedOp, StepLoad, plan_device_ops
from engines.ranks.tensor_parallel import Collectives, Team
from engines.rope import RotaryEmbedding
from engines.token_sampling import GREEDY, SamplingOptions, TokenSampler
from engines.weights.checkpoint import WeightSource
from engines.weights.matrix_storage import Storage
from engines.weights.weight_loader import WeightLoader

PROMPT_CHUNK = 512  # positions of a prompt that are taken at once
TORCH_BYTES = 256 << 20  # what torch itself takes


class Decoder:
    """A model, its cache and its sampler; `ops` are the ops of the plan as calls.

    The fused step shares the embedding table and its scale, the layers, the last norm, and the head.
    """

    def __init__(
        self,
        spec: Spec,
        source: WeightSource,
        storage: Storage,
        device: torch.device,
        *,
        sampling: SamplingOptions = GREEDY,
        fused: bool = True,
        batch: int = 1,
        capacity: int = 1024,
        team: Team | None = None,
    ) -> None:
        """Build a decoder; in a team, spec and source are this rank's share."""
        self.spec, self.storage, self.capacity = spec, storage, capacity
        self.stream_dtype = choose_stream_dtype(storage.dtype, device)
        self.fused, self._sampling = fused, sampling
        self.state = StepState(spec, batch, self.stream_dtype, device)
        self.sampler = TokenSampler(sampling, device)
        self._ranks = team.rank.size if team else 1
        self._collectives = Collectives(team, self.sampler, self.state, spec.vocab) if team else None
        loader = WeightLoader(spec, source, storage, device, fused=fused)
        self.table, self.head = loader.load_embedding_and_head()
        self.final = loader.load_norm("model.norm.weight")
        # the models were trained with the factor in bf16
        rounding = torch.float32 if storage.dtype == torch.float32 else torch.bfloat16
        self.embedding_scale = float(torch.tensor(spec.hidden**0.5).to(rounding)) if spec.embed_scale else 1.0
        self._ropes = {
            local: RotaryEmbedding(spec, capacity, self.stream_dtype, device, is_windowed=local)
            for local in {False, *spec.windowed_layers}
        }
        self._cache_groups, self.caches = allocate_caches(spec, batch, capacity, self.stream_dtype, device)
        ropes = [self._ropes[spec.find_window(i) is not None] for i in range(spec.layers)]
        self.layers = [
            DecoderLayer(i, loader.load_layer(i), self.caches[i], ropes[i], self.state)
            for i in range(spec.layers)
        ]
        mixtures = ((i, loader.load_mixture(i)) for i in range(spec.layers))
        self._mixtures = {i: Mixture(weights, self.state) for i, weights in mixtures if weights}
        self.ops: tuple[Op, ...] = tuple(self._find_op(row) for row in self.plan_step())

    def plan_step(self, tokens: int = 1, start: int = 0) -> Plan:
        """Return the plan of a step that takes `tokens` positions of each sequence."""
        stream_bytes, storage = self.stream_dtype.itemsize, self.storage
        numbers = storage.weight_bytes, stream_bytes, stream_bytes
        load = StepLoad(self.state.batch, tokens, start, self.fused, *numbers, storage.fusion, self._ranks)
        return plan_device_ops(self.spec, load, self._sampling.phase_names)

    def set_input(self, ids: torch.Tensor, position: int) -> None:
        """Set the input of the next pass over the ops: [batch, tokens] ids from a position on."""
        self.state.set_input(ids, position)
        for group in self._cache_groups:
            group.seek(position, ids.shape[1])
        for rope in self._ropes.values():
            rope.select_positions(position, ids.shape[1])

    def embed(self) -> None:
        s = self.state
        x = self.table(s.ids.reshape(-1)).to(self.stream_dtype)
        s.h = s.x = x * self.embedding_scale if self.spec.embed_scale else x

    def final_norm(self) -> None:
        s = self.state
        last = s.x.view(s.batch, s.tokens, -1)[:, -1]
        s.h = apply_rms_norm(
            last, self.final, self.spec.eps, s.dtype, s.reserve_row(last.shape[1], self.head.input_dtype)
        )

    def lm_head(self) -> None:
        self.sampler.logits = self.head(self.state.h).to(self.stream_dtype)

    def _find_op(self, row: PlannedOp) -> Op:
        owner: object = self if row.layer is None else self.layers[row.layer]
        if row.op == "sample":
            owner = self.sampler
        elif row.layer is not None and row.op.startswith(MOE_PREFIX):
            owner = self._mixtures[row.layer]
        elif row.op == "comm":
            owner = self._collectives
        op: Op = getattr(owner, row.method)
        return op


def choose_stream_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype of the residual stream and of the cache."""
    if device.type == "cpu" or weights == torch.float16:
        return torch.float32
    return weights


def estimate_decoder_bytes(spec: Spec, storage: Storage, *, batch: int, capacity: int) -> int:
    """Estimate the memory of a decoder before it is built."""
    table_numbers = spec.vocab * spec.hidden
    weight_bytes = count_parameters(spec) * storage.held_bytes
    weight_bytes += spec.tied * table_numbers * storage.table_bytes
    cached_positions = sum(min(spec.find_window(i) or capacity, capacity) for i in range(spec.layers))
    cache_bytes = 2 * cached_positions * batch * spec.kv_width * 4
    build_bytes = table_numbers * storage.build_bytes  # one tensor on its way
    return int(weight_bytes + cache_bytes + build_bytes + TORCH_BYTES)
