"""Encode each kernel as a one-letter symbol, and collapse the small kernels of eager programs into units.

Layer inference reads a pass as a string such as `NMRKCMaNMBMa`, a transformer layer. The symbols:

    M matrix product   b batched product   N norm        R rope             K KV-cache write   E embedding
    C attention        S state space       V convolution A activation       B gated activation Z sampling
    G expert choice    X expert products   U dispatch or combination of experts
    s softmax          m communication     c copy        q quantization     o, e other         - wait or host
    a add   d subtract   x multiply, divide   g negate   p power   n rsqrt   r reduce   j concatenate
    v convolution of a front end (patches of an image, audio), which is no mixer
"""

import itertools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from capture.classify.kernel_rules import RuleIndex, iter_set_bits

_MAX_NAME_CHARS: Final = 1 << 11  # longer names are cut

Ints = npt.NDArray[np.int64]

MIXERS: Final = "CSV"
EXPERTS: Final = "GXU"
ACTIVATIONS: Final = "AB"
HEAVY: Final = "MNCSVABGXURKEZs"  # symbols that identify a layer; the others weigh little in an alignment


class SymbolRules:
    """Patterns of texts in lower case, each with its symbol; the first match decides."""

    def __init__(self, *rules: tuple[str, str]) -> None:
        self.rules: Final = [(symbol, re.compile(pattern)) for symbol, pattern in rules]

    @cached_property
    def _index(self) -> RuleIndex:
        """The rules by what a text needs to match: trying all of 60,000 long names took 24 of 36 s."""
        return RuleIndex((number, [pattern.pattern]) for number, (_, pattern) in enumerate(self.rules))

    def find_symbol(self, text: str) -> str | None:
        """Find the symbol of the first pattern that matches."""
        candidates = map(self.rules.__getitem__, iter_set_bits(self._index.find_candidates(text)))
        return next((symbol for symbol, pattern in candidates if pattern.search(text)), None)


