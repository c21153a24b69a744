"""Signs of kernels as engines launch them, folding of eager pieces, and what the alignment finds."""

import random
from functools import lru_cache

import numpy as np
import pytest

from capture.classify.kernel_symbols import (
    align_prefixes,
    collapse_units,
    extract_base_name,
    find_symbol,
    mark_expert_choices,
    weigh_symbol,
)
from capture.classify.layer_boundaries import find_mixers
from capture.classify.layer_roles import assign_roles, map_role_to_op

SIGNS = {
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Mainloop>>>": "C",
    "void ck_tile::kentry<1, ck_tile::FmhaFwdSplitKVKernel<x>>": "C",
    "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, vllm::Fp8KVCacheDataType>": "C",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>": "C",
    "void tensorrt_llm::kernels::masked_multihead_attention_kernel<unsigned short>": "C",
    "_fwd_grouped_kernel_stage1": "C",
    "create_flashinfer_kv_indices_triton": "o",
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>": "N",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": "N",
    "triton_poi_fused_addmm_view_3": "e",
    "triton_poi_fused_mul_silu_1": "B",
    "_ZN10flashinfer10activation18act_and_mul_kernelI13__nv_bfloat16XadL": "B",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": "K",
    "void rope_norm<true, float>": "R",
    "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>": "G",
    "void vllm::moe::moe_align_block_size_kernel<int>": "U",
    "bmm_E4m3_E2m1E2m1_Fp32_t128x8x512u2_s6": "X",
    "_causal_conv1d_update_kernel": "V",
    "_selective_scan_update_kernel": "S",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64": "S",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>": "M",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256": "M",
    "void mul_mat_vec_q<(ggml_type)12, 1, false>": "M",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>": "m",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "m",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>": "Z",
    "void at::native::vectorized_gather_kernel<16, long>": "E",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "C",
    "aten::rsqrt": "n",
    "fmha_bwd_kernel": "o",
}
_MEAN = ["aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul", "aten::mul"]


@pytest.mark.parametrize(
    ("name", "sign"), SIGNS.items(), ids=[extract_base_name(name)[:40] for name in SIGNS]
)
def test_signs(name: str, sign: str) -> None:
    assert find_symbol(name) == sign


def test_products_of_int8_are_products() -> None:
    """Torch runs them in a namespace that is called `quantized`."""
    assert find_symbol("quantized::linear_dynamic", "matmul") == "M"
    assert find_symbol("aten::quantize_per_tensor") == "q"


def test_a_category_speaks_where_the_name_does_not() -> None:
    assert [find_symbol("mystery", category) for category in (None, "matmul", "attention", "norm")] == list(
        "oMCN"
    )


def test_eager_norms_and_attention_are_one_unit() -> None:
    norm = "".join(find_symbol(name) for name in _MEAN)
    units = collapse_units(f"E{norm}MMMMxasMMa{norm}M")
    assert units.symbols == "ENMMMCMaNM"
    assert units.starts[0] == 0
    assert units.starts[-1] == len(f"E{norm}MMMMxasMMa{norm}M")


@pytest.mark.parametrize("seed", range(20))
def test_alignment_agrees_with_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    text, reference = ("".join(rng.choices("MNaxC", k=rng.randrange(0, 9))) for _ in range(2))

    @lru_cache(None)
    def score(i: int, j: int) -> float:
        """Return the best score of the first i and the first j signs against each other."""
        if i == j == 0:
            return 0.0
        ways = []
        if i:
            ways.append(score(i - 1, j) - 0.6 * weigh_symbol(text[i - 1]))
        if j:
            ways.append(score(i, j - 1) - 0.6 * weigh_symbol(reference[j - 1]))
        if i and j:
            a, b = weigh_symbol(text[i - 1]), weigh_symbol(reference[j - 1])
            same = text[i - 1] == reference[j - 1]
            ways.append(score(i - 1, j - 1) + (a if same else -0.5 * a - 0.6 * b))
        return max(ways)

    best, where = align_prefixes(text, reference)
    for at in range(len(text) + 1):
        scores = [score(at, j) for j in range(len(reference) + 1)]
        assert best[at] == pytest.approx(max(scores))
        assert scores[where[at]] == pytest.approx(max(scores))


