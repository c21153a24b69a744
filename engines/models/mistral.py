"""Mistral: a window in every layer, or in none."""

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family
from engines.models.spec import Spec
from engines.models.windows import with_windows

WINDOW = 4096  # where a config is silent; one without a window says null


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, rope_section(config))
    if config.has("sliding_window") and config.get("sliding_window") is None:
        return spec
    return with_windows(spec, (True,) * spec.layers, config.integer("sliding_window", WINDOW))


FAMILY = Family("mistral", read)
