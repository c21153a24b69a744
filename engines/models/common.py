"""What the config.json of every family states: sizes, biases, and how positions rotate."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from engines.models.config import Config
from engines.models.spec import Scaling, Spec


def read_decoder(
    config: Config,
    name: str,
    rope: Config,
    *,
    activation: str = "silu",
    theta: float = 1e4,
    head_dim: int = 0,
    tied: bool = False,
    eps: float = 1e-6,
) -> Spec:
    """Return what all families have in common, with the rotary settings of `rope`.

    `activation` is the only one that the family is decoded with, in the config's words; the others are what
    it takes where its config is silent. Raise KeyError or ValueError for a field that is missing or broken.
    """
    for stated in (config.get("hidden_activation"), config.get("hidden_act")):
        if stated not in (None, activation):
            config.refuse(f"activation {stated}")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    return Spec(
        name,
        str(config.get("model_type")),
        vocab=config.integer("vocab_size"),
        hidden=hidden,
        layers=config.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=config.integer("head_dim", head_dim or hidden // heads),
        ffn=config.integer("intermediate_size"),
        eps=config.number("rms_norm_eps", eps),
        theta=rope.number("rope_theta", config.number("rope_theta", theta)),
        scaling=read_scaling(rope, config),
        tied=config.flag("tie_word_embeddings", tied),
        max_context=config.integer("max_position_embeddings", 32768),
        eos=config.ids("eos_token_id"),
        bos=next(iter(config.ids("bos_token_id")), None),
    )


def rope_section(config: Config) -> Config:
    """Return the rotary settings, under the newer key or the older one."""
    newer, older = config.get("rope_parameters"), config.get("rope_scaling")
    if newer and older and newer != older:
        config.refuse("rope_scaling beside other rope_parameters")
    return config.section("rope_parameters" if newer else "rope_scaling")


def read_scaling(rope: Config, config: Config) -> Scaling | None:
    """Return how rotary frequencies are stretched; None: not at all."""
    stated = {kind for kind in (rope.get("rope_type"), rope.get("type")) if kind}
    kinds = {OTHER_WORDS.get(kind, kind) for kind in map(str, stated)} - {"default"}
    first = config.number("original_max_position_embeddings", config.number("max_position_embeddings", 0))
    if not kinds:
        rope.get("original_max_position_embeddings")  # stated beside what it has no meaning for
        return None
    if len(kinds) == 1 and (read := READERS.get(*kinds)):
        return read(rope, rope.integer("original_max_position_embeddings", int(first)), config)
    rope.refuse(f"rope type {' and '.join(sorted(kinds))}")
    return None


def _linear(rope: Config, first: int, config: Config) -> Scaling:
    return Scaling("linear", rope.number("factor"))


def _llama3(rope: Config, first: int, config: Config) -> Scaling:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    return Scaling("llama3", rope.number("factor"), low, high, first)


def _yarn(rope: Config, first: int, config: Config) -> Scaling:
    factor = rope.number("factor", config.integer("max_position_embeddings") / first)
    one, all_dims = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    usual = _yarn_magnitude(factor, 1.0)
    if one and all_dims:
        usual = _yarn_magnitude(factor, one) / _yarn_magnitude(factor, all_dims)
    return Scaling(
        "yarn",
        factor,
        low=rope.number("beta_slow", 1.0),
        high=rope.number("beta_fast", 32.0),
        original=first,
        magnitude=rope.number("attention_factor", usual),
        whole=rope.flag("truncate", default=True),
    )


def _yarn_magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(rope: Config, first: int, config: Config) -> Scaling:
    factor = rope.number("factor", config.integer("max_position_embeddings") / first)
    usual = math.sqrt(1 + math.log(factor) / math.log(first)) if factor > 1 else 1.0
    short, long = (tuple(map(float, rope.get(f"{name}_factor"))) for name in ("short", "long"))
    magnitude = rope.number("attention_factor", usual)
    return Scaling("longrope", factor, original=first, factors=short, long_factors=long, magnitude=magnitude)


READERS: Final[Mapping[str, Callable[[Config, int, Config], Scaling]]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
OTHER_WORDS: Final = {"su": "longrope"}