def test_roles_of_a_block_become_ops() -> None:
    named = assign_roles("NMRKCMaNMAxMa", (4, 5), False)
    assert named == (
        "attn.norm", "attn.qkv", "attn.rope", "attn.kv", "attn.core", "attn.out", "residual",
        "mlp.norm", "mlp.gate_up", "mlp.act", "mlp.act", "mlp.down", "residual",
    )  # fmt: skip
    assert [map_role_to_op(role) for role in (named[0], named[1], "comm", None)] == [
        "norm",
        "attn.qkv",
        None,
        None,
    ]


def test_the_product_of_what_was_gated_is_down_whatever_follows_it() -> None:
    """A gate and an up-projection apart, down, and one more product of the sum: Zamba's shared block."""
    roles = assign_roles("NMMMjjCMNMAMxMMa", (6, 7), False)
    assert roles[9:15] == ("mlp.gate", "mlp.act", "mlp.up", "mlp.act", "mlp.down", None)


def test_joins_before_any_arithmetic_grow_the_cache() -> None:
    """Keys and values are joined, then a bias of positions is computed: nothing is rotated."""
    roles = assign_roles("NMMMjjdgxaCMaNMAMa", (10, 11), False)
    assert roles[4:6] == ("attn.kv", "attn.kv")
    rotated = assign_roles("NMMMxgjxajjCMaNMAMa", (11, 12), False)
    assert rotated[4:11] == (*["attn.rope"] * 5, "attn.kv", "attn.kv")


def test_sums_of_a_norm_in_several_kernels_are_no_residuals() -> None:
    """After mean and power a small number and a bias are added: of the norm, whatever its root is called."""
    roles = assign_roles("MMMCMardprdaoxxaMAMardprdaoxxa", (3, 4), False)
    assert [at for at, role in enumerate(roles) if role == "residual"] == [5, 19]


@pytest.mark.parametrize(
    ("symbols", "marked"),
    [
        ("NMMMCMaNMsZZoMAMaNMMMC", "NMMMCMaNMsGGoMAMaNMMMC"),  # a router that takes the best expert
        ("NMZEaNMMMCMaNMAMa", "NMZEaNMMMCMaNMAMa"),  # a token, and the next pass
        ("NMZANMMMCMaNMAMaNMZ", "NMZANMMMCMaNMAMaNMZ"),  # the same with lengths clamped, no embedding known
    ],
)
def test_a_choice_that_a_feed_forward_follows_is_of_experts(symbols: str, marked: str) -> None:
    codes = np.frombuffer(symbols.encode(), dtype=np.uint8)
    assert mark_expert_choices(codes).tobytes().decode() == marked


def test_what_precedes_a_norm_of_the_router_is_no_shared_expert() -> None:
    symbols = "NMMMCMaNMNMAMsGoUMMMMAxMMMMxra"
    roles = assign_roles(symbols, (4, 5), False)
    assert [roles[at] for at in (7, 8, 9, 10, 12)] == [
        "mlp.norm", None, "mlp.norm", "moe.shared", "moe.router",
    ]  # fmt: skip


def test_a_scale_and_a_sum_between_products_before_attention_copy_nothing() -> None:
    roles = assign_roles("MxaMxaMMMCMaNMAMa", (9, 10), False)
    assert roles[1:3] == (None, None)
    assert roles[4:6] == (None, None)


def test_convolutions_of_q_and_k_are_no_state_space() -> None:
    """What mixes positions between the projections, and the norm of q and k after them, is left open."""
    symbols = "NMMjcaVVaaMMMjcjoroxgjxaxgjxajjCMaNMAMa"
    roles = assign_roles(symbols, (6, symbols.index("C") + 1), False)
    assert not any((role or "").startswith("ssm") for role in roles)
    assert {roles[at] for at in range(len(symbols)) if symbols[at] == "V"} == {None}
    assert roles[1:6] == (None, None, None, None, None) and roles[10:13] == ("attn.qkv",) * 3
    assert roles[13:19] == (None,) * 6 and set(roles[19:29]) == {"attn.rope"}
    assert roles[29:34] == ("attn.kv", "attn.kv", "attn.core", "attn.out", "residual")


def test_convolutions_without_products_are_no_mixers() -> None:
    """A layer of a Conformer: half a feed-forward, attention, a module of convolutions, the other half."""
    layer = "NMAMxaNMMMCMaNVoVNAVaNMAMxaN"
    assert [layer[start % len(layer)] for start, _ in find_mixers(layer * 4)] == ["C"] * 4
    assert len(find_mixers("NMxVxMaNMAMa" * 4)) == 4, "with products around it, it is one"


def test_a_norm_of_nine_kernels_is_one_unit() -> None:
    assert collapse_units("MardpraoxxaM").symbols == "MaNM"
