"""The presets against published totals, and configs in older and newer words."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.errors import CaptureError, EngineError, UsageError
from engines.models.catalogue import PRESETS, build_spec, find_preset, read_config
from engines.models.spec import RopeScaling, Spec, count_parameters, list_tensors
from tests.engines import folders

# published parameter counts, and those outside the embedding
TOTALS = {
    "gemma-3-1b": (999_885_952, 697_896_064),
    "gemma-3-270m": (268_098_176, 100_326_016),
    "gpt-oss-120b": (116_829_156_672, 116_250_023_232),
    "gpt-oss-20b": (20_914_757_184, 20_335_623_744),
    "llama-3.2-1b": (1_235_814_400, 973_146_112),
    "olmo-2-1b": (1_484_916_736, 1_279_395_840),
    "phi-3-mini": (3_821_079_552, 3_722_578_944),
    "phi-4": (14_659_507_200, 14_145_704_960),
    "qwen2.5-0.5b": (494_032_768, 357_898_112),
    "qwen3-0.6b": (596_049_920, 440_467_456),
    "qwen3-30b-a3b": (30_532_122_624, 30_220_957_696),
    "smollm2-135m": (134_515_008, 106_203_456),
    "smollm2-360m": (361_821_120, 314_635_200),
}


def test_every_preset_has_its_published_size() -> None:
    sizes = {n: (count_parameters(s), count_parameters(s) - s.vocab * s.hidden) for n, s in PRESETS.items()}
    assert sizes == TOTALS


def test_gemma_sees_everything_in_every_sixth_layer() -> None:
    spec = find_preset("gemma-3-1b")
    assert [i for i in range(spec.layers) if spec.find_window(i) is None] == [5, 11, 17, 23]
    assert spec.find_window(0) == 512


@pytest.mark.parametrize(("typed", "meant"), [("gemma3-1b", "gemma-3-1b"), ("llama3.2-1b", "llama-3.2-1b")])
def test_a_near_name_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean {meant}"):
        find_preset(typed)


@pytest.mark.parametrize("config", [folders.OLD_GEMMA, folders.NEW_GEMMA], ids=["old keys", "new keys"])
def test_gemma_in_both_wordings(config: dict[str, Any]) -> None:
    spec = build_spec(config, "tiny")
    assert (spec.theta, spec.theta_local, spec.window) == (1e6, 1e4, 8)
    assert spec.windowed_layers == (True,) * 5 + (False, True)
    assert (spec.qk_norm, spec.sandwich, spec.unit_offset, spec.tied) == (True, True, True, True)
    assert spec.query_scale == 0.25 and spec.eos == (1, 106) and spec.bos == 2


def test_llama_in_both_wordings() -> None:
    newer = {k: v for k, v in folders.OLD_LLAMA.items() if not k.startswith("rope")}
    newer["rope_parameters"] = {**folders.OLD_LLAMA["rope_scaling"], "rope_theta": 500000.0}
    older = build_spec(folders.OLD_LLAMA, "tiny")
    assert older == build_spec(newer, "tiny")
    assert older.scaling == RopeScaling("llama3", 32.0, 1.0, 4.0, 64) and older.theta == 5e5
    assert older.eos == (128001,)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Gemma3TextConfig", {"sliding_window": 8}),
        ("LlamaConfig", {"rope_parameters": {**folders.tiny.LLAMA3, "rope_theta": 5e5}}),
        ("Qwen2Config", {"sliding_window": 8}),
        ("Qwen3Config", {"head_dim": 16, "sliding_window": 8}),
    ],
)
def test_a_config_that_transformers_writes(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """A round through the file: what transformers holds is what is read."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, name)(num_hidden_layers=7, **fields)
    config.save_pretrained(tmp_path)
    spec = read_config(tmp_path / "config.json", "tiny")
    assert (spec.vocab, spec.hidden, spec.heads) == (
        config.vocab_size, config.hidden_size, config.num_attention_heads,
    )  # fmt: skip
    assert spec.kv_heads == config.num_key_value_heads and spec.tied == config.tie_word_embeddings
    assert [not spec.find_window(i) for i in range(7)] == [
        t == "full_attention" for t in getattr(config, "layer_types", None) or ["full_attention"] * 7
    ]
    assert bool(spec.scaling) == (name == "LlamaConfig")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "model type gpt2 is not supported"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"hidden_activation": "relu"}, "activation relu"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "rope type dynamic"),
        ({"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2}}, "rope type linear and yarn"),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "rope factor",
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": -2}}, "rope factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"hidden_size": 10**12}, "hidden"),
        ({"num_hidden_layers": -1}, "layers"),
        ({"num_key_value_heads": 3}, "heads"),
        ({"layer_types": ["full_attention"]}, "disagree"),
        ({"num_hidden_layers": [7]}, "invalid field"),
    ],
)
def test_what_is_not_decoded_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        build_spec({**folders.OLD_GEMMA, **change}, "tiny")


