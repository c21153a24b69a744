"""Models as data: one table of presets, and the reader of a config.json."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from capture.errors import EngineError, UsageError


@dataclass(frozen=True)
class Scaling:
    """How rotary frequencies are stretched: `linear`, or `llama3` by wavelength."""

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


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
        """The keys that a layer may see, None for all of them."""
        return self.window if self.local and self.local[layer] else None

    @property
    def attention_scale(self) -> float:
        return self.query_scale or self.head_dim**-0.5

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor that a checkpoint of this model holds."""
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
    return sum(_product(shape) for shape in tensors(spec).values())


def norm_names(spec: Spec) -> dict[str, str]:
    """Our norm → its name in a checkpoint, where one name means two things in two families."""
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


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


_FAMILIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "gemma3_text": {
        "activation": "gelu_tanh", "qk_norm": True, "sandwich": True, "unit_offset": True,
        "embed_scale": True,
    },
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
}  # fmt: skip


def _gemma(name: str, hidden: int, layers: int, ffn: int) -> Spec:
    return Spec(
        name, "gemma3_text", 262144, hidden, layers, 4, 1, 256, ffn,
        theta_local=1e4, window=512, local=_pattern(layers, 6), query_scale=256**-0.5,
        eos=(1, 106), bos=2, hub=(f"google/{name}-it", f"google/{name}-pt", f"unsloth/{name}-it"),
        **_FAMILIES["gemma3_text"],
    )  # fmt: skip


def _smol(name: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, hub: str) -> Spec:
    return Spec(
        name, "llama", 49152, hidden, layers, heads, kv_heads, 64, ffn,
        eps=1e-5, theta=1e5, max_context=8192, eos=(2,), bos=1,
        hub=(f"HuggingFaceTB/{hub}-Instruct", f"HuggingFaceTB/{hub}"),
    )  # fmt: skip


def _pattern(layers: int, every: int) -> tuple[bool, ...]:
    """Every so-many-th layer sees everything, the others their window."""
    return tuple((i + 1) % every != 0 for i in range(layers))


_QWEN_EOS: Final = (151645, 151643)

PRESETS: Final = {
    spec.name: spec
    for spec in (
        _gemma("gemma-3-1b", 1152, 26, 6912),
        _gemma("gemma-3-270m", 640, 18, 2048),
        Spec(
            "llama-3.2-1b", "llama", 128256, 2048, 16, 32, 8, 64, 8192,
            eps=1e-5, theta=5e5, scaling=Scaling("llama3", 32.0), max_context=131072,
            eos=(128001, 128008, 128009), bos=128000,
            hub=("meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B",
                 "unsloth/Llama-3.2-1B-Instruct"),
        ),
        Spec(
            "qwen2.5-0.5b", "qwen2", 151936, 896, 24, 14, 2, 64, 4864,
            eos=_QWEN_EOS, hub=("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B"), **_FAMILIES["qwen2"],
        ),
        Spec(
            "qwen3-0.6b", "qwen3", 151936, 1024, 28, 16, 8, 128, 3072,
            max_context=40960, eos=_QWEN_EOS, hub=("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-Base"),
            **_FAMILIES["qwen3"],
        ),
        _smol("smollm2-135m", 576, 30, 9, 3, 1536, "SmolLM2-135M"),
        _smol("smollm2-360m", 960, 32, 15, 5, 2560, "SmolLM2-360M"),
    )
}  # fmt: skip


def preset(name: str) -> Spec:
    """The preset of that name; an unknown name is answered with the nearest known ones."""
    found = PRESETS.get(name.lower())
    if found:
        return found
    near = difflib.get_close_matches(name.lower(), PRESETS, n=2, cutoff=0.4)
    todo = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PRESETS)}"
    raise UsageError(f"no model is called {name}", todo=todo)


def read_config(path: Path, name: str) -> Spec:
    """The model that a config.json describes."""
    try:
        raw = json.loads(path.read_bytes()[: 1 << 20])
    except (OSError, ValueError, RecursionError) as e:
        raise EngineError("cannot be read as a model's config", where=str(path), why=str(e)[:200]) from None
    if not isinstance(raw, dict):
        raise EngineError("is no model's config", where=str(path))
    return from_config(raw, name, str(path))


def from_config(config: Mapping[str, Any], name: str, where: str = "config.json") -> Spec:
    """A config as a Spec: `model_type` decides, and a feature that is not decoded here is refused."""
    family = str(config.get("model_type"))
    if family not in _FAMILIES:
        raise EngineError(
            f"describes a {family} model", where=where, todo=f"decoded are {', '.join(_FAMILIES)}"
        )
    _refuse_unknown_features(config, where)
    try:
        spec = _spec(config, family, name)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as e:
        raise EngineError("lacks or garbles a field", where=where, why=repr(e)[:200]) from None
    _check_sizes(spec, where)
    return spec


