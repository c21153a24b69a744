"""The vocabulary in a GGUF as a tokenizer: byte-level pairs as GPT-2 has them, or pieces with scores."""

from collections.abc import Mapping
from typing import Any, Final

from engines.models.splits import SPLITS

_CONTROL, _STATED, _BYTE = 3, 4, 6  # kinds of a token
_SPACE: Final = "\u2581"


def tokenizer_of(fields: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a GGUF's metadata, of the package tokenizers.

    Raise ImportError without that package, and ValueError for a vocabulary that is broken or of another kind.
    """
    import tokenizers

    kind, tokens = fields.get("tokenizer.ggml.model"), _strings(fields, "tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if kind == "gpt2":
        made = _of_bytes(fields, vocabulary)
    elif kind == "llama":
        made = _of_pieces(fields, vocabulary)
    else:
        raise ValueError(f"its vocabulary is of the kind {kind!r:.40}")
    made.add_special_tokens(_special(fields, tokens))
    bos = fields.get("tokenizer.ggml.bos_token_id")
    in_front = fields.get("tokenizer.ggml.add_bos_token", _begins(fields))
    if in_front and type(bos) is int and 0 <= bos < len(tokens):
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return made


def _begins(fields: Mapping[str, Any]) -> bool:
    """Return whether a text begins with a token of its own where the file does not say."""
    pieces = fields.get("tokenizer.ggml.model") == "llama"
    return pieces or fields.get("tokenizer.ggml.pre") == "llama-bpe"


def _strings(fields: Mapping[str, Any], name: str) -> list[str]:
    found = fields.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"it holds no {name}")
    return found


def _special(fields: Mapping[str, Any], tokens: list[str]) -> list[Any]:
    """Return the tokens that stand for themselves in a text: those that steer are never shown."""
    from tokenizers import AddedToken

    kinds = fields.get("tokenizer.ggml.token_type") or ()
    return [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _STATED) and token
    ]


def _of_bytes(fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    named = fields.get("tokenizer.ggml.pre", "gpt-2")
    if named not in SPLITS:
        raise ValueError(f"its text is split as {named!r:.40}, known are {', '.join(SPLITS)}")
    pairs = [(left, right) for left, _, right in (m.partition(" ") for m in _strings(fields, "merges"))]
    made = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=named == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in SPLITS[named]]
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, whole])
    made.decoder = decoders.ByteLevel()
    return made


def _of_pieces(fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    bytes_too = _BYTE in (fields.get("tokenizer.ggml.token_type") or ())
    unknown = next((token for token in ("<unk>",) if token in vocabulary), None)
    pairs = _pairs(fields.get("tokenizer.ggml.scores"), vocabulary)
    model = models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=bytes_too)
    made = Tokenizer(model)
    in_front = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    first = [normalizers.Prepend(_SPACE)] if in_front else []
    made.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", _SPACE)])
    last = [decoders.Strip(" ", 1, 0)] if in_front else []
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    made.decoder = decoders.Sequence(parts)
    return made


def _pairs(scores: object, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of pieces that make a third one, in the order in which its scores let them merge."""
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise ValueError("its pieces have no scores")
    if not all(isinstance(score, float) for score in scores):
        raise ValueError("its scores are no numbers")
    found = [
        (-scores[number], vocabulary[piece[:cut]], piece[:cut], piece[cut:])
        for piece, number in vocabulary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return [(left, right) for _, _, left, right in sorted(found)]
