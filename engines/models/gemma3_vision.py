"""Gemma 3 with images, from 4b on: only its text model is decoded."""

from collections.abc import Mapping
from typing import Any, Final

from engines.models import gemma3
from engines.models.config_fields import Family, ModelConfig
from engines.models.spec import Spec

MODEL_TYPE = "gemma3"
# where its config is silent
DEFAULT_FIELDS: Final[Mapping[str, Any]] = {
    "model_type": gemma3.MODEL_TYPE,
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}
IMAGE_KEYS: Final = (
    "vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index",
)  # fmt: skip


def read(config: ModelConfig, name: str) -> Spec:
    """Read the text model of a config; image settings are not needed."""
    for key in ("model_type", *IMAGE_KEYS):
        config.read(key)
    ids = {key: config.read(key) for key in ("bos_token_id", "eos_token_id")}
    return gemma3.read(config.open_section("text_config", {**DEFAULT_FIELDS, **ids}), name)


FAMILY = Family(MODEL_TYPE, read)
