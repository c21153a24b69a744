"""Model families, one file each: presets, features, and the reader of config.json.

To add a family:
1. Write `engines/models/<family>.py` with `FAMILY = Family(model_type, read, presets)`. `read` turns a
`ModelConfig` into a `Spec`: it calls `read_decoder` and adds the family's own features. A config.json that
sets a key which `read` does not read is refused with the name of that key.
2. Add `<family>` to `FAMILIES` below.

A package of your own registers its `Family` as an entry point of the group `tracetui.models`
(`my_family = "my_package:FAMILY"`). Built-in families come first; one that cannot be used is named, with the
reason, when a model is not found.

spec: `Spec`, a complete description of a decoder-only transformer.
config_fields: Read a config.json field by field; `Family`, and where checkpoints store tensors.
decoder_config: Fields that families share: sizes, biases, rotary scaling, windows of attention.
catalogue: Find a model by preset name or config.json.
gguf_config: Read a model from the metadata of a GGUF file.
gemma3: Gemma 3, text only.
gemma3_vision: Gemma 3 with images: its text model.
gpt_oss: gpt-oss.
llama: Llama 3, SmolLM2.
mistral: Mistral.
olmo2: OLMo 2.
phi3: Phi 3 and 4.
qwen2: Qwen 2 and 2.5.
qwen3: Qwen 3.
qwen3_moe: Qwen 3 with a mixture of experts.
"""

from typing import Final

ENTRY_POINTS: Final = "tracetui.models"
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
