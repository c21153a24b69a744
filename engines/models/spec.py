"""Describe a decoder-only transformer: `Spec`, the tensors of its checkpoint, and size limits."""

import math
from dataclasses import dataclass
from typing import Final

from capture.errors import EngineError


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of rotary frequencies.

    `linear` divides all of them; `llama3` and `yarn` depending on their rotations within the original
    context; `stated` divides each by its own factor; `longrope` too, with others for caches longer than that
    context.
    """

    kind: str
    factor: float
    low: float = 1.0  # turns up to which a frequency is divided in full
    high: float = 4.0  # turns from which it is kept
    original: int = 8192
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    magnitude: float = 1.0  # factor on the rotated numbers
    rounds_bounds: bool = False  # `low` and `high` are moved to whole frequencies


@dataclass(frozen=True)
class Experts:
    """A mixture of experts instead of the feed-forward; each token uses a few."""

    count: int
    active: int  # by each token
    ffn: int  # width of each
    layers: tuple[bool, ...] = ()  # which have the mixture; empty: all
    normalises_shares: bool = True  # the shares of the chosen add up to one
    has_bias: bool = False
    limit: float = 0.0  # to which inputs of the activation are clamped; 0: not at all
    alpha: float = 1.0  # how steep the sigmoid of the activation is
    is_mxfp4: bool = False  # a folder stores them in MXFP4

    def estimate_active(self, rows: int) -> float:
        """Return the expected number of distinct experts for so many rows, under uniform routing."""
        return self.count * (1 - (1 - self.active / self.count) ** rows)


@dataclass(frozen=True)
class Spec:
    """A decoder-only transformer, described completely."""

    name: str
    family: str  # the model_type of its config.json
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    eps: float = 1e-6
    theta: float = 1e6
    theta_local: float = 0.0  # of windowed layers; 0: the same as everywhere
    scaling: RopeScaling | None = None
    window: int = 0
    windowed_layers: tuple[bool, ...] = ()  # which layers see only the window; empty: none
    activation: str = "silu"  # or gelu_tanh
    qkv_bias: bool = False
    out_bias: bool = False  # on what attention adds to the stream
    has_sinks: bool = False  # each head may look at nothing, for which it has a learnt score
    qk_norm: bool = False
    norms_all_heads: bool = False  # over all heads at once, not over each
    partial_rotary_dim: int = 0  # numbers of each head that rotate, the first ones; 0: all
    pre_norm: bool = True  # norms before attention and before the feed-forward
    sandwich: bool = False  # norms after attention and after the feed-forward, too
    unit_offset: bool = False  # norm weights are stored less one
    embed_scale: bool = False  # embeddings times sqrt(hidden), rounded to the model's dtype
    query_scale: float = 0.0  # 0: head_dim ** -0.5
    tied: bool = True
    experts: Experts | None = None
    max_context: int = 32768
    eos: tuple[int, ...] = ()
    bos: int | None = None
    hub: tuple[str, ...] = ()  # names under which its weights are published

    def find_window(self, layer: int) -> int | None:
        """Return the number of keys that a layer sees; None: all of them."""
        return self.window if self.windowed_layers and self.windowed_layers[layer] else None

    def find_experts(self, layer: int) -> Experts | None:
        """Return the mixture of experts of a layer; None if its feed-forward is dense."""
        mixture = self.experts
        return mixture if mixture and (not mixture.layers or mixture.layers[layer]) else None

    @property
    def attention_scale(self) -> float:
        """Factor on the products of queries and keys."""
        return self.query_scale or self.head_dim**-0.5

    @property
    def rotary_dim(self) -> int:
        """Numbers of a head that rotate."""
        return self.partial_rotary_dim or self.head_dim

    @property
    def query_width(self) -> int:
        """Numbers in all queries of a position."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers in all keys of a position; the values have as many."""
        return self.kv_heads * self.head_dim


def list_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of the model's checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocab, spec.hidden),
        "model.norm.weight": (spec.hidden,),
    }
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab, spec.hidden)
    for layer in range(spec.layers):
        tensors = _list_layer_tensors(spec, layer)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in tensors.items()}
    return shapes


def count_parameters(spec: Spec) -> int:
    """Count the weights of the model."""
    return sum(math.prod(shape) for shape in list_tensors(spec).values())


def count_active_parameters(spec: Spec) -> int:
    """Count the weights that one token multiplies with, or is looked up in."""
    idle = 0
    for mixture in filter(None, map(spec.find_experts, range(spec.layers))):
        per_expert = sum(math.prod(shape) for shape in _list_expert_tensors(spec, mixture, 0).values())
        idle += (mixture.count - mixture.active) * per_expert
    return count_parameters(spec) - idle


