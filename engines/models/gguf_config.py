"""Read a model from the metadata of a GGUF file, which has its own names for the fields of config.json."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from capture.errors import EngineError
from engines.models.catalogue import FAMILIES_BY_TYPE, build_spec
from engines.models.config_fields import GgufMapping, ModelConfig
from engines.models.spec import RopeScaling, Spec, check_sizes, map_norm_names

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"
ROPE_FACTORS: Final = "rope_freqs.weight"  # what each rotary frequency is divided by

_END_TOKEN_KEYS: Final = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_IGNORED_KEYS: Final = ("vocab_size", "rope.scaling.finetuned", "rope.scaling.original_context_length")
_LAYER_NAMES: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_OUTER_NAMES: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

# how a text is split before pairs of bytes are merged, by the names in GGUF files
# https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
_BPE_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLIT_PATTERNS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpt-2": (_GPT2,),
    "llama-bpe": (_BPE_WORDS % "{1,3}",),
    "qwen2": (_BPE_WORDS % "",),
    "smollm": (r"\p{N}", _GPT2),
}


def read_metadata(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    factors: tuple[float, ...],
    name: str,
    where: str,
) -> tuple[Spec, bool]:
    """Read the model of a file's metadata and tensor shapes; also whether rotary pairs are adjacent.

    `factors` are those of the rotary frequencies, if any. Raise EngineError for an unsupported architecture,
    a missing or invalid field, and for every field of the architecture that is set but not read.
    """
    architecture = str(metadata.get("general.architecture"))
    model_type, mapping = _find_family(architecture, where)
    prefix = f"{architecture}."
    fields_of_architecture = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    config = ModelConfig(fields_of_architecture)
    try:
        fields = _read_common_fields(config, metadata, shapes)
        fields |= {**mapping.read_fields(config), "model_type": model_type}
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise EngineError("missing or invalid field", where=where, why=repr(e)[:200]) from None
    if refusals := config.list_refused():
        raise EngineError("requires unsupported features", where=where, why=", ".join(refusals)[:500])
    spec = mapping.adjust_spec(build_spec(fields, name, where))
    if factors:
        spec = replace(spec, scaling=RopeScaling("stated", 1.0, factors=factors))
        check_sizes(spec, where)
    return spec, mapping.has_adjacent_pairs


def _find_family(architecture: str, where: str) -> tuple[str, GgufMapping]:
    mappings = {f.gguf.architecture: (f.model_type, f.gguf) for f in FAMILIES_BY_TYPE.values() if f.gguf}
    if architecture not in mappings:
        todo = f"supported: {', '.join(mappings)}"
        raise EngineError(f"architecture {architecture[:60]} is not supported", where=where, todo=todo)
    return mappings[architecture]


def _read_common_fields(
    config: ModelConfig, metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    hidden, heads = config.read_integer("embedding_length"), config.read_integer("attention.head_count")
    head_dim = config.read_integer("attention.key_length", hidden // heads)
    if config.read_integer("attention.value_length", head_dim) != head_dim:
        config.refuse("values and keys of different widths")
    if config.read_integer("rope.dimension_count", head_dim) != head_dim:
        config.refuse("partial rotation of heads")
    for key in _IGNORED_KEYS:
        config.read(key)
    return {
        "vocab_size": shapes.get(EMBEDDING, (0,))[0],
        "hidden_size": hidden,
        "num_hidden_layers": config.read_integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": config.read_integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": config.read_integer("feed_forward_length"),
        "rms_norm_eps": config.read_number("attention.layer_norm_rms_epsilon"),
        "rope_theta": config.read_number("rope.freq_base", 1e4),
        "rope_scaling": _read_scaling(config),
        "tie_word_embeddings": HEAD not in shapes,
        "max_position_embeddings": config.read_integer("context_length"),
        "eos_token_id": [metadata[key] for key in _END_TOKEN_KEYS if isinstance(metadata.get(key), int)],
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
    }


def _read_scaling(config: ModelConfig) -> dict[str, Any] | None:
    kind = config.read("rope.scaling.type")
    factor = config.read_number("rope.scaling.factor", config.read_number("rope.scale_linear", 0.0))
    if kind in (None, "linear") and factor not in (0.0, 1.0):
        return {"rope_type": "linear", "factor": factor}
    if kind not in (None, "none", "linear"):
        config.refuse(f"rope scaling {kind}")
    return None


def map_tensor_name(spec: Spec, name: str) -> str:
    """Return the name in GGUF files of a tensor of checkpoints."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{_OUTER_NAMES[stem]}.{kind}"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    if part == "post_attention_layernorm":  # one name means two things in two families
        gguf_name = "ffn_norm" if map_norm_names(spec)["ffn_norm"] == part else "post_attention_norm"
    else:
        gguf_name = _LAYER_NAMES[part]
    return f"blk.{layer}.{gguf_name}.{kind}"
