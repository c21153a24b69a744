"""Mistral: a window in every layer, or in none."""

from engines.models.config_fields import Family, ModelConfig
from engines.models.decoder_config import find_rope_section, read_decoder, with_windows
from engines.models.spec import Spec

DEFAULT_WINDOW = 4096  # where a config is silent; one without a window says null


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    spec = read_decoder(config, name, find_rope_section(config))
    if config.has_key("sliding_window") and config.read("sliding_window") is None:
        return spec
    return with_windows(spec, (True,) * spec.layers, config.read_integer("sliding_window", DEFAULT_WINDOW))


FAMILY = Family("mistral", read)
