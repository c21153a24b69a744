"""Qwen 3 with a mixture of experts in most layers, or in all."""

from dataclasses import replace

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family
from engines.models.spec import Experts, Spec
from engines.models.windows import switched_windows

MODEL_TYPE = "qwen3_moe"


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, rope_section(config))
    every = config.integer("decoder_sparse_step", 1)
    dense = {int(layer) for layer in config.get("mlp_only_layers") or ()}
    count = config.integer("num_experts", config.integer("num_local_experts", 0))
    experts = Experts(
        count,
        config.integer("num_experts_per_tok"),
        config.integer("moe_intermediate_size"),
        layers=tuple((layer + 1) % every == 0 and layer not in dense for layer in range(spec.layers)),
        normed=config.flag("norm_topk_prob"),
    )
    for training in ("output_router_logits", "router_aux_loss_coef"):
        config.get(training)
    return replace(switched_windows(config, spec), qk_norm=True, experts=experts)


FAMILY = Family(
    MODEL_TYPE,
    read,
    (
        Spec(
            "qwen3-30b-a3b", MODEL_TYPE, 151936, 2048, 48, 32, 4, 128, 6144,
            tied=False, max_context=40960, qk_norm=True, experts=Experts(128, 8, 768),
            eos=(151645, 151643), hub=("Qwen/Qwen3-30B-A3B",),
        ),
    ),
)  # fmt: skip
