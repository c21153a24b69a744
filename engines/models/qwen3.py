"""Qwen 3: a norm on each query and key."""

from dataclasses import replace

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family, InGguf
from engines.models.spec import Spec
from engines.models.windows import switched_windows

MODEL_TYPE = "qwen3"


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, rope_section(config), head_dim=128)
    return replace(switched_windows(config, spec), qk_norm=True)


FAMILY = Family(
    MODEL_TYPE,
    read,
    (
        Spec(
            "qwen3-0.6b", MODEL_TYPE, 151936, 1024, 28, 16, 8, 128, 3072,
            max_context=40960, qk_norm=True, eos=(151645, 151643),
            hub=("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-Base"),
        ),
    ),
    gguf=InGguf(MODEL_TYPE),
)  # fmt: skip
