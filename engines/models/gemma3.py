"""Gemma 3, text only: windows in five of six layers, norms around both blocks, scaled embeddings."""

from dataclasses import replace
from typing import Any

from engines.models.config_fields import Family, GgufMapping, ModelConfig
from engines.models.decoder_config import (
    FULL,
    SLIDING,
    find_rope_section,
    mark_all_but_every,
    read_decoder,
    read_layer_types,
    read_scaling,
    with_windows,
)
from engines.models.spec import Spec

MODEL_TYPE = "gemma3_text"
ACTIVATION = "gelu_pytorch_tanh"
FULL_ATTENTION_INTERVAL = 6  # the layer that sees everything
THETA, THETA_LOCAL = 1e6, 1e4
LAYERS_27B = 62  # of the one size whose queries are scaled by another number than the head's


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config with the newer or the older key names."""
    rope, local_rope = find_rope_section(config), ModelConfig({})
    if rope.read(FULL):
        rope, local_rope = rope.open_section(FULL), rope.open_section(SLIDING)
    spec = read_decoder(config, name, rope, activation=ACTIVATION, theta=THETA, head_dim=256, tied=True)
    if read_scaling(local_rope, config):
        config.refuse("scaled rotation in windowed layers")
    local_theta = config.read_number("rope_local_base_freq", THETA_LOCAL)
    scalar = config.read_number("query_pre_attn_scalar", 256)
    windowed_layers = read_layer_types(config, spec.layers)
    intervals = [config.read_integer(key, 0) for key in ("sliding_window_pattern", "_sliding_window_pattern")]
    interval = next(filter(None, intervals), FULL_ATTENTION_INTERVAL)
    local_theta = local_rope.read_number("rope_theta", local_theta)
    spec = replace(_with_features(spec), query_scale=scalar**-0.5, theta_local=local_theta)
    windowed_layers = windowed_layers or mark_all_but_every(interval, spec.layers)
    return with_windows(spec, windowed_layers, config.read_integer("sliding_window", 0))


def _read_gguf_fields(metadata: ModelConfig) -> dict[str, Any]:
    layers, heads = metadata.read_integer("block_count"), metadata.read_integer("attention.head_count")
    per_head = metadata.read_integer("embedding_length") // heads
    head_dim = metadata.read_integer("attention.key_length", per_head)
    window = metadata.read_integer("attention.sliding_window", 0)
    pattern = metadata.read("attention.sliding_window_pattern") or FULL_ATTENTION_INTERVAL
    windowed_layers = pattern if isinstance(pattern, list) else mark_all_but_every(int(pattern), layers)
    return {
        "query_pre_attn_scalar": per_head if layers == LAYERS_27B else head_dim,
        "sliding_window": window,
        "layer_types": [SLIDING if window and is_windowed else FULL for is_windowed in windowed_layers],
        "rope_local_base_freq": metadata.read_number("rope.freq_base_swa", THETA_LOCAL),
        "hidden_activation": ACTIVATION,
    }


def _with_features(spec: Spec) -> Spec:
    return replace(
        spec, activation="gelu_tanh", qk_norm=True, sandwich=True, unit_offset=True, embed_scale=True
    )


def _make_preset(name: str, hidden: int, layers: int, ffn: int) -> Spec:
    spec = Spec(
        name, MODEL_TYPE, 262144, hidden, layers, heads=4, kv_heads=1, head_dim=256, ffn=ffn,
        theta=THETA, theta_local=THETA_LOCAL, query_scale=256**-0.5, eos=(1, 106), bos=2,
        hub=(f"google/{name}-it", f"google/{name}-pt", f"unsloth/{name}-it"),
    )  # fmt: skip
    return with_windows(_with_features(spec), mark_all_but_every(FULL_ATTENTION_INTERVAL, layers), 512)


PRESETS = _make_preset("gemma-3-1b", 1152, 26, 6912), _make_preset("gemma-3-270m", 640, 18, 2048)
# norm weights in GGUF files include the offset of one
GGUF = GgufMapping("gemma3", _read_gguf_fields, adjust_spec=lambda spec: replace(spec, unit_offset=False))
FAMILY = Family(MODEL_TYPE, read, PRESETS, GGUF)
