"""Tiny models with every feature of the big ones, and weights under which each feature matters."""

from dataclasses import replace

import torch

from engines.decoder import Decoder
from engines.kv_cache import LayerCache
from engines.models.spec import Experts, RopeScaling, Spec, list_tensors
from engines.token_sampling import GREEDY, SamplingOptions
from engines.weights.checkpoint import WeightSource
from engines.weights.matrix_storage import FP32, PlainStorage

LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip

_GEMMA = Spec(
    "tiny-gemma3", "gemma3_text", 301, 48, 7, 4, 1, 16, 80,
    theta=1e6, theta_local=1e4, window=8, windowed_layers=(True,) * 5 + (False, True), activation="gelu_tanh",
    qk_norm=True, sandwich=True, unit_offset=True, embed_scale=True, query_scale=16**-0.5,
)  # fmt: skip

SPECS = {
    "gemma3": _GEMMA,
    "llama": Spec(
        "tiny-llama", "llama", 301, 48, 7, 4, 2, 16, 80,
        eps=1e-5, theta=5e5, scaling=RopeScaling("llama3", 32.0, 1.0, 4.0, 64),
    ),
    "qwen2": Spec("tiny-qwen2", "qwen2", 301, 48, 7, 4, 2, 12, 80, theta=1e6, qkv_bias=True),
    "qwen3": Spec("tiny-qwen3", "qwen3", 301, 48, 7, 4, 2, 16, 80, theta=1e6, qk_norm=True, tied=False),
    "mistral": Spec(
        "tiny-mistral", "mistral", 301, 48, 7, 4, 2, 16, 80,
        theta=1e6, window=8, windowed_layers=(True,) * 7, tied=False,
    ),
    "linear": replace(_GEMMA, name="tiny-gemma3-linear", scaling=RopeScaling("linear", 8.0)),
}  # fmt: skip

_MIXTURE = Experts(5, 2, 32, layers=(True, False, True, True), normalises_shares=False)
MORE = {  # families that the plain decoder does not know
    "qwen3_moe": Spec(
        "tiny-qwen3-moe", "qwen3_moe", 301, 48, 4, 4, 2, 16, 80, qk_norm=True, tied=False, experts=_MIXTURE,
    ),
    "gpt_oss": Spec(
        "tiny-gpt-oss", "gpt_oss", 301, 64, 4, 4, 2, 16, 96, scaling=RopeScaling("yarn", 8.0, 1.0, 32.0, 16),
        window=8, windowed_layers=(True, False) * 2, qkv_bias=True, out_bias=True, has_sinks=True, tied=False,
        experts=Experts(5, 2, 96, has_bias=True, limit=7.0, alpha=1.702),
    ),
    "olmo2": Spec(
        "tiny-olmo2", "olmo2", 301, 48, 4, 4, 2, 16, 80,
        pre_norm=False, sandwich=True, qk_norm=True, norms_all_heads=True,
    ),
    "phi3": Spec("tiny-phi3", "phi3", 301, 48, 4, 4, 2, 16, 80, partial_rotary_dim=10, tied=False),
}  # fmt: skip


class Table(WeightSource):
    """A source out of a plain dictionary."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def read(self, name: str) -> torch.Tensor:
        return self.weights[name]


def weights(spec: Spec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Large enough that attention is sharp, norms and biases not trivial."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=random) * (0.1 if len(shape) == 2 else 0.2)
        for name, shape in list_tensors(spec).items()
    }


def decoder(
    spec: Spec, table: dict[str, torch.Tensor], *, batch: int = 1, capacity: int = 64,
    packing: PlainStorage = FP32, fused: bool = True, sampling: SamplingOptions = GREEDY,
) -> Decoder:  # fmt: skip
    return Decoder(
        spec, Table(table), packing, torch.device("cpu"),
        sampling=sampling, fused=fused, batch=batch, capacity=capacity,
    )  # fmt: skip


def logits(model: Decoder, ids: torch.Tensor, prefill: int) -> torch.Tensor:
    """[batch, positions from the prefill's last one on, vocab]: a prefill, then a cached step for each id."""
    actual = []
    with torch.inference_mode():
        for start, end in ((0, prefill), *((i, i + 1) for i in range(prefill, ids.shape[1]))):
            model.set_input(ids[:, start:end], start)
            for op in model.ops:
                op()
            actual.append(model.sampler.logits.clone())
    return torch.stack(actual, 1)


def caches(model: Decoder) -> list[LayerCache]:
    return model.caches
