"""The config.json of a model: its sizes, its windows, how its weights are stored, and where it is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.errors import UnreadableError
from capture.model_work.model_config import find_config, parse_config, read_config

QWEN = {
    "model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 192, "vocab_size": 1000,
}  # fmt: skip


def parse(**more: Any) -> Any:
    config = parse_config({**QWEN, **more}, "config.json")
    assert config
    return config


def test_sizes_are_read_also_of_a_text_config_and_by_older_names() -> None:
    plain = parse()
    assert (plain.layers, plain.hidden, plain.heads, plain.kv_heads, plain.head_size) == (4, 64, 8, 2, 16)
    assert parse_config({"text_config": QWEN, "model_type": "qwen3"}, "config.json") == plain
    old = parse_config({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 9}, "c")
    assert old and (old.layers, old.inner, old.head_size, old.kv_heads, old.has_gate) == (2, 128, 8, 4, False)


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({}, (None,) * 4),
        ({"sliding_window": 8, "use_sliding_window": False}, (None,) * 4),
        ({"sliding_window": 8, "model_type": "mistral"}, (8,) * 4),
        ({"sliding_window": 8, "model_type": "gemma2"}, (8, None, 8, None)),
        ({"sliding_window": 8, "sliding_window_pattern": 4}, (8, 8, 8, None)),
        ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"] * 2}, (None, 8) * 2),
        ({"sliding_window": 8}, None),
    ],
)
def test_windows_are_those_of_each_layer_or_not_known(more: dict[str, Any], windows: Any) -> None:
    assert parse(**more).windows == windows


@pytest.mark.parametrize(
    ("quantisation", "formats"),
    [
        (None, [("bf16", 2.0)] * 3),
        ({"quant_method": "mxfp4"}, [("bf16", 2.0), ("bf16", 2.0), ("bf16", 0.53125)]),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, [("fp8", 1.0)] * 3),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, [("bf16", 0.5 + 2.5 / 128)] * 3),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, [("bf16", 1.0)] * 3),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*.self_attn*"]},
         [("bf16", 2.0), ("fp4", 0.5625), ("fp4", 0.5625)]),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 32}, "input_activations": None}}},
         [("bf16", 0.5 + 2 / 32)] * 3),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}},
         [("fp8", 1.0)] * 3),
        ({"quant_method": "of tomorrow"}, [None] * 3),
    ],
)  # fmt: skip
def test_weights_have_the_bytes_of_their_format_or_none_if_it_is_not_known(
    quantisation: Any, formats: list[Any]
) -> None:
    config = parse(quantization_config=quantisation)
    actual = [config.attention, config.network, config.routed]
    assert [f and (f.dtype, f.weight_bytes) for f in actual] == formats


def test_layers_without_experts_are_the_first_the_listed_and_all_but_each_kth() -> None:
    assert parse().has_experts(0) is False
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    assert [parse(**experts, first_k_dense_replace=1).has_experts(n) for n in range(3)] == [False, True, True]
    assert [parse(**experts, mlp_only_layers=[2]).has_experts(n) for n in (1, 2)] == [True, False]
    assert [parse(**experts, decoder_sparse_step=2).has_experts(n) for n in range(4)] == [False, True] * 2
    assert parse(**experts, n_shared_experts=2).mixture.shared_inner == 64


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"num_hidden_layers": 1}', "[" * 9999])
def test_a_file_that_is_no_config_is_unreadable(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UnreadableError):
        read_config(path)


@pytest.mark.parametrize("size", [True, -1, 0, 1.5, "64", None, 1 << 40])
def test_a_size_that_cannot_be_is_none(size: Any) -> None:
    assert parse_config({**QWEN, "hidden_size": size}, "config.json") is None


def test_a_config_is_found_beside_the_trace_else_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    trace = tmp_path / "traces" / "a.json"
    trace.parent.mkdir()
    assert find_config(trace, "Qwen/Tiny") is None
    cached = tmp_path / "hub" / "models--Qwen--Tiny" / "snapshots" / "1" / "config.json"
    cached.parent.mkdir(parents=True)
    cached.write_text(json.dumps(QWEN))
    assert find_config(trace, "Qwen/Tiny") == cached
    assert find_config(trace, "../../etc") is None and find_config(trace, None) is None
    adjacent = trace.with_name("config.json")
    adjacent.write_text("{}")
    assert find_config(trace, "Qwen/Tiny") == adjacent
