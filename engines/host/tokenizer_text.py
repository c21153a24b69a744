"""Prompts to token ids and token ids to text, with the model's tokenizer; numbers if it has none."""

import zlib
from collections.abc import Mapping
from typing import Any, Final

from engines.models.gguf_config import SPLIT_PATTERNS
from engines.models.spec import Spec
from engines.weights.weight_sources import ModelChoice

_CHAT_TEMPLATES = {
    "<start_of_turn>": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "<|start_header_id|>": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "<|im_start|>": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
}

_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6  # kinds of a token
_SPACE: Final = "\u2581"
MAX_CHARACTER_TOKENS = 8  # tokens, after which a broken character is shown as such


class IdText:
    """Maps each word to some id, and shows ids as numbers: for a model without tokenizer."""

    has_meaning = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def encode(self, prompt: str) -> list[int]:
        words = [zlib.crc32(word.encode()) % self._spec.vocab for word in prompt.split()]
        prefix = [] if self._spec.bos is None else [self._spec.bos]
        return (prefix + words) or [0]

    def decode_token(self, token: int) -> str:
        return f" {token}"


class TokenizerText:
    """Uses a tokenizer; finds the chat template by its special tokens, and returns whole characters only."""

    has_meaning = True

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._written_ids: list[int] = []
        self._pending_ids: list[int] = []
        tokens = (token for token in _CHAT_TEMPLATES if tokenizer.token_to_id(token) is not None)
        self._template = _CHAT_TEMPLATES.get(next(tokens, ""), "{}")

    def encode(self, prompt: str) -> list[int]:
        is_plain = self._template == "{}"
        return list(self._tokenizer.encode(self._template.format(prompt), add_special_tokens=is_plain).ids)

    def decode_token(self, token: int) -> str:
        """Return the text that a token completes; a character may take several tokens."""
        self._pending_ids.append(token)
        written = self._decode(self._written_ids)
        text = self._decode(self._written_ids + self._pending_ids)
        if text.endswith("\ufffd") and len(self._pending_ids) < MAX_CHARACTER_TOKENS:
            return ""
        self._written_ids, self._pending_ids = self._pending_ids, []
        return text[len(written) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class SilentText:
    """The text codec of a rank whose output another rank writes."""

    def __init__(self, text: IdText | TokenizerText) -> None:
        self._text = text
        self.has_meaning = text.has_meaning

    def encode(self, prompt: str) -> list[int]:
        return self._text.encode(prompt)

    def decode_token(self, token: int) -> str:
        return ""


TextCodec = IdText | TokenizerText | SilentText


def open_text(choice: ModelChoice) -> tuple[IdText | TokenizerText, str]:
    """Open the text codec of a model; also return why it is ids only, if so."""
    spec = choice.spec
    if choice.folder is None and choice.gguf is None:
        return IdText(spec), "random weights: the text is meaningless"
    source = "the vocabulary" if choice.gguf else "tokenizer.json"
    if choice.folder and not (choice.folder / source).is_file():
        return IdText(spec), "no tokenizer.json in the folder"
    try:
        return TokenizerText(_load_tokenizer(choice)), ""
    except ImportError:
        return IdText(spec), "the package tokenizers is not installed"
    except Exception as e:  # the package raises nothing narrower
        return IdText(spec), f"{source} cannot be read: {str(e)[:300]}"


def _load_tokenizer(choice: ModelChoice) -> Any:
    if choice.gguf:
        return build_tokenizer(choice.gguf.header.fields)
    from tokenizers import Tokenizer

    return Tokenizer.from_file(f"{choice.folder}/tokenizer.json")


def build_tokenizer(fields: Mapping[str, Any]) -> Any:
    """Build the tokenizer of a GGUF's metadata, with the package tokenizers.

    Raise ImportError without that package, and ValueError for an invalid or unsupported vocabulary.
    """
    import tokenizers

    kind, tokens = fields.get("tokenizer.ggml.model"), _read_strings(fields, "tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if kind == "gpt2":
        result = _build_byte_tokenizer(fields, vocabulary)
    elif kind == "llama":
        result = _build_piece_tokenizer(fields, vocabulary)
    else:
        raise ValueError(f"vocabulary type {kind!r:.40} is not supported")
    result.add_special_tokens(_list_special_tokens(fields, tokens))
    bos = fields.get("tokenizer.ggml.bos_token_id")
    # texts start with a special token in these vocabularies if the file does not state it
    is_leading = kind == "llama" or fields.get("tokenizer.ggml.pre") == "llama-bpe"
    if fields.get("tokenizer.ggml.add_bos_token", is_leading) and type(bos) is int and 0 <= bos < len(tokens):
        result.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return result


def _read_strings(fields: Mapping[str, Any], name: str) -> list[str]:
    items = fields.get(f"tokenizer.ggml.{name}")
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"it has no {name}")
    return items


def _list_special_tokens(fields: Mapping[str, Any], tokens: list[str]) -> list[Any]:
    """List the tokens that are matched as a whole; control tokens are never shown."""
    from tokenizers import AddedToken

    kinds = fields.get("tokenizer.ggml.token_type") or ()
    return [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER_DEFINED) and token
    ]


def _build_byte_tokenizer(fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    split_name = fields.get("tokenizer.ggml.pre", "gpt-2")
    if split_name not in SPLIT_PATTERNS:
        raise ValueError(f"text split {split_name!r:.40} is not supported, only {', '.join(SPLIT_PATTERNS)}")
    pairs = [(left, right) for left, _, right in (m.partition(" ") for m in _read_strings(fields, "merges"))]
    result = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=split_name == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in SPLIT_PATTERNS[split_name]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    result.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    result.decoder = decoders.ByteLevel()
    return result


def _build_piece_tokenizer(fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    has_bytes = _BYTE in (fields.get("tokenizer.ggml.token_type") or ())
    unknown = "<unk>" if "<unk>" in vocabulary else None
    pairs = _derive_merges(fields.get("tokenizer.ggml.scores"), vocabulary)
    model = models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes)
    result = Tokenizer(model)
    adds_space = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    prepend = [normalizers.Prepend(_SPACE)] if adds_space else []
    result.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if adds_space else []
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    result.decoder = decoders.Sequence(steps)
    return result


def _derive_merges(scores: object, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of pieces that form a third one, in the order in which its scores merge them."""
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise ValueError("its pieces have no scores")
    if not all(isinstance(score, float) for score in scores):
        raise ValueError("its scores are not numbers")
    merges = [
        (-scores[number], vocabulary[piece[:cut]], piece[:cut], piece[cut:])
        for piece, number in vocabulary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return [(left, right) for _, _, left, right in sorted(merges)]
