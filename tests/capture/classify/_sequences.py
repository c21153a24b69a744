"""Kernel sequences of layers as serving engines launch them, under the names they have there."""

from collections.abc import Iterable

import numpy as np

NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>"
GEMM = "nvjet_tst_{}_v_bz_TNT"
CORE = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>"
MERGE = "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, __nv_bfloat16>"
ROPE = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>"
STORE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>"
ACT = "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>"

HEAD = ["void at::native::vectorized_gather_kernel<16, long>"]
TAIL = [
    NORM,
    GEMM.format("160x64"),
    "void at::native::vectorized_elementwise_kernel<4, bfloat16tofloat32_copy>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
]

_ATTENTION = [NORM, GEMM.format("80x64"), ROPE, STORE]
_OUT = [GEMM.format("96x64"), NORM]
_MLP = [GEMM.format("120x64"), ACT, GEMM.format("128x64")]
_EXPERTS = [
    GEMM.format("136x64"),
    "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>",
    "void vllm::moe::moe_align_block_size_kernel<int>",
    "fused_moe_kernel",
    ACT,
    "fused_moe_kernel",
    "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>",
]
_OSS = [
    GEMM.format("136x64"),
    "triton_poi_fused_constant_pad_nd_moe_forward_0",
    "_topk_forward",
    "_sum_bitmatrix_rows",
    "_combined_routing_memset",
    "_combined_routing_compute",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
    "_finalize_matmul_scatter_bf16",
]

DENSE = [*_ATTENTION, CORE, MERGE, *_OUT, *_MLP]
MOE = [*_ATTENTION, CORE, MERGE, *_OUT, *_EXPERTS]
OSS_LOCAL = [*_ATTENTION, "kernel_unified_attention_2d", *_OUT, *_OSS]
OSS_GLOBAL = [*_ATTENTION, "kernel_unified_attention_3d", "reduce_segments", *_OUT, *_OSS]

_QK = [NORM, GEMM.format("80x64"), "triton_rms_norm_q", "triton_rms_norm_k", ROPE, STORE]
_POST = [
    GEMM.format("96x64"),
    "void vllm::rms_norm_kernel<float>",
    NORM,
    *_MLP,
    "void vllm::rms_norm_kernel<float>",
]
GEMMA_LOCAL = [*_QK, "flash_fwd_splitkv_kernel<sliding>", *_POST]
GEMMA_GLOBAL = [*_QK, "flash_fwd_kernel<full>", *_POST]

LINEAR = [
    NORM,
    GEMM.format("64x64"),
    "_causal_conv1d_update_kernel",
    "fused_recurrent_gated_delta_rule_fwd_kernel",
    "layer_norm_gated_fwd_kernel",
    GEMM.format("88x64"),
    NORM,
    *_EXPERTS,
]

_LATENT = [
    NORM,
    GEMM.format("72x64"),
    "void vllm::rms_norm_kernel<q_a>",
    GEMM.format("144x64"),
    "void vllm::rms_norm_kernel<kv_a>",
    ROPE,
    "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>",
    "flash_fwd_mla_combine_kernel",
    GEMM.format("152x64"),
    *_OUT,
]
MLA_DENSE = [*_LATENT, *_MLP]
MLA_MOE = [*_LATENT, *_EXPERTS, GEMM.format("104x64"), ACT, GEMM.format("112x64"), "add_kernel"]


def codes(values: Iterable[str]) -> tuple[np.ndarray, list[str]]:
    """Return the place of each value among the distinct ones, and those."""
    distinct: dict[str, int] = {}
    places = [distinct.setdefault(value, len(distinct)) for value in values]
    return np.array(places, dtype=np.int64), list(distinct)
