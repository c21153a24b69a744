"""OLMo 2: norms only after attention and feed-forward, and one norm over all queries and over all keys."""

from dataclasses import replace

from engines.models.config_fields import Family, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder
from engines.models.spec import Spec

MODEL_TYPE = "olmo2"


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    return _with_features(read_decoder(config, name, find_rope_section(config), eps=1e-5))


def _with_features(spec: Spec) -> Spec:
    return replace(spec, pre_norm=False, sandwich=True, qk_norm=True, norms_all_heads=True)


PRESET = Spec(
    "olmo-2-1b", MODEL_TYPE, 100352, 2048, 16, 16, 16, 128, 8192,
    theta=5e5, tied=False, max_context=4096, eos=(100257,),
    hub=("allenai/OLMo-2-0425-1B-Instruct", "allenai/OLMo-2-0425-1B"),
)  # fmt: skip
FAMILY = Family(MODEL_TYPE, read, (_with_features(PRESET),))
