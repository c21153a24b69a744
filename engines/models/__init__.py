"""Model families: one file each, with its presets, its features and the reader of its config.json.

To add a family:
1. Write `engines/models/<family>.py` that defines `FAMILY = Family(model_type, read, presets)`. `read` turns
   a `Config` into a `Spec`: it begins with `read_decoder` and adds what the family has beyond it. Every key
   that `read` does not ask for is refused by name where a config.json sets it.
2. Add `<family>` to `FAMILIES` below.
"""

from typing import Final

FAMILIES: Final = (
    "gemma3",
    "gemma3_vision",
    "gpt_oss",
    "llama",
    "mistral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
)
