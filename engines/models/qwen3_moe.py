"""Qwen 3 with a mixture of experts in most layers, or in all."""

from dataclasses import replace

from engines.models.config_fields import Family, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder, with_optional_windows
from engines.models.spec import Experts, Spec

MODEL_TYPE = "qwen3_moe"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    spec = read_decoder(config, name, find_rope_section(config))
    every = config.read_integer("decoder_sparse_step", 1)
    dense = {int(layer) for layer in config.read("mlp_only_layers") or ()}
    count = config.read_integer("num_experts", config.read_integer("num_local_experts", 0))
    experts = Experts(
        count,
        config.read_integer("num_experts_per_tok"),
        config.read_integer("moe_intermediate_size"),
        layers=tuple((layer + 1) % every == 0 and layer not in dense for layer in range(spec.layers)),
        normalises_shares=config.read_flag("norm_topk_prob"),
    )
    for training in ("output_router_logits", "router_aux_loss_coef"):
        config.read(training)
    return replace(with_optional_windows(config, spec), qk_norm=True, experts=experts)


PRESET = Spec(
    "qwen3-30b-a3b", MODEL_TYPE, 151936, 2048, 48, 32, 4, 128, 6144,
    tied=False, max_context=40960, qk_norm=True, experts=Experts(128, 8, 768),
    eos=(151645, 151643), hub=("Qwen/Qwen3-30B-A3B",),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, (PRESET,))
