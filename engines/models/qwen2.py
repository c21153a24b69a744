"""Qwen 2 and 2.5: biases on queries, keys and values."""

from dataclasses import replace

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family, InGguf
from engines.models.spec import Spec
from engines.models.windows import switched_windows

MODEL_TYPE = "qwen2"


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, rope_section(config))
    return replace(switched_windows(config, spec), qkv_bias=True)


FAMILY = Family(
    MODEL_TYPE,
    read,
    (
        Spec(
            "qwen2.5-0.5b", MODEL_TYPE, 151936, 896, 24, 14, 2, 64, 4864,
            qkv_bias=True, eos=(151645, 151643), hub=("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B"),
        ),
    ),
    gguf=InGguf(MODEL_TYPE),
)  # fmt: skip
