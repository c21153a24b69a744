"""Read a config.json field by field: keys that a family does not read are refused by name, never ignored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engines.models.spec import Spec

# What training, generation, a tokenizer or a library writes: nothing of it changes what the model computes.
IGNORED_KEYS: Final = frozenset((
    "architectures", "attention_dropout", "attn_implementation", "bad_words_ids", "begin_suppress_tokens",
    "cache_implementation", "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty",
    "do_sample", "dtype", "early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
    "gradient_checkpointing", "hidden_dropout", "id2label", "initializer_range", "is_llama_config",
    "label2id", "length_penalty", "max_length", "max_new_tokens", "min_length", "min_new_tokens",
    "model_name", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_attentions",
    "output_hidden_states", "output_scores", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
    "remove_invalid_values", "repetition_penalty", "resid_pdrop", "return_dict", "return_dict_in_generate",
    "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "typical_p", "unk_token_id",
    "use_bfloat16", "use_cache", "vocab_file",
))  # fmt: skip
IGNORED_PREFIXES: Final = ("_", "transformers", "unsloth")  # notes of the library that wrote it

# A value other than nothing under which a feature is switched off.
OFF_VALUES: Final[Mapping[str, object]] = {
    "embedding_multiplier": 1,
    "is_causal": True,
    "logits_scaling": 1,
    "partial_rotary_factor": 1,
    "residual_multiplier": 1,
    "rotary_pct": 1,
}


class ModelConfig:
    """Fields of a config.json, or of an object in it; remembers which keys were read."""

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        self._fields, self._path = fields, path
        self._read_keys: set[str] = set()
        self._sections: dict[str, ModelConfig] = {}
        self._refused_features: list[str] = []

    def has_key(self, key: str) -> bool:
        """Return whether the config has a key, even if null."""
        return key in self._fields

    def read(self, key: str) -> Any:
        """Return a field; None if it is missing."""
        self._read_keys.add(key)
        return self._fields.get(key)

    def read_integer(self, key: str, default: int | None = None) -> int:
        """Return an integer. Raise KeyError if it is missing without default, ValueError if invalid."""
        number = self.read_number(key, default)
        if number != int(number):
            raise ValueError(f"{key} {number}")
        return int(number)

    def read_number(self, key: str, default: float | None = None) -> float:
        """Return a number. Raise KeyError if it is missing without default, ValueError if invalid."""
        value = self.read(key)
        if value is None:
            value = default
        if value is None:
            raise KeyError(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} {value!r}")
        return float(value)

    def read_flag(self, key: str, default: bool = False) -> bool:
        value = self.read(key)
        return default if value is None else bool(value)

    def read_ids(self, key: str) -> tuple[int, ...]:
        """Return token ids: a config has one, several or none."""
        value = self.read(key)
        if value is None:
            return ()
        return tuple(int(v) for v in (value if isinstance(value, list) else [value]))

    def open_section(self, key: str, defaults: Mapping[str, Any] | None = None) -> "ModelConfig":
        """Return an object in this one, whose keys must be read, too; empty if it is missing.

        `defaults` are the fields that it has unless stated.
        """
        fields = self.read(key)
        if key not in self._sections:
            present = {name: value for name, value in dict(fields or {}).items() if value is not None}
            merged = {**defaults, **present} if defaults else dict(fields or {})
            self._sections[key] = ModelConfig(merged, f"{self._path}{key}.")
        return self._sections[key]

    def refuse(self, feature: str) -> None:
        """Record a feature that no decoder here supports."""
        self._refused_features.append(feature)

    def list_refused(self) -> list[str]:
        """List refused features, and keys that are set but were not read."""
        unread = [f"{self._path}{key}" for key, value in self._fields.items() if self._is_refused(key, value)]
        nested = [what for section in self._sections.values() for what in section.list_refused()]
        return [*self._refused_features, *unread, *nested]

    def _is_refused(self, key: str, value: object) -> bool:
        if key in self._read_keys or key in IGNORED_KEYS or key.startswith(IGNORED_PREFIXES):
            return False
        if key in OFF_VALUES:
            return value is not None and value != OFF_VALUES[key]
        return bool(value)


@dataclass(frozen=True)
class GgufMapping:
    """How GGUF files store a family, in addition to what all of them have in common."""

    architecture: str
    # metadata → more of a config.json
    read_fields: Callable[[ModelConfig], Mapping[str, Any]] = lambda metadata: {}
    has_adjacent_pairs: bool = False  # numbers of a head that rotate together lie side by side
    adjust_spec: Callable[[Spec], Spec] = lambda spec: spec  # what the converter has changed


class TensorSlice(NamedTuple):
    """Where a folder stores a tensor within a larger one."""

    name: str  # of the larger one
    shape: tuple[int, ...]
    rows: slice | None = None  # None: all
    item: int | None = None  # of its first dimension, where every item is a matrix or vector of its own
    is_transposed: bool = False  # its columns are our rows
    scales: str = ""  # name of the exponents of a tensor in MXFP4; of any other there are none


@dataclass(frozen=True)
class Family:
    """Models of one architecture: `model_type` of their config.json, its reader, and presets.

    `find_tensor_slice` locates tensors that a folder stores under other names or within others; None: by
    their own name.
    """

    model_type: str
    read: Callable[[ModelConfig, str], Spec]  # config and name → Spec; what it cannot decode it refuses
    presets: tuple[Spec, ...] = ()
    gguf: GgufMapping | None = None
    find_tensor_slice: Callable[[Spec, str], TensorSlice | None] = lambda spec, name: None