MISTRAL = {**folders.OLD_LLAMA, "model_type": "mistral", "sliding_window": 32, "rope_scaling": None}


def test_mistral_keeps_its_window() -> None:
    assert build_spec(MISTRAL, "tiny").window == 32 and all(build_spec(MISTRAL, "tiny").windowed_layers)
    assert build_spec({**MISTRAL, "sliding_window": None}, "tiny").windowed_layers == ()
    silent = {key: value for key, value in MISTRAL.items() if key != "sliding_window"}
    assert build_spec(silent, "tiny").window == 4096


# what other architectures, or newer versions of these, ask for
FEATURES = {
    "attention_bias": True, "attention_multiplier": 0.0078, "attention_sinks": 4, "auto_map": {"": ""},
    "clip_qkv": 8.0, "embedding_multiplier": 12.0, "final_logit_softcapping": 30.0, "is_causal": False,
    "kv_lora_rank": 512, "layer_types": ["chunked_attention"] * 7, "logits_scaling": 8.0, "mlp_bias": True,
    "no_rope_layers": [1, 0], "num_experts": 8, "num_local_experts": 8, "partial_rotary_factor": 0.5,
    "qk_norm": "rms", "quantization_config": {"quant_method": "gptq"}, "query_pre_attn_scalar": 256,
    "residual_multiplier": 0.22, "sliding_window": 8, "use_bidirectional_attention": True,
    "use_qk_norm": True, "use_sliding_window": True, "what_nobody_has_heard_of": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("key", FEATURES)
def test_a_key_that_llama_does_not_read_is_refused_by_name(key: str) -> None:
    with pytest.raises(EngineError, match=f"unsupported features \\({key}"):
        build_spec({**folders.OLD_LLAMA, key: FEATURES[key]}, "tiny")


@pytest.mark.parametrize(
    ("fields", "change", "said"),
    [
        (folders.NEW_GEMMA, {"layer_types": ["full_attention"] * 6 + ["linear_attention"]},
         "layer_types linear_attention"),
        (MISTRAL, {"layer_types": ["full_attention"] * 7}, "layer_types"),
        (MISTRAL, {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "attention_factor": 0.7}},
         "rope_scaling.attention_factor"),
        (MISTRAL, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3]}},
         "rope_parameters.mrope_section"),
        (folders.OLD_LLAMA, {"rope_parameters": {"rope_type": "default"}}, "differs from rope_parameters"),
        ({**MISTRAL, "model_type": "qwen2"}, {"layer_types": ["sliding_attention"] * 7},
         "without use_sliding_window"),
    ],
)  # fmt: skip
def test_a_half_known_feature_is_refused_by_name(
    fields: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(EngineError, match=f"unsupported features \\(.*{said}"):
        build_spec({**fields, **change}, "tiny")


@pytest.mark.parametrize(
    "change",
    [
        {"attention_bias": False, "mlp_bias": False, "clip_qkv": None, "partial_rotary_factor": 1.0},
        {"torch_dtype": "bfloat16", "_name_or_path": "x", "unsloth_fixed": True, "use_cache": True},
        {"architectures": ["LlamaForCausalLM"], "transformers.js_config": {"dtype": "q4"}, "pad_token_id": 2},
    ],
)
def test_what_changes_nothing_is_taken(change: dict[str, Any]) -> None:
    assert build_spec({**folders.OLD_LLAMA, **change}, "x") == build_spec(folders.OLD_LLAMA, "x")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"model_type": {}}'])
def test_a_broken_config_is_one_sentence(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(raw)
    with pytest.raises(CaptureError, match=r"config\.json"):
        read_config(path, "tiny")


def test_the_names_are_those_of_published_checkpoints() -> None:
    """The tensor names of a gemma layer, as its checkpoints print them."""
    layer = {n.split("layers.0.")[1] for n in list_tensors(find_preset("gemma-3-1b")) if "layers.0." in n}
    assert layer == {
        "input_layernorm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight",
        "post_feedforward_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
        "self_attn.v_proj.weight", "self_attn.o_proj.weight", "self_attn.q_norm.weight",
        "self_attn.k_norm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
    }  # fmt: skip
    assert "self_attn.q_proj.bias" in {
        n.split("layers.0.")[-1] for n in list_tensors(find_preset("qwen2.5-0.5b"))
    }


def test_presets_equal_configs_of_the_same_model() -> None:
    """The gemma-3-1b preset against the fields of its published config.json."""
    published = json.loads(
        '{"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,"num_hidden_layers":26,'
        '"num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"vocab_size":262144,'
        '"rms_norm_eps":1e-06,"rope_theta":1000000,"rope_local_base_freq":10000,"sliding_window":512,'
        '"sliding_window_pattern":6,"query_pre_attn_scalar":256,"max_position_embeddings":32768,'
        '"hidden_activation":"gelu_pytorch_tanh","eos_token_id":[1,106],"bos_token_id":2}'
    )
    actual = build_spec(published, "gemma-3-1b")
    assert actual == Spec(**{**vars(find_preset("gemma-3-1b")), "hub": ()})
