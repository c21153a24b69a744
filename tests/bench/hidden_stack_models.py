"""Small configurations of architectures of transformers, for the bench of hidden stacks."""

from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_FULL_HEADS = {"num_key_value_heads": 4}
_VISION = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
_LATENT = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 2,
    "kv_lora_rank": 64, "q_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64,
    "moe_intermediate_size": 128, **_FULL_HEADS,
}  # fmt: skip
_SSM = {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}
_GPT = {"n_embd": 256, "n_layer": 6, "n_head": 4, "n_positions": 256}

# model type → changes of the small configuration; rules were made by looking at these
TUNED: dict[str, dict[str, Any]] = {
    "bamba": {**_SSM, "attn_layer_indices": [2, 5]},
    "bert": {}, "bloom": {"n_layer": 6, "n_head": 4}, "cohere2": {"sliding_window": 16},
    "dbrx": {"d_model": 256, "n_heads": 4, "n_layers": 6, "max_seq_len": 256,
             "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8},
             "ffn_config": {"hidden_size": 256, "ffn_hidden_size": 256, "moe_num_experts": 4,
                            "moe_top_k": 2}},
    "deepseek_v2": _LATENT, "deepseek_v3": _LATENT,
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "diffllama": {}, "dinov2": _VISION, "ernie4_5": {"head_dim": 64}, "exaone4": {"sliding_window": 16},
    "falcon": {}, "gemma2": {"head_dim": 64}, "glm4": {"head_dim": 64}, "gpt_bigcode": _GPT,
    "gpt_neox": {}, "gpt_oss": {**_EXPERTS, "head_dim": 64, "sliding_window": 16},
    "gptj": {**_GPT, "rotary_dim": 32}, "granitemoe": _EXPERTS,
    "granitemoehybrid": {**_SSM, **_EXPERTS, "layers_block_type": ["mamba", "mamba", "attention"] * 2,
                         "layer_types": ["mamba", "mamba", "attention"] * 2, "shared_intermediate_size": 256},
    "hunyuan_v1_dense": {"head_dim": 64},
    "jamba": {"use_mamba_kernels": False, "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 16,
              "num_hidden_layers": 8},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention"] * 2},
    "llama4_text": {**_EXPERTS, "head_dim": 64, "intermediate_size_mlp": 512},
    "mamba2": {"num_heads": 8, "head_dim": 64, "state_size": 16, "n_groups": 1},
    "minimax_m2": {**_EXPERTS, "head_dim": 64}, "mixtral": _EXPERTS,
    "modernbert": {"global_attn_every_n_layers": 3, "local_attention": 16, "reference_compile": False},
    "mpt": {"d_model": 256, "n_heads": 4, "n_layers": 6, "max_seq_len": 256}, "olmo2": {},
    "olmoe": _EXPERTS, "opt": {"ffn_dim": 512, "word_embed_proj_dim": 256}, "persimmon": {}, "phi3": {},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 128},
    "qwen3_5_text": {"head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                     "linear_key_head_dim": 32, "linear_value_head_dim": 32, "num_hidden_layers": 8},
    "qwen3_next": {**_EXPERTS, "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2,
                   "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
                   "num_hidden_layers": 8},
    "smollm3": {}, "stablelm": {}, "starcoder2": {}, "vit": _VISION,
    "llama": {}, "qwen3": {"head_dim": 64},
    "bitnet": {}, "ctrl": {"n_embd": 256, "n_layer": 6, "n_head": 4, "dff": 512, "n_positions": 256},
    "mobilebert": {"embedding_size": 128}, "roberta": {},
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "t5": {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 6, "num_heads": 4,
           "decoder_start_token_id": 0},
    "whisper": {"d_model": 256, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 4,
                "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
                "num_mel_bins": 16, "max_source_positions": 64, "max_target_positions": 128,
                "decoder_start_token_id": 3, "suppress_tokens": None, "begin_suppress_tokens": None},
    "falcon_mamba": {"state_size": 8},
    "nemotron_h": {"hybrid_override_pattern": "M-M*M-", "mamba_num_heads": 8, "mamba_head_dim": 64,
                   "ssm_state_size": 16, "n_groups": 1, "head_dim": 64, "use_mamba_kernels": False},
    "rwkv": {"attention_hidden_size": 256, "context_length": 256},
    "siglip_vision_model": _VISION,
    "nemotron": {},
    "zamba2": {"mamba_d_state": 16, "n_mamba_heads": 8, "mamba_headdim": 64, "mamba_ngroups": 1,
               "num_hidden_layers": 9, "hybrid_layer_ids": [2, 5, 8],
               "layers_block_type": ["mamba", "mamba", "hybrid"] * 3, "use_mamba_kernels": False,
               "num_mem_blocks": 1, **_FULL_HEADS},
}  # fmt: skip
_TWO_STACKS = {
    "d_model": 256, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "decoder_start_token_id": 2,
}  # fmt: skip
_SPEECH = {
    "conv_dim": [64] * 3, "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
}  # fmt: skip
# rules came from these, too
TUNED |= {
    "marian": _TWO_STACKS,
    "bart": _TWO_STACKS,
    "led": {
        **_TWO_STACKS,
        "attention_window": 16,
        "max_encoder_position_embeddings": 256,
        "max_decoder_position_embeddings": 256,
    },
    "umt5": OTHERS["t5"],
    "jetmoe": _EXPERTS,
    "olmo_hybrid": {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "num_hidden_layers": 8,
    },
    "deepseek_v32": _LATENT,
    "gemma4_text": {"head_dim": 64, "sliding_window": 16},
    "laguna": {**_EXPERTS, "head_dim": 64, "sliding_window": 16},
    "longt5": OTHERS["t5"],
    "megatron-bert": {},
    "minimax": {
        **_EXPERTS,
        "head_dim": 64,
        "layer_types": ["linear_attention", "full_attention"] * 3,
        "block_size": 16,
    },
    "nllb-moe": {**_TWO_STACKS, "num_experts": 4},
}
# recorded later
LATER: dict[str, dict[str, Any]] = {
    "blenderbot": _TWO_STACKS, "mbart": _TWO_STACKS, "pegasus": _TWO_STACKS,
    "apertus": {}, "cohere": {}, "electra": {"embedding_size": 128}, "helium": {"head_dim": 64},
    "distilbert": {"dim": 256, "n_layers": 6, "n_heads": 4, "hidden_dim": 512},
    "gemma3_text": {"head_dim": 64, "sliding_window": 16},
    "glm4_moe": {**_EXPERTS, "n_routed_experts": 4, "head_dim": 64, "first_k_dense_replace": 1, "n_group": 1,
                 "topk_group": 1},
    "gpt_neo": {"num_layers": 6, "num_heads": 4, "attention_types": [[["global", "local"], 3]],
                "window_size": 16},
    "mamba": {"state_size": 8, "use_mambapy": False}, "phi": {}, "phimoe": _EXPERTS,
    "xglm": {"d_model": 256, "ffn_dim": 512, "num_layers": 6, "attention_heads": 4},
    "clip_text_model": {"projection_dim": 256},
    "codegen": {**_GPT, "rotary_dim": 32, "n_ctx": 256},
    "falcon_h1": {**_SSM, "mamba_d_ssm": 512, "head_dim": 64},
    "recurrent_gemma": {"lru_width": 256, "attention_window_size": 16, "head_dim": 64},
    "hubert": _SPEECH, "wav2vec2": _SPEECH, "wavlm": _SPEECH, "unispeech": _SPEECH,
    "arcee": {}, "beit": _VISION, "biogpt": {}, "data2vec-text": {}, "dinov3_vit": _VISION, "esm": {},
    "flex_olmo": _EXPERTS, "gemma": {"head_dim": 64}, "glm": {"head_dim": 64}, "gpt2": _GPT, "granite": {},
    "gpt_neox_japanese": {"intermediate_multiple_size": 2}, "ijepa": _VISION,
    "hunyuan_v1_moe": {**_EXPERTS, "head_dim": 64, "moe_topk": 2}, "m2m_100": _TWO_STACKS, "mistral": {},
    "mt5": OTHERS["t5"], "nystromformer": {}, "olmo": {}, "olmo3": {"sliding_window": 16},
    "plbart": _TWO_STACKS, "qwen2": {}, "qwen3_moe": {**_EXPERTS, "head_dim": 64},
    "rembert": {"input_embedding_size": 128, "output_embedding_size": 128},
    "roformer": {"embedding_size": 256}, "seed_oss": {"head_dim": 64},
    "vit_mae": _VISION, "xlm-roberta": {},
    "convbert": {"embedding_size": 256}, "doge": {},
    "ernie4_5_moe": {**_EXPERTS, "moe_num_experts": 4, "moe_k": 2}, "eurobert": {}, "jais2": {},
    "minicpm3": {k: v for k, v in _LATENT.items() if k.endswith(("rank", "dim"))} | _FULL_HEADS, "mpnet": {},
    "nanochat": {}, "roberta-prelayernorm": {},
}  # fmt: skip
# recorded last; rules came from the first four
LATER |= {
    "zaya": _EXPERTS, "ibert": {}, "wav2vec2-conformer": _SPEECH, "dory": {}, "aria_text": {
        **_EXPERTS, "moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    "axk2": {**_LATENT, "head_dim": 64}, "bailing_hybrid": {**_LATENT, **_EXPERTS, "head_dim": 64},
    "big_bird": {"attention_type": "original_full"}, "flint": {}, "internlm3": {"head_dim": 64},
    "bigbird_pegasus": {**_TWO_STACKS, "attention_type": "original_full"}, "exaone": {},
    "data2vec-audio": _SPEECH, "deepseek_v4": _LATENT, "imagegpt": _GPT, "iquestcoder": {"head_dim": 64},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 32},
    "inkling_text": {**_EXPERTS, "head_dim": 64}, "longformer": {"attention_window": 16}, "mra": {},
    "ministral": {"head_dim": 64}, "openai-gpt": _GPT, "sew": {**_SPEECH, "squeeze_factor": 2},
    "modernbert-decoder": {"global_attn_every_n_layers": 3, "local_attention": 16}, "splinter": {},
    "pegasus_x": {**_TWO_STACKS, "block_size": 16, "num_global_tokens": 4, "stagger_local_blocks": False},
    "switch_transformers": {**OTHERS["t5"], "num_experts": 4, "num_decoder_layers": 6,
                            "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3},
    "unispeech-sat": _SPEECH, "vaultgemma": {"head_dim": 64, "sliding_window": 16}, "yoso": {},
    "xlm": {"emb_dim": 256, "n_layers": 6, "n_heads": 4},
}  # fmt: skip
# ten drawn by chance; rules came from kimi_linear and wav2vec2-bert
_STACK = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 16, "vocab_size": 512}  # fmt: skip
LATER |= {
    "apertus1p5_text": {}, "cvt": {}, "dinov2_with_registers": _VISION, "gpt-sw3": _GPT,
    "granite_swa": {"sliding_window": 16}, "kimi_linear": {**_LATENT, **_EXPERTS, "head_dim": 64},
    "minimax_m3_vl_text": {**_EXPERTS, "head_dim": 64}, "sew-d": {**_SPEECH, "squeeze_factor": 2},
    "t5gemma": {"encoder": _STACK, "decoder": {**_STACK, "cross_attention_hidden_size": 256}},
    "wav2vec2-bert": {},
}  # fmt: skip
# nine more; rules came from beam, lara_mini, mistral_large4_text and aimv2_vision_model
LATER |= {
    "aimv2_vision_model": _VISION, "beam": {}, "data2vec-vision": _VISION, "esmc": _FULL_HEADS,
    "focalnet": {}, "gemma4_unified_text": {"head_dim": 64, "sliding_window": 16}, "lara_mini": {},
    "mistral_large4_text": {**_LATENT, **_EXPERTS}, "sapiens2": _VISION,
}  # fmt: skip
# five more; a rule came from openai_privacy_filter
LATER |= {
    "dots3_note_text": {**_EXPERTS, **_LATENT, "head_dim": 64}, "granite_docling_text": {},
    "molmo2_text": {"head_dim": 64}, "openai_privacy_filter": {**_EXPERTS, "head_dim": 64}, "vitdet": _VISION,
}  # fmt: skip
# the same layer run again; masks between layers; xlm-roberta-xl, whose layers begin with a norm, runs the
# ops of RoBERTa in the same order: norms between its layers, 2.6 % of the time, are given to the wrong one
LATER |= {
    "albert": {}, "flaubert": {"emb_dim": 256, "n_layers": 6, "n_heads": 4}, "hrm_text": {},
    "xlm-roberta-xl": {},
}  # fmt: skip
# drawn by chance from what was left; rules came from canine and resnet
LATER |= {"canine": {}, "glm_image_text": {}, "resnet": {}}
ARCHITECTURES = TUNED | OTHERS | LATER
