"""Every family against transformers in fp32: a folder as transformers writes it, a prefill, and cached steps
past every window and past the context that a stretched rotation begins with.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.decoder import Decoder
from engines.models import FAMILIES
from engines.weights import matrix_storage, weight_sources
from tests.engines import folders, tiny

SIZES = {"vocab_size": 301, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
         "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
MAGNITUDES = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2, "beta_fast": 4.0, "truncate": False}
STATED = {**YARN, "attention_factor": 1.3, "beta_slow": 0.5}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16}
SIX = {"short_factor": [1.0] * 6, "long_factor": [1.0, 2.0, 3.0, 5.0, 8.0, 13.0], "factor": 32.0}
FOUR = {"short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 5.0, 11.0]}
PART = {"partial_rotary_factor": 0.67}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
MIXTURE = {"num_experts_per_tok": 2, "head_dim": 16}
QWEN3_MOE = {**MIXTURE, "num_experts": 5, "moe_intermediate_size": 32}
GPT_OSS = {**MIXTURE, **WINDOWS, "num_local_experts": 5, "hidden_size": 64, "intermediate_size": 96,
           "rope_parameters": {**YARN, "truncate": False}}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("Gemma3Text", {"head_dim": 16, **WINDOWS}),
    "gpt_oss": ("GptOss", GPT_OSS),
    "gpt_oss, cut off": ("GptOss", {**GPT_OSS, "swiglu_limit": 0.3, "swiglu_alpha": 1.1}),
    "llama, llama3": ("Llama", {"rope_parameters": {**tiny.LLAMA3, "rope_theta": 1e4}}),
    "llama, linear": ("Llama", {"rope_parameters": LINEAR}),
    "llama, yarn": ("Llama", {"rope_parameters": YARN, "tie_word_embeddings": True}),
    "llama, yarn, magnitudes": ("Llama", {"rope_parameters": MAGNITUDES}),
    "llama, yarn, stated": ("Llama", {"rope_parameters": STATED}),
    "llama, longrope": ("Llama", {"rope_parameters": {**LONG, **SIX}}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "olmo2": ("Olmo2", {}),
    "phi3": ("Phi3", {"sliding_window": 8}),
    "phi3, a part rotates": ("Phi3", {"rope_parameters": {**PLAIN, **PART}}),
    "phi3, longrope": ("Phi3", {"original_max_position_embeddings": 16, **PART,
                                "rope_parameters": {**LONG, **FOUR, **PART}}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "qwen3": ("Qwen3", {"head_dim": 16, "rope_parameters": YARN}),
    "qwen3_moe": ("Qwen3Moe", {**QWEN3_MOE, "norm_topk_prob": True}),
    "qwen3_moe, some layers": ("Qwen3Moe", {**QWEN3_MOE, "decoder_sparse_step": 2}),
    "qwen3_moe, all but one": ("Qwen3Moe", {**QWEN3_MOE, "mlp_only_layers": [1]}),
}  # fmt: skip
POSITIONS, PREFILL = 40, 9


def saved(kind: str, fields: dict[str, Any], folder: Path) -> Any:
    """A model of transformers with sharp attention and norms that matter, in a folder as it is published."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is what families are held against"
    )
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **fields})
    model = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config).eval()
    random = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn(weight.shape, generator=random) * (0.1 if weight.dim() > 1 else 0.2)
            weight.copy_(drawn + (1.0 if "norm" in name and kind != "Gemma3Text" else 0.0))
    model.save_pretrained(folder)
    return model


def ours(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    """What our engine makes of the folder: a prefill, and a cached step for each further id."""
    choice = weight_sources.choose_model("tiny", str(folder))
    source, cpu = weight_sources.open_source(choice, 0), torch.device("cpu")
    decoder = Decoder(choice.spec, source, matrix_storage.FP32, cpu, batch=len(ids), capacity=ids.shape[1])
    return tiny.logits(decoder, ids, PREFILL)


def assert_equal(model: Any, folder: Path) -> None:
    ids = torch.randint(0, 301, (2, POSITIONS), generator=torch.Generator().manual_seed(6))
    with torch.inference_mode():
        wanted = model(ids).logits[:, PREFILL - 1 :]
    actual = ours(folder, ids)
    assert float((actual - wanted).norm() / wanted.norm()) < 1e-5
    assert torch.equal(actual.argmax(-1), wanted.argmax(-1))
    assert float(wanted.std()) > 0.1, "logits that differ"


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_equals_transformers(case: str, tmp_path: Path) -> None:
    assert_equal(saved(*CASES[case], tmp_path), tmp_path)


def test_a_short_cache_keeps_the_short_factors(tmp_path: Path) -> None:
    """A context within the first one is rotated by other factors than a longer one."""
    kind, fields = CASES["phi3, longrope"]
    model = saved(kind, fields, tmp_path)
    ids = torch.arange(15)[None] + 7
    with torch.inference_mode():
        wanted = model(ids).logits[:, PREFILL - 1 :]
    assert float((ours(tmp_path, ids) - wanted).norm() / wanted.norm()) < 1e-5


def test_experts_in_mxfp4_equal_those_that_transformers_unpacks(tmp_path: Path) -> None:
    model = saved("GptOss", GPT_OSS, tmp_path)
    unpack = pytest.importorskip("transformers.integrations.mxfp4").convert_moe_packed_tensors
    library = pytest.importorskip("safetensors.torch")
    table = library.load_file(tmp_path / "model.safetensors")
    random = torch.Generator().manual_seed(3)
    for layer, own in enumerate(model.model.layers):
        for part in ("gate_up_proj", "down_proj"):
            weight = getattr(own.mlp.experts, part)
            count, narrow, wide = weight.shape
            blocks = torch.randint(0, 256, (count, wide, narrow // 32, 16), generator=random).byte()
            scales = torch.randint(120, 126, (count, wide, narrow // 32), generator=random).byte()
            with torch.no_grad():
                weight.copy_(unpack(blocks, scales))
            name = f"model.layers.{layer}.mlp.experts.{part}"
            del table[name]
            table |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    library.save_file(table, tmp_path / "model.safetensors")
    fields = json.loads((tmp_path / "config.json").read_text())
    fields["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert_equal(model, tmp_path)


@pytest.mark.parametrize("within", ["language_model.model.", "model.language_model."])
def test_a_text_model_within_one_with_images_is_the_same_model(within: str, tmp_path: Path) -> None:
    model = saved(*CASES["gemma3"], tmp_path / "text")
    text = json.loads((tmp_path / "text" / "config.json").read_text())
    table = {
        name.replace("model.", within, 1): tensor for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }  # fmt: skip
    table["vision_tower.patch.weight"] = torch.zeros(3)
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 7},
              "mm_tokens_per_image": 256, "image_token_index": 300}  # fmt: skip
    folders.write(tmp_path / "whole", config, table)
    assert_equal(model, tmp_path / "whole")


def test_no_family_is_left_out() -> None:
    """That of models with images is held against its text model, above."""
    assert {case.partition(",")[0] for case in CASES} == set(FAMILIES) - {"gemma3_vision"}
