"""Describe a decoder-only transformer: `Spec`, the tensors of its checkpoint, and the sizes it may have."""

import math
from dataclasses import dataclass
from typing import Final

from capture.errors import EngineError


@dataclass(frozen=True)
class Scaling:
    """Stretches rotary frequencies: `linear` divides all of them, `llama3` depends on the wavelength, and
    `stated` divides each by a factor of its own.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    factors: tuple[float, ...] = ()


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
    qk_norm: bool = False
    sandwich: bool = False  # norms after attention and after the feed-forward, too
    unit_offset: bool = False  # norm weights are stored less one
    embed_scale: bool = False  # embeddings times sqrt(hidden), rounded to the model's dtype
    query_scale: float = 0.0  # 0: head_dim ** -0.5
    tied: bool = True
    max_context: int = 32768
    eos: tuple[int, ...] = ()
    bos: int | None = None
    hub: tuple[str, ...] = ()  # names under which its weights are published

    def window_of(self, layer: int) -> int | None:
        """Return how many keys a layer sees; None: all of them."""
        return self.window if self.local and self.local[layer] else None

    @property
    def attention_scale(self) -> float:
        """The factor on the products of queries and keys."""
        return self.query_scale or self.head_dim**-0.5

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
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer_tensors(spec).items()}
    return shapes


def parameters(spec: Spec) -> int:
    """Return the number of weights of the model."""
    return sum(math.prod(shape) for shape in tensors(spec).values())


def norm_names(spec: Spec) -> dict[str, str]:
    """Return our name of each norm → its name in a checkpoint; one name means two things in two families."""
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    if spec.sandwich:
        names |= {
            "post_attn_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffn_norm": "post_feedforward_layernorm",
        }
    return names


def _layer_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    q, kv, d = spec.query_width, spec.kv_width, spec.hidden
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (d,) for name in norm_names(spec).values()}
    shapes |= {
        "self_attn.q_proj.weight": (q, d),
        "self_attn.k_proj.weight": (kv, d),
        "self_attn.v_proj.weight": (kv, d),
        "self_attn.o_proj.weight": (d, q),
        "mlp.gate_proj.weight": (spec.ffn, d),
        "mlp.up_proj.weight": (spec.ffn, d),
        "mlp.down_proj.weight": (d, spec.ffn),
    }
    if spec.qkv_bias:
        shapes |= {f"self_attn.{n}_proj.bias": (width,) for n, width in (("q", q), ("k", kv), ("v", kv))}
    if spec.qk_norm:
        shapes |= {f"self_attn.{n}_norm.weight": (spec.head_dim,) for n in ("q", "k")}
    return shapes


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
    if spec.heads % max(spec.kv_heads, 1) or spec.head_dim % 2:
        wrong.append("heads")
    if any(spec.local) and spec.window <= 0:
        wrong.append("sliding_window")
    if not spec.theta > 0:
        wrong.append("rope_theta")
    if spec.scaling and not _can_divide(spec.scaling, spec.head_dim):
        wrong.append("rope factor")
    if wrong:
        raise EngineError("has sizes that no model can have", where=where, why=", ".join(wrong))


def _can_divide(scaling: Scaling, head_dim: int) -> bool:
    stated = scaling.kind == "stated"
    factors = scaling.factors if stated else (scaling.factor,)
    return len(factors) == (head_dim // 2 if stated else 1) and all(factor > 0 for factor in factors)
