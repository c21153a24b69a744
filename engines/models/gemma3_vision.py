"""Gemma 3 with images, from 4b on: its text model alone, which lies within it."""

from collections.abc import Mapping
from typing import Any, Final

from engines.models import gemma3
from engines.models.config import Config, Family
from engines.models.spec import Spec

MODEL_TYPE = "gemma3"
# where its config is silent
SIZES: Final[Mapping[str, Any]] = {
    "model_type": gemma3.MODEL_TYPE,
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}
IMAGES: Final = (
    "vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index",
)  # fmt: skip


def read(config: Config, name: str) -> Spec:
    """Return the text model of a config; what it says of images is not needed."""
    for key in ("model_type", *IMAGES):
        config.get(key)
    ids = {key: config.get(key) for key in ("bos_token_id", "eos_token_id")}
    return gemma3.read(config.section("text_config", {**SIZES, **ids}), name)


FAMILY = Family(MODEL_TYPE, read)
