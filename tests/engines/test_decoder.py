"""The decoder against a plain one in fp64 and against transformers, past the window and through the cache."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.models.catalogue import read_config
from engines.token_sampling import SamplingOptions
from engines.weights import matrix_storage
from tests.engines import plain, tiny

FAMILIES = tuple(tiny.SPECS)


def relative(actual: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((actual - wanted).double().norm() / wanted.double().norm())


@pytest.mark.corpus
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "granular"])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_plain_decoder(family: str, fused: bool) -> None:
    spec = tiny.SPECS[family]
    table = tiny.weights(spec)
    ids = torch.randint(0, spec.vocab, (2, 26), generator=torch.Generator().manual_seed(1))
    actual = tiny.logits(tiny.decoder(spec, table, batch=2, fused=fused), ids, prefill=17)
    wanted = torch.stack([plain.forward(spec, table, row.tolist())[16:] for row in ids])
    assert relative(actual, wanted) < 1e-5
    assert torch.equal(actual.argmax(-1), wanted.argmax(-1))


@pytest.mark.corpus
@pytest.mark.parametrize("prefill", [1, 7, 8, 9, 25])
def test_where_the_prefill_ends_does_not_matter(prefill: int) -> None:
    spec = tiny.SPECS["gemma3"]
    table = tiny.weights(spec)
    ids = torch.randint(0, spec.vocab, (1, 26), generator=torch.Generator().manual_seed(2))
    actual = tiny.logits(tiny.decoder(spec, table), ids, prefill)[:, -1]
    assert relative(actual, plain.forward(spec, table, ids[0].tolist())[-1:]) < 1e-5


def test_a_prompt_taken_in_pieces_is_the_same_prompt() -> None:
    spec = tiny.SPECS["gemma3"]
    table = tiny.weights(spec)
    model = tiny.decoder(spec, table)
    ids = torch.randint(0, spec.vocab, (1, 30), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        for start, end in ((0, 11), (11, 13), (13, 30)):
            model.set_input(ids[:, start:end], start)
            for op in model.ops:
                op()
    assert relative(model.sampler.logits, plain.forward(spec, table, ids[0].tolist())[-1:]) < 1e-5


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize(
    "way", [matrix_storage.FP16, matrix_storage.BF16, matrix_storage.BF16_PREPACKED], ids=lambda p: p.name
)
@pytest.mark.parametrize("family", FAMILIES)
def test_sixteen_bits_stay_near(family: str, way: matrix_storage.PlainStorage) -> None:
    """The weights are rounded beforehand, so that only the arithmetic differs."""
    if way is matrix_storage.BF16_PREPACKED and not matrix_storage.has_fast_bf16():
        pytest.skip("this processor has no bf16 products")
    spec = tiny.SPECS[family]
    table = {k: v.to(way.dtype).float() for k, v in tiny.weights(spec).items()}
    ids = torch.randint(0, spec.vocab, (1, 20), generator=torch.Generator().manual_seed(4))
    actual = tiny.logits(tiny.decoder(spec, table, packing=way), ids, prefill=12)
    wanted = plain.forward(spec, table, ids[0].tolist())[11:]
    assert relative(actual[0], wanted) < (0.02 if way.dtype == torch.float16 else 0.05)


def test_a_residual_beyond_fp16_stays_finite() -> None:
    """Gemma's residual stream passes 65,504; fp16 weights must not make it infinite."""
    spec = tiny.SPECS["gemma3"]
    table = tiny.weights(spec)
    table["model.layers.0.post_feedforward_layernorm.weight"] += 2e5
    ids = torch.arange(12)[None]
    actual = tiny.logits(tiny.decoder(spec, table, packing=matrix_storage.FP16), ids, prefill=6)
    wanted = plain.forward(spec, table, ids[0].tolist())[5:]
    assert torch.isfinite(actual).all()
    assert relative(actual[0], wanted) < 0.02


def test_windowed_layers_keep_only_their_window() -> None:
    model = tiny.decoder(tiny.SPECS["gemma3"], tiny.weights(tiny.SPECS["gemma3"]), capacity=64)
    position = 2 * 16 * 4  # key and value, head_dim, fp32
    sizes = [sum(part.nbytes for part in cache.all_slots) for cache in model.caches]
    assert sizes == [8 * position] * 5 + [64 * position, 8 * position]


def test_the_plan_is_what_runs() -> None:
    model = tiny.decoder(tiny.SPECS["gemma3"], tiny.weights(tiny.SPECS["gemma3"]))
    assert [op.__name__ for op in model.ops] == [row.name for row in model.plan_step()]


