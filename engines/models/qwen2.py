"""Qwen 2 and 2.5: biases on queries, keys and values."""

from dataclasses import replace

from engines.models.config_fields import Family, GgufMapping, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder, with_optional_windows
from engines.models.spec import Spec

MODEL_TYPE = "qwen2"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    spec = read_decoder(config, name, find_rope_section(config))
    return replace(with_optional_windows(config, spec), qkv_bias=True)


PRESET = Spec(
    "qwen2.5-0.5b", MODEL_TYPE, 151936, 896, 24, 14, 2, 64, 4864,
    qkv_bias=True, eos=(151645, 151643), hub=("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B"),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, (PRESET,), GgufMapping(MODEL_TYPE))
