"""Qwen 3: a norm on each query and key."""

from dataclasses import replace

from engines.models.config_fields import Family, GgufMapping, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder, with_optional_windows
from engines.models.spec import Spec

MODEL_TYPE = "qwen3"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    spec = read_decoder(config, name, find_rope_section(config), head_dim=128)
    return replace(with_optional_windows(config, spec), qk_norm=True)


PRESET = Spec(
    "qwen3-0.6b", MODEL_TYPE, 151936, 1024, 28, 16, 8, 128, 3072, max_context=40960, qk_norm=True,
    eos=(151645, 151643), hub=("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-Base"),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, (PRESET,), GgufMapping(MODEL_TYPE))
