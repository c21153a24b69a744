"""Signs: one letter for what a kernel does, and the folding of eager pieces into units."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_READ: Final = 1 << 11  # characters of a name that are looked at

MIXERS: Final = "CSV"
EXPERTS: Final = "GXU"
HEAVY: Final = "MNCSVABGXURKEZs"
ACTS: Final = "AB"

# letter, pattern of the lower-case base name; the first that fits decides
_RULES: Final = tuple(
    (sign, re.compile(pattern))
    for sign, pattern in (
        ("m", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|"
              r"c10d|lamport|one_?shot|two_?shot|userbuffers"),
        ("c", r"^mem(cpy|set)\b|^hipmem|copybuffer|fillbuffer"),
        ("o", r"kv_indices|kv_indptr|page_table|block_table|resolve_future|schedule_metadata"),
        ("o", r"_bwd|bwd_|backward|optimizer|multi_tensor_apply"),
        ("Z", r"argmax|multinomial|sampl|top_?p\b|top_?p_|gumbel|top_?k_top_?p"),
        ("C", r"batch_?(decode|prefill)|paged_?attention|fmha|flash_(fwd|attn)|flashattn|"
              r"merge_?(attn_)?states?|mmha|xqa|multihead_attention|_fwd_grouped_kernel|_fwd_kernel_stage|^_fwd_kernel$"),
        ("K", r"reshape_and_cache|store_?kv|kv_?cache|kv_?append|append_paged|concat_and_cache|set_mla_kv|"
              r"cache_kernel|transpose_append"),
        ("S", r"selective_scan|selective_state|ssd_|chunk_scan|chunk_state|state_passing|"
              r"bmm_chunk|chunk_cumsum|delta_rule|linear_attn|lightning_attn|fused_recurrent|chunk_fwd|"
              r"chunk_gated|wkv|rwkv|retention|chunk_gla|solve_tril|chunk_local_cumsum|recompute_w_u|mamba"),
        ("V", r"conv1d|causal_conv|short_conv|conv2d|convolution|conv_depthwise|implicit_gemm|"
              r"convolve|scudnn|grouped_conv|igemm_(fwd|bwd|wrw)"),
        ("R", r"rotary|rope"),
        ("N", r"(rms|layer|group|batch|add|l2)_?norm|rmsnorm|norm2d|norm_kernel|norm_fwd|\bnorm\b|_norm_"),
        ("U", r"bitmatrix|routing|moe_(align|sum|sort|finalize|permute|unpermute|forward)|expert_?tokens|"
              r"finalize|moesorting|opus_moe_sort|(per|unper)mute_"),
        ("G", r"top_?k|gating|router|moe_gate"),
        ("X", r"fused_moe|moe_?gemm|group(ed)?_?(gemm|mm)|matmul_ogs|moe_?kernel|"
              r"marlin_moe|fmoe|moe_ck|ck_moe|^bmm_(bfloat16|fp|e4m3|e2m1|mx)"),
        ("U", r"moe|expert"),
        ("C", r"attention|attn|fmha|flash|batch(decode|prefill)|mha_|\bmla|mla_|sdpa|scaled_dot_product|"
              r"merge_state|splitkv|decode_grouped_att|_fwd_kernel_stage|reduce_segments|sage_fwd|paged_kv|ragged_kv"),
        ("s", r"soft_?max"),
        ("B", r"gated_op|_and_mul|silu_mul|swiglu|geglu|reglu|glu_kernel|fused_act_mul"),
        ("A", r"silu|gelu|\brelu|_relu\b|act_and_mul|activation|\btanh|softplus"),
        ("E", r"embed|index_?select|get_rows|vectorized_gather|(\b|_)take\d*_kernel"),
        ("q", r"quant|scaled_fp8|to_fp8|per_token_group"),
        ("b", r"\b(bmm|baddbmm)\b"),
        ("M", r"gemm|gemv|matmul|mul_mat|cutlass|cublas|nvjet|\bmm\b|addmm|\blinear\b|cijk_|xmma|wvsplitk|"
              r"\bdot_kernel|marlin|machete|splitkreduce"),
    )
)  # fmt: skip

# letter, pattern of the whole lower-case name: pieces that eager programs are made of
_PIECES: Final = tuple(
    (sign, re.compile(pattern))
    for sign, pattern in (
        ("Z", r"argmax|multinomial"),
        ("U", r"\b(arg)?sort|histc|bincount|histogram"),
        ("n", r"rsqrt"),
        ("p", r"\bpow|_pow|pow_|square"),
        ("A", r"silu|gelu|\btanh|tanh_kernel|\brelu|clamp_min_scalar|softplus"),
        ("s", r"softmax"),
        ("r", r"meanops|\bmean|reduce|\bsum\b|sum_functor|\bmax\b|\bamax|cumsum"),
        ("g", r"\bneg|_neg|neg_kernel"),
        ("j", r"catarray|\bcat\b|\bstack\b"),
        ("c", r"direct_copy|copy_|\bclone|\bcopy|contiguous|_to_copy"),
        ("d", r"\bsub\b|subfunctor"),
        ("x", r"mulfunctor|\bmul\b|\bmul_|\bdiv\b|divfunctor"),
        ("a", r"functor_add|addfunctor|\badd\b|\badd_|add_kernel|tensor_add|residual"),
    )
)  # fmt: skip
_CATEGORIES: Final = {
    "matmul": "M", "attention": "C", "norm": "N", "softmax": "s", "reduce": "r", "copy": "c", "comm": "m",
    "moe": "U", "conv": "V", "ssm": "S", "linear_attention": "S", "sampling": "Z", "quantize": "q",
    "elementwise": "e", "wait": "-", "host": "-", "memory": "c",
}  # fmt: skip
_GENERIC: Final = re.compile(r"at::native::.*(elementwise|reduce|index_elementwise)_kernel")
_HOLLOW: Final = re.compile(
    r"(cutlass|ck_tile).*(device_kernel|kentry|kernel2?)$"
)  # says nothing: the template does
_TEMPLATES: Final = tuple(
    (sign, re.compile(pattern))
    for sign, pattern in (
        ("C", r"flash|fmha"), ("N", r"rmsnorm|layernorm"), ("X", r"groupproblemshape|moe|groupedgemm"),
    )
)  # fmt: skip
_INDUCTOR: Final = re.compile(r"^triton_(poi|red|per|tem|mm)")
_FUSED: Final = tuple(
    (sign, re.compile(pattern))
    for sign, pattern in (
        ("M", r"^triton_(tem|mm)"), ("Z", r"argmax"), ("N", r"rsqrt|norm"), ("U", r"moe"),
        ("E", r"embedding"),        ("B", r"mul_(silu|gelu)|(silu|gelu)_mul"), ("A", r"silu|gelu|relu"),
        ("s", r"softmax"), ("R", r"rotary|rope|(cos|sin)_"),
    )
)  # fmt: skip


_CONDITION: Final = re.compile(r"^std::enable_if<.*?>::type ")


def base_name(name: str) -> str:
    """Return the name without return type, template arguments and parameters."""
    text = _CONDITION.sub("", name[:_READ]).removeprefix("void ").replace("(anonymous namespace)::", "")
    cut = min((at for at in (text.find("<"), text.find("(")) if at > 0), default=len(text))
    return text[:cut]


@lru_cache(maxsize=1 << 15)
def sign_of(name: str, category: str | None = None) -> str:
    """Return the letter for a kernel or op; 'o' when neither name nor category tells."""
    text = name[:_READ].lower()
    base = base_name(text)
    if _INDUCTOR.match(base):
        return _first(_FUSED, base) or "e"
    sign = _first(_TEMPLATES, text) if _HOLLOW.search(base) else None
    if sign is None and not _GENERIC.search(base):
        sign = _first(_RULES, base.removeprefix("aten::").replace("flashinfer", ""))
    return sign or _first(_PIECES, text) or _CATEGORIES.get(category or "", "o")


def _first(rules: Iterable[tuple[str, re.Pattern[str]]], text: str) -> str | None:
    """Return the letter of the first rule whose pattern is in a text; None when there is none."""
    return next((sign for sign, pattern in rules if pattern.search(text)), None)


@dataclass(frozen=True)
class Units:
    """Signs of consecutive units and the token at which each unit starts (with the end appended)."""

    signs: str
    starts: tuple[int, ...]


# what an eager program does in several kernels and a fused one in one; the letter stands for the whole
_FOLDS: Final = (
    ("C", re.compile(r"[Mb][cxaedorjgqA]{0,9}s[cxaedr]{0,4}[Mb]")),
    ("N", re.compile(r"(?:c?r?d)?c?p?c?rd?[ae]?nxc?(?:a?x)?c?(?:Ax)?(?:c(?=[MNba]))?")),
)


@lru_cache(maxsize=1 << 10)
def fold(signs: str) -> Units:
    """Return the units of a sign string: eager norms and attention become one unit each."""
    spans: list[tuple[int, int, str]] = []
    taken = bytearray(len(signs))
    for letter, pattern in _FOLDS:
        for match in pattern.finditer(signs):
            start, end = match.span()
            if not any(taken[start:end]):
                spans.append((start, end, letter))
                taken[start:end] = b"\1" * (end - start)
    spans.sort()
    letters: list[str] = []
    starts: list[int] = []
    at = 0
    for start, end, letter in [*spans, (len(signs), len(signs), "")]:
        letters.extend(signs[at:start])
        starts.extend(range(at, start))
        if letter:
            letters.append(letter)
            starts.append(start)
        at = end
    return Units("".join(letters), (*starts, len(signs)))


# the output product of a state-space mixer stands before the residual sum and the next norm
_OUTPUTS: Final = tuple(re.compile(p) for p in (r"M[mcoqex]{0,3}a{1,2}[coqe]?N", r"M[mcoqe]{0,3}N"))


def places_of(signs: str, letters: str, start: int, end: int) -> list[int]:
    """Return where in signs[start:end] one of some letters stands."""
    return [at for at in range(start, end) if signs[at] in letters]


def find_state_output(signs: str, start: int = 0) -> int | None:
    """Return the place of the output product of a state-space mixer; None when no norm follows one."""
    for pattern in _OUTPUTS:
        if match := pattern.search(signs, start):
            return match.start()
    return None


def signs_of(names: Sequence[str], categories: Sequence[str | None] | None = None) -> list[str]:
    """Return one sign for each distinct name."""
    if categories is None:
        return [sign_of(name) for name in names]
    return [sign_of(name, category) for name, category in zip(names, categories, strict=True)]
