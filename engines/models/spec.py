"""Describe a decoder-only transformer: `Spec`, the tensors of its checkpoint, and the sizes it may have."""

import math
from dataclasses import dataclass
from typing import Final

from capture.errors import EngineError


@dataclass(frozen=True)
class Scaling:
    """Stretches rotary frequencies: `linear` divides all of them, `llama3` and `yarn` by how often they turn
    in the context that the model was first trained on, and `stated` each by a factor of its own; `longrope`
    does that, too, by other factors where a cache is longer than that context.
    """

    kind: str
    factor: float
    low: float = 1.0  # turns up to which a frequency is divided in full
    high: float = 4.0  # turns from which it is kept
    original: int = 8192
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    magnitude: float = 1.0  # by which what has been rotated is multiplied
    whole: bool = False  # the two bounds are moved to whole frequencies


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward, of which each token takes a few."""

    count: int
    chosen: int  # by each token
    ffn: int  # of each
    layers: tuple[bool, ...] = ()  # which have the mixture; empty: all
    normed: bool = True  # the shares of the chosen add up to one
    bias: bool = False
    limit: float = 0.0  # beyond which what is activated is cut off; 0: nowhere
    alpha: float = 1.0  # how steep the sigmoid of the activation is
    packed: bool = False  # a folder stores them in MXFP4

    def touched(self, rows: int) -> float:
        """Return how many experts so many rows are expected to take in all, by an even choice."""
        return self.count * (1 - (1 - self.chosen / self.count) ** rows)


@dataclass(frozen=True)
class Spec:
    """Describes a decoder-only transformer completely."""

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
    scaling: Scaling | None = None
    window: int = 0
    local: tuple[bool, ...] = ()  # which layers see only the window; empty: none
    activation: str = "silu"  # or gelu_tanh
    qkv_bias: bool = False
    out_bias: bool = False  # on what attention adds to the stream
    sinks: bool = False  # each head may look at nothing, for which it has a learnt score
    qk_norm: bool = False
    whole_qk_norm: bool = False  # over all heads at once, not over each
    rotated: int = 0  # numbers of each head that rotate, the first ones; 0: all
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

    def window_of(self, layer: int) -> int | None:
        """Return how many keys a layer sees; None: all of them."""
        return self.window if self.local and self.local[layer] else None

    def experts_of(self, layer: int) -> Experts | None:
        """Return the mixture of experts of a layer; None where its feed-forward is a single one."""
        mixture = self.experts
        return mixture if mixture and (not mixture.layers or mixture.layers[layer]) else None

    @property
    def attention_scale(self) -> float:
        """The factor on the products of queries and keys."""
        return self.query_scale or self.head_dim**-0.5

    @property
    def rotary_dim(self) -> int:
        """How many numbers of a head rotate."""
        return self.rotated or self.head_dim

    @property
    def query_width(self) -> int:
        """Numbers in all queries of a position."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers in all keys of a position, and in all values."""
        return self.kv_heads * self.head_dim


def tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a checkpoint of this model holds."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocab, spec.hidden),
        "model.norm.weight": (spec.hidden,),
    }
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab, spec.hidden)
    for layer in range(spec.layers):
        shapes |= {
            f"model.layers.{layer}.{name}": shape for name, shape in _layer_tensors(spec, layer).items()
        }
    return shapes


def parameters(spec: Spec) -> int:
    """Return the number of weights of the model."""
    return sum(math.prod(shape) for shape in tensors(spec).values())


def active_parameters(spec: Spec) -> int:
    """Return the number of weights that one token multiplies with or is looked up in."""
    idle = 0
    for layer in range(spec.layers):
        if mixture := spec.experts_of(layer):
            one = sum(math.prod(shape) for shape in _expert_tensors(spec, mixture, 0).values())
            idle += (mixture.count - mixture.chosen) * one
    return parameters(spec) - idle


