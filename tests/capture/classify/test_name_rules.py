"""What names say: role, category, layer and phase of kernels as profilers really call them."""

import polars as pl
import pytest

from capture.classify.name_rules import (
    PHASE_RULES,
    PhaseRule,
    find_layer,
    find_phase,
    find_phase_rule,
    has_model_position,
    infer_op_and_category,
    infer_scope_roles,
)
from capture.import_log import Log
from capture.run import build_run

ROLES = {
    "matmul:q_proj:L3": ("attn.q", "matmul"),
    "matmul_rmsnorm_fused:L10.ffn_down": ("mlp.down", "matmul"),
    "matmul:lm_head": ("lm_head", "matmul"),
    "fused_ffn": ("mlp", "matmul"),
    "attention": ("attn.core", "attention"),
    "rope": ("attn.rope", "elementwise"),
    "batch_decode_paged_kv_kernel": ("attn.core", "attention"),
    "tir_kv_cache_transpose_append_kernel": ("attn.kv", "copy"),
    "fuse_add_norm_prefill_kernel": ("norm", "norm"),
    "rms_norm1_kernel": ("norm", "norm"),
    "NT_matmul7_kernel_2": (None, "matmul"),
    "fused_split1_silu1_multiply1_kernel": ("mlp.act", "elementwise"),
    "model.layers.3.post_attention_layernorm": ("norm", "norm"),
    "mlp.act_fn": ("mlp.act", "elementwise"),
    "void pytorch_flash::flash_fwd_kernel<...>(...)": ("attn.core", "attention"),
    "attn_fwd": ("attn.core", "attention"),
    "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV": (None, "matmul"),
    "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn": (None, "matmul"),
    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT": (None, "matmul"),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": ("comm.all_reduce", "comm"),
    "psum.3": ("comm.all_reduce", "comm"),  # JAX on a processor
    "ppermute": ("comm.send_recv", "comm"),
    "psum_of_squares": (None, "other"),
    "Memcpy DtoH (Device -> Pinned)": ("memcpy", "copy"),
    "softmax_warp_forward": ("softmax", "softmax"),
    "sample_phase1": ("sample", "sampling"),
    "a name that says nothing": (None, "other"),
}
LAYERS = {
    "matmul:q_proj:L7": 7,
    "matmul_rmsnorm_fused:L25.ffn_down": 25,
    "model.layers.11.mlp": 11,
    "Generation Loop / block_4 / sdpa_block_4_op": 4,
    "transformer.h.0.attn": 0,
    "attention": None,
}


@pytest.mark.parametrize(("name", "role"), ROLES.items(), ids=ROLES)
def test_roles(name: str, role: tuple[str | None, str]) -> None:
    assert infer_op_and_category(name) == role


@pytest.mark.parametrize(
    ("name", "places"),
    [("rms_norm_kernel", True), ("ncclDevKernel_AllReduce_Sum", True), ("ampere_gemm_128x64", False),
     ("Memcpy DtoH (Device -> Pinned)", False), ("CatArrayBatchedCopy", False), ("zyx", False)],
)  # fmt: skip
def test_a_copy_may_stand_anywhere_but_a_norm_says_where_it_is(name: str, places: bool) -> None:
    assert has_model_position(name) is places


@pytest.mark.parametrize(
    ("path", "role"),
    [("decode / L3.attn.qkv", "attn.qkv"), ("model / layers.3.self_attn.q_proj", "attn.q"),
     ("layers.3.mlp.down_proj", "mlp.down"), ("layers.3.mlp.down_proj / other", None), ("attention", None),
     (None, None)],
)  # fmt: skip
def test_the_innermost_scope_says_the_role(path: str | None, role: str | None) -> None:
    output = infer_scope_roles([path]).get(path or "")
    assert (output.op if output else None) == role


@pytest.mark.parametrize("rule", PHASE_RULES, ids=[rule.id for rule in PHASE_RULES])
def test_the_example_of_a_phase_is_decided_by_its_rule(rule: PhaseRule) -> None:
    assert find_phase_rule(rule.example) == rule


def test_each_rule_has_an_id_of_its_own() -> None:
    ids = [rule.id for rule in PHASE_RULES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("name", "layer"), LAYERS.items(), ids=LAYERS)
def test_layers(name: str, layer: int | None) -> None:
    assert find_layer(name) == layer


def test_phases() -> None:
    assert [find_phase(t) for t in ("Prompt Processing", "Generation Loop", "forward_pass", "elsewhere")] == [
        "prefill",
        "decode",
        "forward",
        None,
    ]


def test_a_decoder_is_no_phase() -> None:
    assert [find_phase(t) for t in ("LlamaDecoderLayer.forward", "decoder.layers.0", "decode")] == [
        "forward",
        None,
        "decode",
    ]


def test_what_the_source_states_stands() -> None:
    frame = pl.DataFrame(
        {
            "name": ["attention", "attention", "q_proj:L3"],
            "dur": [1, 2, 3],
            "op": ["mine", None, None],
            "layer": [None, 9, None],
        }
    )
    events = build_run("x", {}, frame, Log()).events
    assert events["op"].cast(pl.String).to_list() == ["mine", "attn.core", "attn.q"]
    assert events["layer"].to_list() == [None, 9, 3]
