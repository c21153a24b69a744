"""Gemma 3, text only: windows in five of six layers, norms around both blocks, scaled embeddings."""

from dataclasses import replace
from typing import Any

from engines.models.common import read_decoder, read_scaling, rope_section
from engines.models.config import Config, Family, InGguf
from engines.models.spec import Spec
from engines.models.windows import FULL, SLIDING, all_but_every, stated_windows, with_windows

MODEL_TYPE = "gemma3_text"
FULL_EVERY = 6  # the layer that sees everything
THETA, THETA_LOCAL = 1e6, 1e4
LAYERS_27B = 62  # of the one size whose queries are scaled by another number than the head's


def read(config: Config, name: str) -> Spec:
    """Return the model of a config in the newer words or the older ones."""
    rope, windowed = rope_section(config), Config({})
    if rope.get(FULL):
        rope, windowed = rope.section(FULL), rope.section(SLIDING)
    spec = read_decoder(
        config, name, rope, activation="gelu_pytorch_tanh", theta=THETA, head_dim=256, tied=True
    )
    if read_scaling(windowed, config):
        config.refuse("scaled rotation in windowed layers")
    older = config.number("rope_local_base_freq", THETA_LOCAL)
    scalar = config.number("query_pre_attn_scalar", 256)
    local = stated_windows(config, spec.layers)
    every = [config.integer(key, 0) for key in ("sliding_window_pattern", "_sliding_window_pattern")]
    local = local or all_but_every(next(filter(None, every), FULL_EVERY), spec.layers)
    spec = replace(_with_features(spec), query_scale=scalar**-0.5)
    spec = replace(spec, theta_local=windowed.number("rope_theta", older))
    return with_windows(spec, local, config.integer("sliding_window", 0))


def _more_fields(metadata: Config) -> dict[str, Any]:
    """Return the fields that only this family has, as a config.json states them."""
    layers, heads = metadata.integer("block_count"), metadata.integer("attention.head_count")
    per_head = metadata.integer("embedding_length") // heads
    head_dim = metadata.integer("attention.key_length", per_head)
    window = metadata.integer("attention.sliding_window", 0)
    pattern = metadata.get("attention.sliding_window_pattern") or FULL_EVERY
    local = pattern if isinstance(pattern, list) else all_but_every(int(pattern), layers)
    return {
        "query_pre_attn_scalar": per_head if layers == LAYERS_27B else head_dim,
        "sliding_window": window,
        "layer_types": [SLIDING if window and seen else FULL for seen in local],
        "rope_local_base_freq": metadata.number("rope.freq_base_swa", THETA_LOCAL),
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _as_converted(spec: Spec) -> Spec:
    """Return the model as its norms are stored in a GGUF: one more than in a checkpoint."""
    return replace(spec, unit_offset=False)


def _with_features(spec: Spec) -> Spec:
    return replace(
        spec, activation="gelu_tanh", qk_norm=True, sandwich=True, unit_offset=True, embed_scale=True
    )


def _preset(name: str, hidden: int, layers: int, ffn: int) -> Spec:
    spec = Spec(
        name, MODEL_TYPE, 262144, hidden, layers, heads=4, kv_heads=1, head_dim=256, ffn=ffn,
        theta=THETA, theta_local=THETA_LOCAL, query_scale=256**-0.5, eos=(1, 106), bos=2,
        hub=(f"google/{name}-it", f"google/{name}-pt", f"unsloth/{name}-it"),
    )  # fmt: skip
    return with_windows(_with_features(spec), all_but_every(FULL_EVERY, layers), 512)


FAMILY = Family(
    MODEL_TYPE,
    read,
    (
        _preset("gemma-3-1b", 1152, 26, 6912),
        _preset("gemma-3-270m", 640, 18, 2048),
    ),
    InGguf("gemma3", _more_fields, finished=_as_converted),
)