def test_greedy_takes_the_likeliest_and_a_seed_repeats_a_draw() -> None:
    spec = tiny.SPECS["qwen2"]
    table = tiny.weights(spec)
    ids = torch.arange(9)[None]

    def tokens(sampling: SamplingOptions) -> list[int]:
        model = tiny.decoder(spec, table, sampling=sampling)
        tiny.logits(model, ids, prefill=8)
        return model.sampler.token.tolist()

    best = int(plain.forward(spec, table, list(range(9)))[-1].argmax())
    assert tokens(SamplingOptions()) == [best]
    assert tokens(SamplingOptions(temperature=5.0, top_k=1, seed=3)) == [best]
    assert tokens(SamplingOptions(temperature=5.0, top_p=1e-6, seed=3)) == [best]
    drawn = {seed: tokens(SamplingOptions(temperature=3.0, seed=seed)) for seed in range(8)}
    assert {seed: tokens(SamplingOptions(temperature=3.0, seed=seed)) for seed in range(8)} == drawn
    assert len({t[0] for t in drawn.values()}) > 1


COMMON = {"vocab_size": 301, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 7,
          "num_attention_heads": 4, "max_position_embeddings": 512}  # fmt: skip
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e6}
CONFIGS = {
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {
        "head_dim": 16, "num_key_value_heads": 1, "sliding_window": 8, "query_pre_attn_scalar": 16,
    }),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {
        "head_dim": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_parameters": {**tiny.LLAMA3, "rope_theta": 5e5},
    }),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {
        "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE, "tie_word_embeddings": True,
    }),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {
        "head_dim": 16, "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE, "tie_word_embeddings": False,
    }),
    "mistral": ("MistralConfig", "MistralForCausalLM", {
        "head_dim": 16, "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE, "sliding_window": 8,
    }),
    "mistral without a window": ("MistralConfig", "MistralForCausalLM", {
        "head_dim": 16, "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE, "sliding_window": None,
    }),
    "qwen2 with windows": ("Qwen2Config", "Qwen2ForCausalLM", {
        "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE, "tie_word_embeddings": True,
        "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3,
    }),
}  # fmt: skip


def transformers_model(family: str) -> Any:
    """The same tiny model as transformers builds it."""
    transformers = pytest.importorskip("transformers")
    config, model, fields = CONFIGS[family]
    return getattr(transformers, model)(getattr(transformers, config)(**COMMON, **fields)).eval()


@pytest.mark.parametrize("family", CONFIGS)
def test_equals_transformers(family: str, tmp_path: Path) -> None:
    """From the config.json that transformers writes, through a prefill and cached steps past every window."""
    model = transformers_model(family)
    model.config.save_pretrained(tmp_path)
    spec = read_config(tmp_path / "config.json", f"tiny-{family}")
    if family in tiny.SPECS:
        assert spec == replace(tiny.SPECS[family], max_context=512, eos=spec.eos, bos=spec.bos)
    table = tiny.weights(spec, seed=5)
    missing, extra = model.load_state_dict(table, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    ids = torch.randint(0, 301, (2, 40), generator=torch.Generator().manual_seed(6))
    with torch.inference_mode():
        wanted = model(ids).logits[:, 28:]
    actual = tiny.logits(tiny.decoder(spec, table, batch=2), ids, prefill=29)
    assert relative(actual, wanted) < 1e-5
    assert torch.equal(actual.argmax(-1), wanted.argmax(-1))


def test_on_a_gpu_shared_keys_are_folded_not_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mask and `enable_gqa` at once torch takes its slow way there, which holds every score."""
    from torch.nn import functional

    asked: list[bool] = []
    attend = functional.scaled_dot_product_attention

    def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
        asked.append(kwargs.get("enable_gqa", False))
        return attend(*args, **kwargs)

    spec = tiny.SPECS["llama"]
    table = tiny.weights(spec)
    ids = torch.randint(0, spec.vocab, (2, 26), generator=torch.Generator().manual_seed(1))
    wanted = tiny.logits(tiny.decoder(spec, table, batch=2), ids, prefill=17)
    model = tiny.decoder(spec, table, batch=2)
    for layer in model.layers:
        assert not layer._folds_heads, "a processor has a kernel for both"
        layer._folds_heads = True
    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    assert relative(tiny.logits(model, ids, prefill=17), wanted) < 1e-6
    assert asked and not any(asked)