def map_norm_names(spec: Spec) -> dict[str, str]:
    """Map our norm names to those of checkpoints, where one name means two things in two families."""
    post_norms = {"post_attn_norm": "post_attention_layernorm", "post_ffn_norm": "post_feedforward_layernorm"}
    if not spec.pre_norm:
        return post_norms
    if spec.sandwich:
        return {"attn_norm": "input_layernorm", "ffn_norm": "pre_feedforward_layernorm", **post_norms}
    return {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def _list_layer_tensors(spec: Spec, layer: int) -> dict[str, tuple[int, ...]]:
    norms = {f"{name}.weight": (spec.hidden,) for name in map_norm_names(spec).values()}
    return norms | _list_attention_tensors(spec) | _list_feed_forward_tensors(spec, layer)


def _list_attention_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    q, kv, d = spec.query_width, spec.kv_width, spec.hidden
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (q, d),
        "self_attn.k_proj.weight": (kv, d),
        "self_attn.v_proj.weight": (kv, d),
        "self_attn.o_proj.weight": (d, q),
    }
    if spec.qkv_bias:
        shapes |= {f"self_attn.{n}_proj.bias": (width,) for n, width in (("q", q), ("k", kv), ("v", kv))}
    if spec.out_bias:
        shapes["self_attn.o_proj.bias"] = (d,)
    if spec.has_sinks:
        shapes["self_attn.sinks"] = (spec.heads,)
    if spec.qk_norm:
        widths = (q, kv) if spec.norms_all_heads else (spec.head_dim, spec.head_dim)
        shapes |= {f"self_attn.{n}_norm.weight": (width,) for n, width in zip("qk", widths, strict=True)}
    return shapes


def _list_feed_forward_tensors(spec: Spec, layer: int) -> dict[str, tuple[int, ...]]:
    mixture = spec.find_experts(layer)
    if mixture is None:
        return _list_gated_tensors("mlp", spec.hidden, spec.ffn)
    shapes: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (mixture.count, spec.hidden)}
    if mixture.has_bias:
        shapes["mlp.gate.bias"] = (mixture.count,)
    for number in range(mixture.count):
        shapes |= _list_expert_tensors(spec, mixture, number)
    return shapes


def _list_expert_tensors(spec: Spec, mixture: Experts, number: int) -> dict[str, tuple[int, ...]]:
    name, ffn = f"mlp.experts.{number}", mixture.ffn
    shapes = _list_gated_tensors(name, spec.hidden, ffn)
    if mixture.has_bias:
        widths = (("gate", ffn), ("up", ffn), ("down", spec.hidden))
        shapes |= {f"{name}.{part}_proj.bias": (width,) for part, width in widths}
    return shapes


def _list_gated_tensors(name: str, hidden: int, ffn: int) -> dict[str, tuple[int, ...]]:
    shapes = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    return {f"{name}.{part}_proj.weight": shape for part, shape in shapes.items()}


MAX_SIZES: Final = {
    "vocab": 1 << 21, "hidden": 1 << 16, "layers": 512, "heads": 1024, "kv_heads": 1024, "head_dim": 1024,
    "ffn": 1 << 18, "max_context": 1 << 25,
}  # fmt: skip


def check_sizes(spec: Spec, where: str) -> None:
    """Raise EngineError for sizes that no real model has: a config must not request all memory."""
    invalid = [name for name, most in MAX_SIZES.items() if not 0 < getattr(spec, name) <= most]
    checks = {
        "heads": spec.heads % max(spec.kv_heads, 1) == 0 and spec.head_dim % 2 == 0,
        "sliding_window": not any(spec.windowed_layers) or spec.window > 0,
        "rope_theta": spec.theta > 0,
        "partial_rotary_factor": spec.partial_rotary_dim % 2 == 0 and 0 < spec.rotary_dim <= spec.head_dim,
        "experts": not spec.experts or _is_valid_mixture(spec.experts, spec.layers),
        "rope factor": not spec.scaling or _is_valid_scaling(spec.scaling, spec.rotary_dim),
    }
    invalid += [name for name, is_valid in checks.items() if not is_valid]
    if invalid:
        raise EngineError("impossible sizes", where=where, why=", ".join(invalid))


def _is_valid_mixture(experts: Experts, layers: int) -> bool:
    sizes = 0 < experts.active <= experts.count <= 1 << 12 and 0 < experts.ffn <= MAX_SIZES["ffn"]
    return sizes and len(experts.layers) in (0, layers) and experts.limit >= 0


def _is_valid_scaling(scaling: RopeScaling, rotated: int) -> bool:
    lists_by_kind = {"stated": (scaling.factors,), "longrope": (scaling.factors, scaling.long_factors)}
    factor_lists = lists_by_kind.get(scaling.kind, ())
    factors = (scaling.factor, scaling.magnitude, *(factor for factors in factor_lists for factor in factors))
    positive = (scaling.original, scaling.high, scaling.low, *factors)
    return all(n > 0 for n in positive) and all(len(f) == rotated // 2 for f in factor_lists)
