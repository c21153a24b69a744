"""Read a config.json field by field: what a family does not ask for is refused by name, never dropped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.models.spec import Spec

# What training, generation, a tokenizer or a library writes: nothing of it changes what the model computes.
HARMLESS: Final = frozenset((
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
HARMLESS_PREFIXES: Final = (
    "_",
    "transformers",
    "unsloth",
)  # notes of the library that wrote it

# A value other than nothing under which a feature is switched off.
NEUTRAL: Final[Mapping[str, object]] = {
    "embedding_multiplier": 1,
    "is_causal": True,
    "logits_scaling": 1,
    "partial_rotary_factor": 1,
    "residual_multiplier": 1,
    "rotary_pct": 1,
}


class Config:
    """The fields of a config.json, or of an object in it; remembers which of them were asked for."""

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        self._fields, self._path = fields, path
        self._asked: set[str] = set()
        self._sections: dict[str, Config] = {}
        self._refused: list[str] = []

    def has(self, key: str) -> bool:
        """Return whether the config states a field, be it null."""
        return key in self._fields

    def get(self, key: str) -> Any:
        """Return a field; None where it is missing."""
        self._asked.add(key)
        return self._fields.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number. Raise KeyError if it is missing without a default, ValueError if broken."""
        number = self.number(key, default)
        if number != int(number):
            raise ValueError(f"{key} {number}")
        return int(number)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number. Raise KeyError if it is missing without a default, ValueError if it is broken."""
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            raise KeyError(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} {value!r}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a field that is true or false."""
        value = self.get(key)
        return default if value is None else bool(value)

    def ids(self, key: str) -> tuple[int, ...]:
        """Return token ids: a config states one, several or none."""
        value = self.get(key)
        if value is None:
            return ()
        return tuple(int(v) for v in (value if isinstance(value, list) else [value]))

    def section(self, key: str, defaults: Mapping[str, Any] | None = None) -> "Config":
        """Return an object within this one, its keys watched as well; an empty one where it is missing.

        `defaults` are what it states where it is silent.
        """
        fields = self.get(key)
        if key not in self._sections:
            stated = {name: value for name, value in dict(fields or {}).items() if value is not None}
            own = {**defaults, **stated} if defaults else dict(fields or {})
            self._sections[key] = Config(own, f"{self._path}{key}.")
        return self._sections[key]

    def refuse(self, what: str) -> None:
        """Note a value that no decoder here computes with."""
        self._refused.append(what)

    def refused(self) -> list[str]:
        """Return what is not decoded: refused values, and keys that are set and were not asked for."""
        unread = [f"{self._path}{key}" for key, value in self._fields.items() if self._matters(key, value)]
        within = [what for section in self._sections.values() for what in section.refused()]
        return [*self._refused, *unread, *within]

    def _matters(self, key: str, value: object) -> bool:
        if key in self._asked or key in HARMLESS or key.startswith(HARMLESS_PREFIXES):
            return False
        if key in NEUTRAL:
            return value is not None and value != NEUTRAL[key]
        return bool(value)


@dataclass(frozen=True)
class InGguf:
    """How GGUF files keep a family, beyond what they keep of all."""

    architecture: str
    fields: Callable[[Config], Mapping[str, Any]] = lambda metadata: {}  # metadata → more of a config.json
    pairs: bool = False  # numbers of a head that rotate together lie side by side
    finished: Callable[[Spec], Spec] = lambda spec: spec  # what the converter has changed


@dataclass(frozen=True)
class Piece:
    """Where a folder keeps a tensor of ours within a larger one."""

    name: str  # of the larger one
    shape: tuple[int, ...]
    rows: slice | None = None  # None: all
    item: int | None = None  # of its first dimension, where every item is a matrix or vector of its own
    turned: bool = False  # its columns are our rows
    scales: str = ""  # name of the exponents of a tensor in MXFP4; of any other there are none


@dataclass(frozen=True)
class Family:
    """Models of one architecture: the `model_type` of their config.json, its reader, and known models.

    `find_piece` tells where a folder keeps a tensor of ours by another name or within another; None: by
    its own.
    """

    model_type: str
    read: Callable[[Config, str], Spec]  # config and name → Spec; what it cannot decode it refuses
    presets: tuple[Spec, ...] = ()
    gguf: InGguf | None = None
    find_piece: Callable[[Spec, str], Piece | None] = lambda spec, name: None
