"""Tokenizers out of a GGUF's vocabulary, against those that the vocabularies were taken from."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.host.tokenizer_text import IdText, build_tokenizer, open_text
from engines.weights import weight_sources
from tests.engines import gguf_files as files
from tests.engines import tiny

tokenizers = pytest.importorskip("tokenizers")
SAID = ("the tensor the tensor 123456 isn't  it?\n\nGrüße, 世界 🙂", "  lead", "We'll see 1 2 33", "")
CORPUS = ["the tensor is the tensor of the layer, and it isn't the layer's", "We'll see 12 345", "Grüße 世界"]
NORMAL, CONTROL, BYTE = 1, 3, 6


def trained(split: Any) -> Any:
    """A byte-level tokenizer with merges of its own, and one special token."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    whole = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*split, whole])
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def fields_of(made: Any, pre: str) -> dict[str, Any]:
    document = json.loads(made.to_str())
    vocabulary = sorted(document["model"]["vocab"].items(), key=lambda item: item[1])
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
        "tokenizer.ggml.token_type": [CONTROL if t == "<|end|>" else NORMAL for t, _ in vocabulary],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in document["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
    }  # fmt: skip


# as the tokenizer.json of Qwen 2.5, Llama 3 and SmolLM 2 split
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SPLITS = {
    "qwen2": [tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN), "isolated")],
    "llama-bpe": [tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA), "isolated")],
    "smollm": [
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ],
}


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_pairs_of_bytes_are_those_of_their_tokenizer(pre: str) -> None:
    made = trained(SPLITS[pre])
    read = build_tokenizer({**fields_of(made, pre), "tokenizer.ggml.add_bos_token": False})
    for output in (*SAID, "a<|end|>b"):
        ids = made.encode(output).ids
        assert read.encode(output).ids == ids
        assert read.decode(ids) == made.decode(ids)


def test_numbers_of_smollm_are_split_into_digits() -> None:
    """Against the splits that its tokenizer.json names, over the same pairs."""
    made = trained(SPLITS["qwen2"])
    read = build_tokenizer(fields_of(made, "smollm"))
    document = json.loads(made.to_str())
    wanted = tokenizers.Tokenizer.from_str(json.dumps(document))
    wanted.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(SPLITS["smollm"])
    assert all(read.encode(output).ids == wanted.encode(output).ids for output in SAID)


def test_a_first_token_is_put_in_front_where_the_file_says_so() -> None:
    fields = fields_of(trained(SPLITS["qwen2"]), "qwen2")
    ids = build_tokenizer(fields).encode("the").ids
    assert build_tokenizer({**fields, "tokenizer.ggml.add_bos_token": True}).encode("the").ids == [0, *ids]


PIECES = [
    ("<unk>", 0.0, 2), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL),
    *((f"<0x{i:02X}>", 0.0, BYTE) for i in range(256)),
    ("▁t", -1.0, 1), ("he", -2.0, 1), ("▁the", -3.0, 1), ("en", -4.0, 1), ("▁ten", -5.0, 1),
    *((c, -100.0 - i, 1) for i, c in enumerate("▁thenso")),
]  # fmt: skip


def pieces() -> dict[str, Any]:
    tokens, scores, kinds = (list(column) for column in zip(*PIECES, strict=True))
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip


def test_pieces_merge_by_their_scores() -> None:
    """By hand: `he` goes before `en`, so that `then` is ▁the n; what no piece holds is bytes."""
    read = build_tokenizer(pieces())
    number = {token: i for i, (token, _, _) in enumerate(PIECES)}
    wanted = ["<s>", "▁the", "n", "▁ten", "s", "▁", "<0xC3>", "<0xA9>"]
    assert read.encode("then tens é").ids == [number[token] for token in wanted]
    assert read.decode(read.encode("then tens é").ids) == "then tens é"
    bare = build_tokenizer({**pieces(), "tokenizer.ggml.add_space_prefix": False})
    assert bare.encode("ten").ids == [number[token] for token in ("<s>", "t", "en")]


ENCODE = """
import json, sys, llama_cpp
model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
said = json.loads(sys.argv[2])
print(json.dumps([model.tokenize(text.encode(), add_bos=True, special=True) for text in said]))
"""


@pytest.mark.parametrize("kind", ["qwen2", "llama-bpe", "smollm", "pieces"])
def test_llama_cpp_finds_the_same_tokens(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    fields = pieces() if kind == "pieces" else fields_of(trained(SPLITS["qwen2"]), kind)
    if kind != "pieces":
        fields["tokenizer.ggml.eos_token_id"] = 0
    spec = tiny.SPECS["qwen2"]
    path = files.write(tmp_path / "a.gguf", spec, files.converted(spec, tiny.weights(spec)), **fields)
    output = [text for text in SAID if text]
    command = [sys.executable, "-c", ENCODE, str(path), json.dumps(output)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    read = build_tokenizer(fields)
    assert [read.encode(text).ids for text in output] == json.loads(result.stdout)


def opened(tmp_path: Path, **fields: Any) -> tuple[Any, str]:
    spec = tiny.SPECS["qwen2"]
    path = files.write(tmp_path / "a.gguf", spec, files.converted(spec, tiny.weights(spec)), **fields)
    return open_text(weight_sources.choose_model(str(path), "auto"))


def test_a_file_with_a_vocabulary_speaks(tmp_path: Path) -> None:
    text, why = opened(tmp_path, **fields_of(trained(SPLITS["qwen2"]), "qwen2"))
    assert why == "" and text.has_meaning
    assert "".join(text.decode_token(i) for i in text.encode("the tensor")) == "the tensor"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "type 'none' is not supported"),
        ({"tokenizer.ggml.model": "gpt2"}, "merges"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "odd"},
            "text split 'odd' is not supported, only gpt-2",
        ),
        ({"tokenizer.ggml.model": "llama"}, "no scores"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": ["x"] * 3}, "not numbers"),
    ],
)
def test_a_vocabulary_that_cannot_be_read_is_told(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    text, why = opened(tmp_path, **{"tokenizer.ggml.tokens": ["a", "b", "c"], **fields})
    assert isinstance(text, IdText) and said in why and why.startswith("the vocabulary cannot be read")
    assert torch.tensor(text.encode("a b")).lt(301).all()
