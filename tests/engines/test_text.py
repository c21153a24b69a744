"""Text in and out: with a tokenizer, and without one."""

import json
from pathlib import Path

import pytest

from engines.host.tokenizer_text import TokenizerText, open_text
from engines.models.catalogue import find_preset
from engines.weights.weight_sources import ModelChoice


def byte_level(folder: Path, *special: str) -> Path:
    """A tokenizer that knows single bytes and a few special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(special))
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_pieces_are_whole_characters(tmp_path: Path) -> None:
    text, why = open_text(ModelChoice(find_preset("gemma-3-1b"), byte_level(tmp_path)))
    output = "Grüße, 世界 🙂"
    ids = text.encode(output)
    assert len(ids) == len(output.encode()) and why == "" and text.has_meaning
    pieces = [text.decode_token(i) for i in ids]
    assert "".join(pieces) == output
    assert all("\ufffd" not in p for p in pieces) and "世" in pieces


def test_the_chat_form_is_the_tokenizers_own(tmp_path: Path) -> None:
    text, _ = open_text(
        ModelChoice(find_preset("qwen2.5-0.5b"), byte_level(tmp_path, "<|im_start|>", "<|im_end|>"))
    )
    assert isinstance(text, TokenizerText)
    ids = text.encode("hi")
    assert ids[0] == 256 and ids.count(256) == 2 and ids.count(257) == 1
    assert text.decode_token(ids[0]) == ""  # special tokens are not shown


def test_without_a_tokenizer_ids_are_shown(tmp_path: Path) -> None:
    text, why = open_text(ModelChoice(find_preset("gemma-3-1b"), tmp_path))
    assert "no tokenizer.json" in why and not text.has_meaning
    assert text.encode("a b a")[0] == 2 and len(text.encode("a b a")) == 4
    assert text.encode("a b a")[1] == text.encode("a b a")[3] and text.decode_token(4711) == " 4711"


@pytest.mark.parametrize("raw", ["", "{}", json.dumps({"model": {"type": "BPE"}})])
def test_a_broken_tokenizer_is_told(raw: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(raw)
    text, why = open_text(ModelChoice(find_preset("gemma-3-1b"), tmp_path))
    assert "cannot be read" in why and text.encode("a")
