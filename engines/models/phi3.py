"""Phi 3 and 4: matrices stored next to each other in one tensor, partial rotation of heads."""

from dataclasses import replace

from engines.models.config_fields import Family, ModelConfig, TensorSlice
from engines.models.decoder_config import find_rope_section, read_decoder, with_windows
from engines.models.spec import Spec

MODEL_TYPE = "phi3"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    rope = find_rope_section(config)
    spec = read_decoder(config, name, rope, eps=1e-5)
    share = rope.read_number("partial_rotary_factor", config.read_number("partial_rotary_factor", 1.0))
    window = config.read_integer("sliding_window", 0)
    spec = replace(spec, partial_rotary_dim=0 if share == 1.0 else int(share * spec.head_dim))
    return with_windows(spec, (window > 0,) * spec.layers, window)


def find_tensor_slice(spec: Spec, name: str) -> TensorSlice | None:
    """Find where a checkpoint stores a matrix that shares a tensor with others."""
    stem, _, part = name.removesuffix(".weight").rpartition(".")
    q, kv, ffn = spec.query_width, spec.kv_width, spec.ffn
    qkv, gate_up = (f"{stem}.qkv_proj.weight", q + 2 * kv), (f"{stem}.gate_up_proj.weight", 2 * ffn)
    slices = {
        "q_proj": (*qkv, 0, q),
        "k_proj": (*qkv, q, kv),
        "v_proj": (*qkv, q + kv, kv),
        "gate_proj": (*gate_up, 0, ffn),
        "up_proj": (*gate_up, ffn, ffn),
    }
    if part not in slices:
        return None
    stored, rows, first, count = slices[part]
    return TensorSlice(stored, (rows, spec.hidden), slice(first, first + count))


PRESETS = (
    Spec(
        "phi-3-mini", MODEL_TYPE, 32064, 3072, 32, 32, 32, 96, 8192,
        eps=1e-5, theta=1e4, window=2047, windowed_layers=(True,) * 32, tied=False, max_context=4096,
        eos=(32000, 32007), bos=1, hub=("microsoft/Phi-3-mini-4k-instruct",),
    ),
    Spec(
        "phi-4", MODEL_TYPE, 100352, 5120, 40, 40, 10, 128, 17920,
        eps=1e-5, theta=250000.0, tied=False, max_context=16384,
        eos=(100265,), bos=100257, hub=("microsoft/phi-4",),
    ),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, PRESETS, find_tensor_slice=find_tensor_slice)