# patterns of the lower-case base name
_RULES: Final = SymbolRules(
    ("m", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|"
          r"c10d|lamport|one_?shot|two_?shot|userbuffers"),
    ("c", r"^mem(cpy|set)\b|^hipmem|copybuffer|fillbuffer"),
    ("o", r"kv_indices|kv_indptr|page_table|block_table|resolve_future|schedule_metadata"),
    ("o", r"_bwd|bwd_|backward|optimizer|multi_tensor_apply"),
    ("Z", r"argmax|multinomial|(?<!up|d_)sampl|top_?p\b|top_?p_|gumbel|top_?k_top_?p"),
    ("C", r"batch_?(decode|prefill)|paged_?attention|fmha|flash_(fwd|attn)|flashattn|"
          r"merge_?(attn_)?states?|mmha|xqa|multihead_attention|_fwd_grouped_kernel|_fwd_kernel_stage|^_fwd_kernel$"),
    ("K", r"reshape_and_cache|store_?kv|(?<!attention_with_)kv_?cache|"
          r"kv_?append|append_paged|concat_and_cache|set_mla_kv|"
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
    ("A", r"silu|gelu|\brelu|_relu\b|act_and_mul|activation|\btanh|softplus|hardswish|\bmish"),
    ("E", r"embed|index_?select|get_rows|vectorized_gather|(\b|_)take\d*_kernel"),
    ("q", r"quant|scaled_fp8|to_fp8|per_token_group"),
    ("b", r"\b(bmm|baddbmm)\b"),
    ("M", r"gemm|gemv|matmul|mul_mat|cutlass|cublas|nvjet|\bmm\b|addmm|\blinear\b|cijk_|xmma|wvsplitk|"
          r"\bdot_kernel|marlin|machete|splitkreduce"),
)  # fmt: skip

# patterns of the complete lower-case name: the small kernels of eager programs
_EAGER_RULES: Final = SymbolRules(
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
)  # fmt: skip
_CATEGORY_SYMBOLS: Final = {
    "matmul": "M", "attention": "C", "norm": "N", "softmax": "s", "reduce": "r", "copy": "c", "comm": "m",
    "moe": "U", "conv": "V", "ssm": "S", "linear_attention": "S", "sampling": "Z", "quantize": "q",
    "elementwise": "e", "wait": "-", "host": "-", "memory": "c",
}  # fmt: skip
_GENERIC: Final = re.compile(r"at::native::.*(elementwise|reduce|index_elementwise)_kernel")
# generic launchers: only their template arguments say what the kernel computes
_UNINFORMATIVE_BASE: Final = re.compile(r"(cutlass|ck_tile).*(device_kernel|kentry|kernel2?)$")
_TEMPLATE_RULES: Final = SymbolRules(
    ("C", r"flash|fmha"), ("N", r"rmsnorm|layernorm"), ("X", r"groupproblemshape|moe|groupedgemm"),
)  # fmt: skip
_INDUCTOR: Final = re.compile(r"^triton_(poi|red|per|tem|mm)")
_INDUCTOR_RULES: Final = SymbolRules(
    ("M", r"^triton_(tem|mm)"), ("Z", r"argmax"), ("N", r"rsqrt|norm"), ("U", r"moe"),
    ("E", r"embedding"),        ("B", r"mul_(silu|gelu)|(silu|gelu)_mul"), ("A", r"silu|gelu|relu"),
    ("s", r"softmax"), ("R", r"rotary|rope|(cos|sin)_"),
)  # fmt: skip
_OPERATOR_SPACE: Final = re.compile(r"^(aten|quantized)::")  # of torch: products in int8 quantize nothing
_ENABLE_IF_PREFIX: Final = "std::enable_if<"
_ENABLE_IF: Final = re.compile(rf"^{_ENABLE_IF_PREFIX}.*?>::type ")


def extract_base_name(name: str) -> str:
    """Extract the name without return type, template arguments and parameters."""
    text = name[:_MAX_NAME_CHARS]
    text = _ENABLE_IF.sub("", text) if text.startswith(_ENABLE_IF_PREFIX) else text
    text = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    end = min((at for at in (text.find("<"), text.find("(")) if at > 0), default=len(text))
    return text[:end]


@lru_cache(maxsize=1 << 15)
def find_symbol(name: str, category: str | None = None) -> str:
    """Find the symbol of a kernel or op by its name, else by its category; `o` if neither tells."""
    text = name[:_MAX_NAME_CHARS].lower()
    base = extract_base_name(text)
    if _INDUCTOR.match(base):
        return _INDUCTOR_RULES.find_symbol(base) or "e"
    symbol = _TEMPLATE_RULES.find_symbol(text) if _UNINFORMATIVE_BASE.search(base) else None
    if symbol is None and not _GENERIC.search(base):
        symbol = _RULES.find_symbol(_OPERATOR_SPACE.sub("", base).replace("flashinfer", ""))
    return symbol or _EAGER_RULES.find_symbol(text) or _CATEGORY_SYMBOLS.get(category or "", "o")


def find_symbols(names: Sequence[str], categories: Sequence[str | None] | None = None) -> list[str]:
    """Find the symbol of each name; `categories` has one for each name."""
    return list(map(find_symbol, names, repeat(None) if categories is None else categories))


# before the first norm a sum that is not of embeddings, before each other one that and a residual sum, but
# for one behind the layers
_ALL_OFFSET_NORMS: Final = re.compile(r"(?:[^N]*[^EN])?aN(?:[^N]*aaN){3,}[^N]*(?:N[^N]*)?")
_MIN_ATTENTION_PER_FRONT_END: Final = 3


def mark_front_ends(symbols: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the symbols with convolutions as `v` where few layers of attention have them between them."""
    is_convolution = symbols == ord("V")
    if not is_convolution.any():
        return symbols
    is_choice = symbols == ord("G")
    is_router = np.append(is_choice[1:], False) & (symbols == ord("s"))
    attends = np.isin(symbols, [ord("C"), ord("s")]) & ~is_router
    groups = np.unique(np.cumsum(attends)[is_convolution])
    is_front_end = 0 < _MIN_ATTENTION_PER_FRONT_END * len(groups) <= attends.sum()
    if not is_front_end or (symbols == ord("S")).any():
        return symbols
    return np.where(is_convolution, np.uint8(ord("v")), symbols)


def mark_expert_choices(symbols: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the symbols with `G` for each sampling that a feed-forward follows within its layer.

    A product and an activation follow the choice of experts; an embedding or a mixer the sampling of a token.
    """
    sampling = np.flatnonzero(symbols == ord("Z"))
    if not len(sampling):
        return symbols
    product = _find_next(symbols, "M", sampling)
    is_choice = _find_next(symbols, ACTIVATIONS, product) < _find_next(symbols, "EvCSVs", sampling)
    marked = symbols.copy()
    marked[sampling[is_choice]] = ord("G")
    return marked


def _find_next(symbols: npt.NDArray[np.uint8], letters: str, after: Ints) -> Ints:
    """Find the next of any of some letters after each position; the size of the symbols if there is none."""
    places = np.append(np.flatnonzero(np.isin(symbols, [ord(letter) for letter in letters])), len(symbols))
    return places[np.minimum(np.searchsorted(places, after, side="right"), len(places) - 1)]


@dataclass(frozen=True)
class SymbolUnits:
    """Symbols of consecutive units, and the kernel at which each unit starts, with the end appended."""

    symbols: str
    starts: tuple[int, ...]


# not the copy of what a product reads, where the next product has one of its own
_CAST: Final = r"(?:c(?!M[cA]*cM))?"
# what an eager program runs as several kernels and a fused one as one; the letter is that of the fused one
_EAGER_SEQUENCES: Final = (
    ("o", re.compile(r"([acdegjoprx]{2,12}?)\1{7,}")),  # a loop over the chunks of a sequence
    ("C", re.compile(r"b[xcoa]*A[xcoaM]*b[cxaedor]*G[cxaedorj]*C")),  # chooses what it attends to
    ("C", re.compile(r"[Mb][cxaedorjgqA]{0,9}s[cxaedr]{0,4}[Mb]")),
    ("C", re.compile(r"b[cxaedorjgoE]{0,30}s[cxaedr]{0,4}b")),  # with biases of positions
    ("N", re.compile(r"c?pra?px{1,2}c?")),  # of the root as the power of −1/2
    ("N", re.compile(r"rdprd?aoxxa")),  # a mean, a variance, its root, a division, weight and bias
    ("N", re.compile(rf"(?:c?r?d)?c?p?c?rd?[ae]?nx{_CAST}(?:a?x)?{_CAST}(?:Ax)?(?:(?=c[MNba]){_CAST})?")),
)
# a norm with a gate: two products with an activation between, and a sigmoid, scale it
_GATED_NORMS: Final = (("N", re.compile(r"NMAM[eo]x(?=M)")),)


@lru_cache(maxsize=1 << 10)
def collapse_units(symbols: str) -> SymbolUnits:
    """Collapse each eager norm and attention into one unit."""
    units = SymbolUnits(symbols, tuple(range(len(symbols) + 1)))
    units = _merge_matches(_merge_matches(units, _EAGER_SEQUENCES), _GATED_NORMS)
    return _absorb_weight_offsets(units)


def _merge_matches(units: SymbolUnits, patterns: Sequence[tuple[str, re.Pattern[str]]]) -> SymbolUnits:
    """Merge the units of each match into one with the pattern's letter; earlier patterns go before later."""
    symbols = units.symbols
    spans: list[tuple[int, int, str]] = []
    covered = bytearray(len(symbols))
    for letter, pattern in patterns:
        for match in pattern.finditer(symbols):
            start, end = match.span()
            if not any(covered[start:end]):
                spans.append((start, end, letter))
                covered[start:end] = b"\1" * (end - start)
    if not spans:
        return units
    letters, starts, at = "", list[int](), 0
    for start, end, letter in sorted(spans):
        letters += symbols[at:start] + letter
        starts += units.starts[at : start + 1]
        at = end
    return SymbolUnits(letters + symbols[at:], (*starts, *units.starts[at:]))


def _absorb_weight_offsets(units: SymbolUnits) -> SymbolUnits:
    """Let the sum before each norm belong to it where every norm, the first one too, has one of its own.

    Such a norm adds 1 to its weights; after the layers' first one a residual sum precedes that as well.
    """
    if not _ALL_OFFSET_NORMS.fullmatch(units.symbols):
        return units
    text = units.symbols
    sums = {match.start() for match in re.finditer("aN", text)}
    starts = [start for at, start in enumerate(units.starts) if at - 1 not in sums]
    return SymbolUnits("".join(s for at, s in enumerate(text) if at not in sums), tuple(starts))


def list_positions(symbols: str, letters: str, start: int, end: int) -> list[int]:
    """List the positions in symbols[start:end] of any of some letters."""
    return [at for at in range(start, end) if symbols[at] in letters]


# the output product of a state-space mixer precedes the residual sum and the next norm
_SSM_OUTPUTS: Final = tuple(re.compile(p) for p in (r"M[mcoqex]{0,3}a{1,2}[coqe]?N", r"M[mcoqe]{0,3}N"))


def find_ssm_output(symbols: str, start: int = 0) -> int | None:
    """Find the output product of a state-space mixer; None if no norm follows one."""
    for pattern in _SSM_OUTPUTS:
        if match := pattern.search(symbols, start):
            return match.start()
    return None


# alignment of symbol strings

_MAX_ALIGNED_UNITS: Final = 400  # of either string
_LONG_RUN: Final = re.compile(r"(.)\1{15}(\1+)")  # products of experts, one after the other
_LIGHT: Final = 0.4
_WEIGHTS: Final = dict.fromkeys(HEAVY, 2.0) | {"R": 1.0, "K": 1.0, "A": 1.5}


def weigh_symbol(symbol: str) -> float:
    """Weigh a symbol for an alignment."""
    return _WEIGHTS.get(symbol, _LIGHT)


@lru_cache(maxsize=1 << 12)
def align_prefixes(text: str, reference: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Align every prefix of a string to the best prefix of another.

    Returns, for each j ≤ len(text), the best score of text[:j] and the length of the matching prefix of
    `reference`. Long runs of one symbol are as good as short ones. Only the first units of strings that are
    long without them are aligned; the others lower the score.
    """
    short_text, counts = _shorten_runs(text)
    short_reference, reference_counts = _shorten_runs(reference)
    if len(short_text) < len(text) or len(short_reference) < len(reference):
        scores, lengths = align_prefixes(short_text, short_reference)
        ends = {count: at for at, count in enumerate(reference_counts)}
        return tuple(scores[at] for at in counts), tuple(ends[lengths[at]] for at in counts)
    return _align_short_prefixes(text, reference)


def _shorten_runs(text: str) -> tuple[str, list[int]]:
    """Return a string without the rest of long runs, and how much of it each prefix of the string becomes."""
    is_rest = [False] * len(text)
    for match in _LONG_RUN.finditer(text):
        is_rest[slice(*match.span(2))] = [True] * len(match[2])
    short = "".join(symbol for symbol, rest in zip(text, is_rest, strict=True) if not rest)
    return short, list(itertools.accumulate((not rest for rest in is_rest), initial=0))


def _align_short_prefixes(text: str, reference: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    reference = reference[:_MAX_ALIGNED_UNITS]
    costs = [0.6 * weigh_symbol(symbol) for symbol in reference]
    row = list(itertools.accumulate(costs, operator.sub, initial=0.0))
    scores, lengths = [0.0], [0]
    for at, symbol in enumerate(text):
        weight = weigh_symbol(symbol)
        if at >= _MAX_ALIGNED_UNITS:
            scores.append(scores[-1] - 0.6 * weight)
            lengths.append(lengths[-1])
            continue
        row = _compute_next_row(row, symbol, weight, reference, costs)
        best = max(row)
        scores.append(best)
        lengths.append(row.index(best))
    return tuple(scores), tuple(lengths)


def _compute_next_row(
    row: list[float], symbol: str, weight: float, reference: str, costs: list[float]
) -> list[float]:
    skip = 0.6 * weight
    following = [row[0] - skip]
    for at, other in enumerate(reference):
        pair = row[at] + weight if other == symbol else row[at] - 0.5 * weight - costs[at]
        following.append(max(pair, row[at + 1] - skip, following[at] - costs[at]))
    return following
