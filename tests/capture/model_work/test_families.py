"""Sizes that configs of several families give, against the weights of models that transformers builds."""

import json
import re
from typing import Any

import pytest

from capture.model_work.model_config import parse_config
from capture.model_work.role_work import Sharding, StepTokens, estimate_role

SMALL = {
    "vocab_size": 128, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 80, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1,
                     "moe_intermediate_size": 24},
    "falcon": {"num_kv_heads": None, "multi_query": True, "num_key_value_heads": None,
               "intermediate_size": None},
    "gemma3n_text": {"head_dim": 16, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8,
                     "vocab_size_per_layer_input": 128, "activation_sparsity_pattern": [0.0] * 4,
                     "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gpt_bigcode": {"n_embd": 48, "n_layer": 4, "n_head": 4, "multi_query": True, "num_key_value_heads": None,
                    "intermediate_size": None},
    "jamba": {"num_experts": 4, "mamba_d_state": 4, "mamba_dt_rank": 4, "attn_layer_period": 2,
              "attn_layer_offset": 1},
    "llama4_text": {**EXPERTS, "intermediate_size_mlp": 72, "interleave_moe_layer_step": 2, "head_dim": 16},
    "zamba2": {"mamba_d_state": 4, "n_mamba_heads": 4, "mamba_headdim": 24, "mamba_ngroups": 1,
               "hybrid_layer_ids": [1, 3], "layers_block_type": ["mamba", "hybrid"] * 2, "num_mem_blocks": 1,
               "num_key_value_heads": 4},
}  # fmt: skip
ROLES = (
    (r"\.q_proj", "attn.q"), (r"\.k_proj", "attn.k"), (r"\.v_proj", "attn.v"),
    (r"query_key_value|\.c_attn", "attn.qkv"),
    (r"(self_attn|self_attention)\.(o_proj|dense)|attn\.c_proj", "attn.out"),
    (r"(mlp|feed_forward)\.gate_proj", "mlp.gate"),
    (r"(mlp|feed_forward)\.(up_proj|c_fc|dense_h_to_4h)", "mlp.up"),
    (r"(mlp|feed_forward)\.(down_proj|c_proj|dense_4h_to_h)", "mlp.down"),
    (r"gate_up_proj", "mlp.gate_up"), (r"feed_forward\.router|mlp\.gate", "moe.router"),
)  # fmt: skip
UNKNOWN = {"zamba2": {"attn.q", "attn.k", "attn.v", "attn.out"}}  # the attention has a size of its own


@pytest.mark.parametrize("family", FAMILIES)
def test_each_product_is_with_the_weights_of_its_role(family: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes = {k: v for k, v in {**SMALL, **FAMILIES[family]}.items() if v is not None}
    source = transformers.CONFIG_MAPPING[family](**sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(source)
    config = parse_config(json.loads(source.to_json_string(use_diff=False)), "a")
    assert config
    roles = set()
    for name, weight in model.named_parameters():
        layer = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
        role = next((r for pattern, r in ROLES if re.search(pattern + r"\.weight$", name)), None)
        if layer and role and "expert" not in name:
            work = estimate_role(config, Sharding(), role, int(layer[1]), StepTokens(3, 3))
            if role in UNKNOWN.get(family, ()):
                assert work is None
                continue
            assert work and work.flops == 2 * 3 * weight.numel(), (name, work and work.shape)
            roles.add(role)
    assert "mlp.down" in roles and (roles >= {"attn.out"} or family in UNKNOWN)
