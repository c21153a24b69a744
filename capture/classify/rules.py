"""The rules that read a name: each has an id that stays, a pattern, what it concludes, and an example."""

import re
from typing import Final, NamedTuple


class RoleRule(NamedTuple):
    """A pattern in a name, and the op and category of a row whose name it fits."""

    id: str
    pattern: re.Pattern[str]
    op: str | None  # None leaves the op open
    category: str
    example: str  # a name that this rule decides


class PhaseRule(NamedTuple):
    """A pattern in a name or path, and the phase that it means."""

    id: str
    pattern: re.Pattern[str]
    phase: str
    example: str


LAYER: Final = re.compile(
    r"(?:\bL|\blayers?[._/ \[]?|\bblocks?[._/ ]|\bblk\.|\bh\.|\btransformer[._]h[._])(\d{1,4})(?!\d)"
)

# id, pattern, op, category, example; the first that fits decides
ROLE_RULES: Final = tuple(
    RoleRule(id, re.compile(pattern, re.IGNORECASE), op, category, example)
    for id, pattern, op, category, example in (
        ("comm", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_kernel|c10d::", None, "comm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        ("copy.memory", r"^mem(cpy|set)\b|^Memcpy|^Memset|hipMemcpy|Copy(HostTo|DeviceTo)|CopyBuffer|fallback_blit", None, "copy", "Memcpy DtoH (Device -> Pinned)"),
        ("lm_head", r"lm_?head|output_projection", "lm_head", "matmul", "matmul:lm_head"),
        ("attn.qkv", r"qkv_?(proj|gemv|fused)|attn_qkv|QkvFused", "attn.qkv", "matmul", "self_attn.qkv_proj"),
        ("attn.q", r"\bq_proj|attn_q\b", "attn.q", "matmul", "matmul:q_proj:L3"),
        ("attn.k", r"\bk_proj|attn_k\b", "attn.k", "matmul", "matmul:k_proj:L3"),
        ("attn.v", r"\bv_proj|attn_v\b", "attn.v", "matmul", "matmul:v_proj:L3"),
        ("attn.out", r"\bo_proj|out_proj|attn_output|output_proj", "attn.out", "matmul", "self_attn.o_proj"),
        ("mlp.gate_up", r"ffn_gate_up|gate_up", "mlp.gate_up", "matmul", "mlp.gate_up_proj"),
        ("mlp.gate", r"(ffn|mlp)[._]?gate|gate_proj", "mlp.gate", "matmul", "mlp.gate_proj"),
        ("mlp.up", r"(ffn|mlp)[._]?up|up_proj", "mlp.up", "matmul", "mlp.up_proj"),
        ("mlp.down", r"(ffn|mlp)[._]?(down|output)|down_proj", "mlp.down", "matmul", "matmul_rmsnorm_fused:L10.ffn_down"),
        ("mlp.fused", r"fused_ffn|mlp_swiglu|swiglu_mlp", "mlp", "matmul", "fused_ffn"),
        ("attn.rope", r"rotary|\brope|_rope|apply_rope", "attn.rope", "elementwise", "apply_rotary_emb"),
        ("attn.kv", r"kv_?cache|kv_?append|transpose_append|reshape_and_cache|kv_repeat|repeat_kv|kv_rearrange", "attn.kv", "copy", "tir_kv_cache_transpose_append_kernel"),
        ("norm", r"(rms|layer|batch|group)_?norm|add_norm|attn_norm|mlp_norm|final_norm|\bnorm\b", "norm", "norm", "model.layers.3.post_attention_layernorm"),
        ("attn.core", r"flash|fmha|sdpa|scaled_dot_product|paged_?attention|attention|attn_(fwd|bwd|core|scores)|paged_kv|ragged_kv|merge_state|BatchDecode|BatchPrefill", "attn.core", "attention", "void pytorch_flash::flash_fwd_kernel<...>(...)"),
        ("sample", r"sample|argmax|top_?k|top_?p|multinomial|gumbel", "sample", "other", "sample_phase1"),
        ("softmax", r"softmax", None, "softmax", "softmax_warp_forward"),
        ("embed", r"embed|\bgather|(\b|_)take\d*_kernel|index_select", "embed", "copy", "embed_tokens"),
        ("matmul", r"gemm|gemv|matmul|cutlass|cublas|nvjet|\bmm\b|addmm|bmm|linear|Cijk_|_xmma_|s\d+gemm|dot_kernel", None, "matmul", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"),
        ("mlp.act", r"silu|gelu|relu|sigmoid|swiglu|activation|act_and_mul|\bact_fn", "mlp.act", "elementwise", "fused_split1_silu1_multiply1_kernel"),
        ("reduce", r"reduce|\bsum\b|\bmean\b|argmin|cumsum|scan_kernel", None, "reduce", "void at::native::reduce_kernel<512, 1>"),
        ("elementwise", r"elementwise|residual|\badd|\bmul|\bscale\b|copy_kernel|CatArray|FillFunctor|triton_poi|cast|\bsplit|\bconvert|transpose", None, "elementwise", "void at::native::vectorized_elementwise_kernel<4>"),
        ("wait", r"cb_wait|dep_wait|synchronize|_wait\b|\bwait\b|eventSync", None, "wait", "cudaDeviceSynchronize"),
    )
)  # fmt: skip

# id, pattern, phase, example; the first that fits decides
PHASE_RULES: Final = tuple(
    PhaseRule(id, re.compile(pattern, re.IGNORECASE), phase, example)
    for id, pattern, phase, example in (
        ("phase.prefill",   r"prefill|prompt.?processing",      "prefill",   "Prompt Processing"),
        ("phase.decode",    r"decode(?!r)|generation.?loop",    "decode",    "Generation Loop"),
        ("phase.backward",  r"backward|autograd::engine",       "backward",  "autograd::engine::evaluate_function"),
        ("phase.optimizer", r"optimizer",                       "optimizer", "Optimizer.step#AdamW.step"),
        ("phase.forward",   r"forward_pass|\bforward\b",        "forward",   "LlamaDecoderLayer.forward"),
    )
)  # fmt: skip
