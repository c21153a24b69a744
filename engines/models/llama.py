"""Llama 3 and models built like it (SmolLM2): nothing beyond the common fields."""

from engines.models.config_fields import Family, GgufMapping, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder
from engines.models.spec import RopeScaling, Spec

MODEL_TYPE = "llama"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    return read_decoder(config, name, find_rope_section(config))


def _make_smollm(name: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, hub: str) -> Spec:
    return Spec(
        name, MODEL_TYPE, 49152, hidden, layers, heads, kv_heads, 64, ffn,
        eps=1e-5, theta=1e5, max_context=8192, eos=(2,), bos=1,
        hub=(f"HuggingFaceTB/{hub}-Instruct", f"HuggingFaceTB/{hub}"),
    )  # fmt: skip


PRESETS = (
    Spec(
        "llama-3.2-1b", MODEL_TYPE, 128256, 2048, 16, 32, 8, 64, 8192,
        eps=1e-5, theta=5e5, scaling=RopeScaling("llama3", 32.0), max_context=131072,
        eos=(128001, 128008, 128009), bos=128000,
        hub=("meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B", "unsloth/Llama-3.2-1B-Instruct"),
    ),
    _make_smollm("smollm2-135m", 576, 30, 9, 3, 1536, "SmolLM2-135M"),
    _make_smollm("smollm2-360m", 960, 32, 15, 5, 2560, "SmolLM2-360M"),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, PRESETS, GgufMapping(MODEL_TYPE, has_adjacent_pairs=True))
