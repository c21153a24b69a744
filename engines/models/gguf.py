"""Read a model from the metadata of a GGUF file, which names in its own words what a config.json states."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from capture.errors import EngineError
from engines.models.catalogue import FAMILIES_BY_TYPE, from_config
from engines.models.config import Config, InGguf
from engines.models.spec import Scaling, Spec, check_sizes, norm_names

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"
ROPE_FACTORS: Final = "rope_freqs.weight"  # what each rotary frequency is divided by

_IDS: Final = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_HARMLESS: Final = ("vocab_size", "rope.scaling.finetuned", "rope.scaling.original_context_length")
_IN_A_LAYER: Final = {
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
_OUTSIDE: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def of_metadata(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    factors: tuple[float, ...],
    name: str,
    where: str,
) -> tuple[Spec, bool]:
    """Return the model of a file's metadata and of the shapes of its tensors, and whether what rotates
    together lies in pairs; `factors` are those of the rotary frequencies, none where the file has none.

    Raise EngineError for an architecture that is not decoded, a missing or broken field, and for every field
    of the architecture that is set and not read.
    """
    architecture = str(metadata.get("general.architecture"))
    model_type, form = _family(architecture, where)
    prefix = f"{architecture}."
    own = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    read = Config(own)
    try:
        fields = _fields(read, metadata, shapes) | dict(form.fields(read)) | {"model_type": model_type}
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise EngineError("lacks or garbles a field", where=where, why=repr(e)[:200]) from None
    if refused := read.refused():
        raise EngineError("asks for what is not decoded here", where=where, why=", ".join(refused)[:500])
    spec = form.finished(from_config(fields, name, where))
    if factors:
        spec = replace(spec, scaling=Scaling("stated", 1.0, factors=factors))
        check_sizes(spec, where)
    return spec, form.pairs


def _family(architecture: str, where: str) -> tuple[str, InGguf]:
    known = {f.gguf.architecture: (f.model_type, f.gguf) for f in FAMILIES_BY_TYPE.values() if f.gguf}
    if architecture not in known:
        todo = f"decoded are {', '.join(known)}"
        raise EngineError(f"holds a model of the architecture {architecture[:60]}", where=where, todo=todo)
    return known[architecture]


def _fields(
    read: Config, metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Return what all architectures have in common, in the words of a config.json."""
    hidden, heads = read.integer("embedding_length"), read.integer("attention.head_count")
    head_dim = read.integer("attention.key_length", hidden // heads)
    if read.integer("attention.value_length", head_dim) != head_dim:
        read.refuse("values of another width than keys")
    if read.integer("rope.dimension_count", head_dim) != head_dim:
        read.refuse("rotation of a part of each head")
    for harmless in _HARMLESS:
        read.get(harmless)
    return {
        "vocab_size": shapes.get(EMBEDDING, (0,))[0],
        "hidden_size": hidden,
        "num_hidden_layers": read.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": read.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": read.integer("feed_forward_length"),
        "rms_norm_eps": read.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": read.number("rope.freq_base", 1e4),
        "rope_scaling": _scaling(read),
        "tie_word_embeddings": HEAD not in shapes,
        "max_position_embeddings": read.integer("context_length"),
        "eos_token_id": [metadata[key] for key in _IDS if isinstance(metadata.get(key), int)],
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
    }


def _scaling(read: Config) -> dict[str, Any] | None:
    kind = read.get("rope.scaling.type")
    factor = read.number("rope.scaling.factor", read.number("rope.scale_linear", 0.0))
    if kind in (None, "linear") and factor not in (0.0, 1.0):
        return {"rope_type": "linear", "factor": factor}
    if kind not in (None, "none", "linear"):
        read.refuse(f"rope scaling {kind}")
    return None


def tensor_name(spec: Spec, name: str) -> str:
    """Return what a GGUF calls a tensor that checkpoints know by `name`."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{_OUTSIDE[stem]}.{kind}"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    if part == "post_attention_layernorm":  # one name means two things in two families
        ours = "ffn_norm" if norm_names(spec)["ffn_norm"] == part else "post_attention_norm"
    else:
        ours = _IN_A_LAYER[part]
    return f"blk.{layer}.{ours}.{kind}"