def _spec(config: Mapping[str, Any], family: str, name: str) -> Spec:
    gemma = family == "gemma3_text"
    layers, hidden, heads = (
        int(config[k]) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    local = _local_layers(config, family, layers)
    everywhere, windowed = _ropes(config)
    theta_local = windowed.get("rope_theta") or config.get("rope_local_base_freq") or 1e4
    head_dim = int(config.get("head_dim") or (256 if gemma else hidden // heads))
    return Spec(
        name, family, int(config["vocab_size"]), hidden, layers, heads,
        int(config.get("num_key_value_heads") or heads), head_dim, int(config["intermediate_size"]),
        eps=float(config.get("rms_norm_eps", 1e-6)),
        theta=float(everywhere.get("rope_theta") or config.get("rope_theta") or (1e6 if gemma else 1e4)),
        theta_local=float(theta_local) if gemma else 0.0,
        scaling=_scaling(everywhere),
        window=int(config.get("sliding_window") or 0) if any(local) else 0,
        local=local if any(local) else (),
        query_scale=float(config.get("query_pre_attn_scalar", 256)) ** -0.5 if gemma else 0.0,
        tied=bool(config.get("tie_word_embeddings", gemma)),
        max_context=int(config.get("max_position_embeddings", 32768)),
        eos=_ids(config.get("eos_token_id")),
        bos=next(iter(_ids(config.get("bos_token_id"))), None),
        **_FAMILIES[family],
    )  # fmt: skip


def _ropes(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The rotary settings of full and of windowed layers, from the newer keys or the older ones."""
    newer = config.get("rope_parameters") or {}
    if "full_attention" in newer:
        return newer["full_attention"], newer.get("sliding_attention") or {}
    return newer or config.get("rope_scaling") or {}, {}


def _scaling(rope: Mapping[str, Any]) -> Scaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return Scaling("linear", float(rope["factor"]))
    if kind != "llama3":
        raise ValueError(f"rope type {kind}")
    return Scaling(
        "llama3",
        float(rope["factor"]),
        float(rope["low_freq_factor"]),
        float(rope["high_freq_factor"]),
        int(rope["original_max_position_embeddings"]),
    )


def _local_layers(config: Mapping[str, Any], family: str, layers: int) -> tuple[bool, ...]:
    if types := config.get("layer_types"):
        if len(types) != layers:
            raise ValueError("layer_types and num_hidden_layers disagree")
        return tuple(t == "sliding_attention" for t in types)
    if family == "gemma3_text":
        every = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6
        return _pattern(layers, int(every))
    if config.get("use_sliding_window"):
        return tuple(i >= int(config.get("max_window_layers", layers)) for i in range(layers))
    return (False,) * layers


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in (value if isinstance(value, list) else [value]))


def _refuse_unknown_features(config: Mapping[str, Any], where: str) -> None:
    expected = {"llama": "silu", "qwen2": "silu", "qwen3": "silu", "gemma3_text": "gelu_pytorch_tanh"}
    act = config.get("hidden_activation") or config.get("hidden_act")
    odd = [
        key
        for key in ("attention_bias", "mlp_bias", "final_logit_softcapping", "attn_logit_softcapping",
                    "quantization_config", "use_bidirectional_attention")
        if config.get(key)
    ]  # fmt: skip
    if act not in (None, expected[str(config["model_type"])]):
        odd.append(f"activation {act}")
    if odd:
        raise EngineError("asks for what is not decoded here", where=where, why=", ".join(odd))


def _check_sizes(spec: Spec, where: str) -> None:
    """Sizes that no real model exceeds, so that a hostile config cannot ask for the whole memory."""
    limits = {"vocab": 1 << 21, "hidden": 1 << 16, "layers": 512, "heads": 1024, "kv_heads": 1024,
              "head_dim": 1024, "ffn": 1 << 18, "max_context": 1 << 25}  # fmt: skip
    wrong = [k for k, most in limits.items() if not 0 < getattr(spec, k) <= most]
    if spec.heads % max(spec.kv_heads, 1) or spec.head_dim % 2:
        wrong.append("heads")
    if any(spec.local) and spec.window <= 0:
        wrong.append("sliding_window")
    if wrong:
        raise EngineError("has sizes that no model can have", where=where, why=", ".join(wrong))