def norm_names(spec: Spec) -> dict[str, str]:
    """Return our name of each norm → its name in a checkpoint; one name means two things in two families."""
    after = {"post_attn_norm": "post_attention_layernorm", "post_ffn_norm": "post_feedforward_layernorm"}
    if not spec.pre_norm:
        return after
    if spec.sandwich:
        return {"attn_norm": "input_layernorm", "ffn_norm": "pre_feedforward_layernorm", **after}
    return {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def _layer_tensors(spec: Spec, layer: int) -> dict[str, tuple[int, ...]]:
    norms = {f"{name}.weight": (spec.hidden,) for name in norm_names(spec).values()}
    return norms | _attention_tensors(spec) | _feed_forward_tensors(spec, layer)


def _attention_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
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
    if spec.sinks:
        shapes["self_attn.sinks"] = (spec.heads,)
    if spec.qk_norm:
        widths = (q, kv) if spec.whole_qk_norm else (spec.head_dim, spec.head_dim)
        shapes |= {f"self_attn.{n}_norm.weight": (width,) for n, width in zip("qk", widths, strict=True)}
    return shapes


def _feed_forward_tensors(spec: Spec, layer: int) -> dict[str, tuple[int, ...]]:
    mixture = spec.experts_of(layer)
    if mixture is None:
        return _one_feed_forward("mlp", spec.hidden, spec.ffn)
    shapes: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (mixture.count, spec.hidden)}
    if mixture.bias:
        shapes["mlp.gate.bias"] = (mixture.count,)
    for number in range(mixture.count):
        shapes |= _expert_tensors(spec, mixture, number)
    return shapes


def _expert_tensors(spec: Spec, mixture: Experts, number: int) -> dict[str, tuple[int, ...]]:
    name, ffn = f"mlp.experts.{number}", mixture.ffn
    shapes = _one_feed_forward(name, spec.hidden, ffn)
    if mixture.bias:
        widths = (("gate", ffn), ("up", ffn), ("down", spec.hidden))
        shapes |= {f"{name}.{part}_proj.bias": (width,) for part, width in widths}
    return shapes


def _one_feed_forward(name: str, hidden: int, ffn: int) -> dict[str, tuple[int, ...]]:
    shapes = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    return {f"{name}.{part}_proj.weight": shape for part, shape in shapes.items()}


MOST: Final = {
    "vocab": 1 << 21,
    "hidden": 1 << 16,
    "layers": 512,
    "heads": 1024,
    "kv_heads": 1024,
    "head_dim": 1024,
    "ffn": 1 << 18,
    "max_context": 1 << 25,
}


def check_sizes(spec: Spec, where: str) -> None:
    """Raise EngineError for sizes that no real model has: a config must not ask for the whole memory."""
    wrong = [name for name, most in MOST.items() if not 0 < getattr(spec, name) <= most]
    possible = {
        "heads": spec.heads % max(spec.kv_heads, 1) == 0 and spec.head_dim % 2 == 0,
        "sliding_window": not any(spec.local) or spec.window > 0,
        "rope_theta": spec.theta > 0,
        "partial_rotary_factor": spec.rotated % 2 == 0 and 0 < spec.rotary_dim <= spec.head_dim,
        "experts": not spec.experts or _can_choose(spec.experts, spec.layers),
        "rope factor": not spec.scaling or _can_divide(spec.scaling, spec.rotary_dim),
    }
    wrong += [name for name, holds in possible.items() if not holds]
    if wrong:
        raise EngineError("has sizes that no model can have", where=where, why=", ".join(wrong))


def _can_choose(experts: Experts, layers: int) -> bool:
    sizes = 0 < experts.chosen <= experts.count <= 1 << 12 and 0 < experts.ffn <= MOST["ffn"]
    return sizes and len(experts.layers) in (0, layers) and experts.limit >= 0


def _can_divide(scaling: Scaling, rotated: int) -> bool:
    lists = {"stated": (scaling.factors,), "longrope": (scaling.factors, scaling.long_factors)}
    own = lists.get(scaling.kind, ())
    factors = (scaling.factor, scaling.magnitude, *(factor for factors in own for factor in factors))
    known = scaling.original > 0 and scaling.high > 0 and scaling.low > 0
    return known and all(len(f) == rotated // 2 for f in own) and all(factor > 0 for factor in factors)
