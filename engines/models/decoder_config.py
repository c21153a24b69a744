"""Fields of config.json that families share: sizes, biases, rotary scaling, windows of attention."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from engines.models.config_fields import ModelConfig
from engines.models.spec import RopeScaling, Spec

FULL, SLIDING = "full_attention", "sliding_attention"
SCALING_ALIASES: Final = {"su": "longrope"}


def read_decoder(
    config: ModelConfig,
    name: str,
    rope: ModelConfig,
    *,
    activation: str = "silu",
    theta: float = 1e4,
    head_dim: int = 0,
    tied: bool = False,
    eps: float = 1e-6,
) -> Spec:
    """Read the fields that all families have, with the rotary settings of `rope`.

    `activation` is the only supported one, in the config's words; the others are defaults for missing fields.
    Raise KeyError or ValueError for a missing or invalid field.
    """
    for value in (config.read("hidden_activation"), config.read("hidden_act")):
        if value not in (None, activation):
            config.refuse(f"activation {value}")
    hidden, heads = config.read_integer("hidden_size"), config.read_integer("num_attention_heads")
    return Spec(
        name,
        str(config.read("model_type")),
        vocab=config.read_integer("vocab_size"),
        hidden=hidden,
        layers=config.read_integer("num_hidden_layers"),
        heads=heads,
        kv_heads=config.read_integer("num_key_value_heads", heads),
        head_dim=config.read_integer("head_dim", head_dim or hidden // heads),
        ffn=config.read_integer("intermediate_size"),
        eps=config.read_number("rms_norm_eps", eps),
        theta=rope.read_number("rope_theta", config.read_number("rope_theta", theta)),
        scaling=read_scaling(rope, config),
        tied=config.read_flag("tie_word_embeddings", tied),
        max_context=config.read_integer("max_position_embeddings", 32768),
        eos=config.read_ids("eos_token_id"),
        bos=next(iter(config.read_ids("bos_token_id")), None),
    )


def find_rope_section(config: ModelConfig) -> ModelConfig:
    """Return the rotary settings, under the newer key or the older one."""
    newer, older = config.read("rope_parameters"), config.read("rope_scaling")
    if newer and older and newer != older:
        config.refuse("rope_scaling that differs from rope_parameters")
    return config.open_section("rope_parameters" if newer else "rope_scaling")


def read_scaling(rope: ModelConfig, config: ModelConfig) -> RopeScaling | None:
    """Read how rotary frequencies are scaled; None: not at all."""
    names = {kind for kind in (rope.read("rope_type"), rope.read("type")) if kind}
    kinds = {SCALING_ALIASES.get(kind, kind) for kind in map(str, names)} - {"default"}
    key = "original_max_position_embeddings"
    original_context = config.read_number(key, config.read_number("max_position_embeddings", 0))
    if not kinds:
        rope.read(key)  # stated beside what it has no meaning for
        return None
    if len(kinds) == 1 and (read := SCALING_READERS.get(*kinds)):
        return read(rope, rope.read_integer(key, int(original_context)), config)
    rope.refuse(f"rope type {' and '.join(sorted(kinds))}")
    return None


def _read_llama3(rope: ModelConfig, original_context: int, config: ModelConfig) -> RopeScaling:
    low, high = rope.read_number("low_freq_factor"), rope.read_number("high_freq_factor")
    return RopeScaling("llama3", rope.read_number("factor"), low, high, original_context)


def _read_yarn(rope: ModelConfig, original_context: int, config: ModelConfig) -> RopeScaling:
    factor = rope.read_number("factor", config.read_integer("max_position_embeddings") / original_context)
    scale, all_dims = rope.read_number("mscale", 0.0), rope.read_number("mscale_all_dim", 0.0)
    magnitude = _compute_yarn_magnitude(factor, 1.0)
    if scale and all_dims:
        magnitude = _compute_yarn_magnitude(factor, scale) / _compute_yarn_magnitude(factor, all_dims)
    return RopeScaling(
        "yarn",
        factor,
        rope.read_number("beta_slow", 1.0),
        rope.read_number("beta_fast", 32.0),
        original_context,
        magnitude=rope.read_number("attention_factor", magnitude),
        rounds_bounds=rope.read_flag("truncate", default=True),
    )


def _compute_yarn_magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _read_longrope(rope: ModelConfig, original_context: int, config: ModelConfig) -> RopeScaling:
    factor = rope.read_number("factor", config.read_integer("max_position_embeddings") / original_context)
    magnitude = math.sqrt(1 + math.log(factor) / math.log(original_context)) if factor > 1 else 1.0
    short, long = (tuple(map(float, rope.read(f"{name}_factor"))) for name in ("short", "long"))
    magnitude = rope.read_number("attention_factor", magnitude)
    return RopeScaling(
        "longrope", factor, original=original_context, factors=short, long_factors=long, magnitude=magnitude
    )


SCALING_READERS: Final[Mapping[str, Callable[[ModelConfig, int, ModelConfig], RopeScaling]]] = {
    "linear": lambda rope, *_: RopeScaling("linear", rope.read_number("factor")),
    "llama3": _read_llama3,
    "yarn": _read_yarn,
    "longrope": _read_longrope,
}


def with_windows(spec: Spec, windowed_layers: tuple[bool, ...], window: int) -> Spec:
    """Return the model with a window in the layers marked in `windowed_layers`, if there are any."""
    return replace(spec, windowed_layers=windowed_layers, window=window) if any(windowed_layers) else spec


def mark_all_but_every(nth: int, layers: int) -> tuple[bool, ...]:
    """Mark all layers but each n-th, which sees everything."""
    return tuple((layer + 1) % nth != 0 for layer in range(layers))


def read_layer_types(config: ModelConfig, layers: int) -> tuple[bool, ...]:
    """Read which layers have a window from `layer_types`; empty if the config has none."""
    kinds = config.read("layer_types") or ()
    if kinds and len(kinds) != layers:
        raise ValueError("layer_types and num_hidden_layers disagree")
    for unknown in sorted({str(kind) for kind in kinds} - {FULL, SLIDING}):
        config.refuse(f"layer_types {unknown}")
    return tuple(kind == SLIDING for kind in kinds)


def with_optional_windows(config: ModelConfig, spec: Spec) -> Spec:
    """Return a Qwen model with the windows of its config, which are usually switched off."""
    is_on, window = config.read_flag("use_sliding_window"), config.read_integer("sliding_window", 0)
    first_windowed = config.read_integer("max_window_layers", 28)
    layer_types = read_layer_types(config, spec.layers)
    if not is_on:
        if any(layer_types):
            config.refuse(f"layer_types {SLIDING} without use_sliding_window")
        return spec
    windowed_layers = layer_types or tuple(layer >= first_windowed for layer in range(spec.layers))
    return with_windows(spec, windowed_layers, window)
