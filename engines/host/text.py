"""Text in and out: a model's own tokenizer when its folder holds one, else token ids."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from engines.host.vocabulary import tokenizer_of
from engines.models.spec import Spec
from engines.weights.sources import Choice

_TURNS = {
    "<start_of_turn>": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "<|start_header_id|>": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "<|im_start|>": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
}

LONGEST_CHARACTER = 8  # tokens, after which a broken character is shown as such


class Text(Protocol):
    """Turns a prompt into ids, and ids into text as they come."""

    meaning: bool

    def encode(self, prompt: str) -> list[int]: ...

    def piece(self, token: int) -> str: ...


class Ids:
    """Turns every word into some id, and shows every id as a number: for a model without a tokenizer."""

    meaning = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def encode(self, prompt: str) -> list[int]:
        words = [zlib.crc32(word.encode()) % self._spec.vocab for word in prompt.split()]
        first = [] if self._spec.bos is None else [self._spec.bos]
        return (first + words) or [0]

    def piece(self, token: int) -> str:
        return f" {token}"


class Words:
    """Uses a tokenizer.json; knows the chat form by its special tokens, and gives whole characters only."""

    meaning = True

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._shown: list[int] = []
        self._new: list[int] = []
        forms = (form for token, form in _TURNS.items() if tokenizer.token_to_id(token) is not None)
        self._form = next(forms, "{}")

    def encode(self, prompt: str) -> list[int]:
        plain = self._form == "{}"
        return list(self._tokenizer.encode(self._form.format(prompt), add_special_tokens=plain).ids)

    def piece(self, token: int) -> str:
        """Return the text that a token completes; a character may take several tokens."""
        self._new.append(token)
        before = self._decode(self._shown)
        text = self._decode(self._shown + self._new)
        if text.endswith("\ufffd") and len(self._new) < LONGEST_CHARACTER:
            return ""
        self._shown, self._new = self._new, []
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class Silent:
    """The text side of a rank that leaves the output to another."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self.meaning = text.meaning

    def encode(self, prompt: str) -> list[int]:
        return self._text.encode(prompt)

    def piece(self, token: int) -> str:
        return ""


def open_text(choice: Choice) -> tuple[Text, str]:
    """Return the text side of a model, and why it is only ids where it is."""
    spec = choice.spec
    if choice.gguf:
        fields = choice.gguf.header.fields
        return _read(spec, "the vocabulary", lambda: tokenizer_of(fields))
    if choice.folder is None:
        return Ids(spec), "the weights are random: the text means nothing"
    path = choice.folder / "tokenizer.json"
    if not path.is_file():
        return Ids(spec), "the folder holds no tokenizer.json"
    return _read(spec, path.name, lambda: _from_file(path))


def _from_file(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def _read(spec: Spec, what: str, read: Callable[[], Any]) -> tuple[Text, str]:
    try:
        return Words(read()), ""
    except ImportError:
        return Ids(spec), "the package tokenizers is not installed"
    except Exception as e:  # the package raises nothing narrower
        return Ids(spec), f"{what} cannot be read: {str(e)[:300]}"
