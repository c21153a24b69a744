"""Find and read the config.json of a model: its sizes, its windows, and how its weights are stored."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from capture.clean_text import clean
from capture.device_roofs import shorten_format
from capture.errors import UnreadableError

CONFIG_NAME: Final = "config.json"
NO_CONFIG: Final = "none"  # instead of a path: use no config
CONFIG_KEY: Final = "config"  # of a run's meta: what its recorder wrote of the model's config
NOTES_KEY: Final = "model_config"  # of a run's meta: sentences on what its config was used for
OPS_KEY: Final = "model_config_ops"  # the ops whose work is from it
_SLIDING: Final = "sliding_attention"  # in `layer_types`
_LINEAR: Final = "linear_attention"
_MAX_FILE_BYTES: Final = 1 << 22
_MAX_SIZE: Final = 1 << 32
_MAX_LAYERS: Final = 10_000
_FORMAT_BYTES: Final = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
# Families whose feed-forward network has no gate. All others have one.
_WITHOUT_GATE: Final = frozenset(
    {"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "mpt", "phi", "bert", "starcoder2",
     "nemotron", "nemotron_h", "persimmon", "xglm", "codegen"}
)  # fmt: skip
_GATED_QUERIES: Final = frozenset(
    {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}
)
# Families with windows but without `layer_types`: every k-th layer looks at all (0: none does).
_FULL_EVERY: Final = {"mistral": 0, "mixtral": 0, "phi3": 0, "gemma2": 2, "cohere2": 4}


_SHARED_SIZES: Final = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"
)  # fmt: skip
_EXPERT_STEPS: Final = (
    "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period",
    "moe_layer_interval",
)  # fmt: skip
_SHARED_COUNTS: Final = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")


class ConfigChoice(Struct, frozen=True):
    """What the user said about the model: its config.json (`none`: use none) and how it is distributed."""

    path: str | None = None  # None: search it
    tp: int | None = None
    ep: int | None = None


SEARCHED_CONFIG: Final = ConfigChoice()


class WeightFormat(Struct, frozen=True):
    """How the weights of a product are stored, and in what it multiplies."""

    dtype: str  # number format of the product
    weight_bytes: float  # per weight, with its share of scales and zero points
    activation_bytes: float


_FP8: Final = WeightFormat("fp8", 1.0, 1.0)
_NVFP4: Final = WeightFormat("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16)
_FORMATS_BY_WORD: Final = {  # of modelopt, and of compressed-tensors
    "FP8": _FP8, "float8": _FP8, "int8": WeightFormat("int8", 1.0, 1.0), "NVFP4": _NVFP4, "float4": _NVFP4,
}  # fmt: skip


class ExpertSizes(Struct, frozen=True):
    """The experts of a decoder."""

    experts: int
    chosen: int  # per token
    inner: int
    shared_inner: int  # of the shared expert; 0 without one
    dense_layers: frozenset[int]  # without experts


class LatentSizes(Struct, frozen=True):
    """Sizes of latent attention (MLA): one vector per token is cached for all heads."""

    rank: int  # of what is cached for keys and values
    rope: int  # of the part with positions, cached beside it
    nope: int  # of a key without positions, once expanded
    value: int


class LinearSizes(Struct, frozen=True):
    """Sizes of linear attention by the gated delta rule, which has a state in place of a cache."""

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int


class DecoderConfig(Struct, frozen=True):
    """Sizes of a decoder, of all ranks together. None and 0 mean that the model has no such part."""

    label: str  # of the file
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int  # of a dense feed-forward network
    vocabulary: int
    has_gate: bool
    is_plain_attention: bool  # not latent (MLA)
    has_gated_queries: bool  # the projection to the queries also yields a gate of their size
    latent: LatentSizes | None
    linear: LinearSizes | None  # by the gated delta rule; other kinds have no sizes here
    linear_layers: frozenset[int]  # with linear attention of any kind
    windows: tuple[int | None, ...] | None  # of each layer, in tokens; None if it is not known
    mixture: ExpertSizes | None
    cache_bytes: float  # per number of the KV cache
    base: WeightFormat  # of router and head
    attention: WeightFormat | None  # None: stored in a way that is not known, here and below
    network: WeightFormat | None
    routed: WeightFormat | None

    def has_experts(self, layer: int) -> bool:
        """Whether a layer is a mixture of experts."""
        return self.mixture is not None and layer not in self.mixture.dense_layers


def read_config(path: Path) -> DecoderConfig:
    """Read a config.json; raise UnreadableError unless it is of a decoder with the usual sizes."""
    try:
        with path.open("rb") as file:
            fields = msgspec.json.decode(file.read(_MAX_FILE_BYTES))
    except OSError as e:
        raise UnreadableError("cannot be read", where=clean(str(path), 4096), why=e.strerror or "") from None
    except (msgspec.DecodeError, RecursionError):
        fields = None
    config = parse_config(fields, clean(path.name, 200))
    if config is None:
        why = "no sizes of a transformer in it (num_hidden_layers, hidden_size, num_attention_heads …)"
        raise UnreadableError("is no config.json of a model", where=clean(str(path), 4096), why=why)
    return config


def has_config(choice: ConfigChoice, trace: Path | None, metas: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user named a config, runs carry one in their meta, or one is found for their trace."""
    if choice.path or any(meta.get(CONFIG_KEY) for meta in metas):
        return choice.path != NO_CONFIG
    return trace is not None and any(find_config(trace, meta.get("model")) for meta in metas)


def find_config(trace: Path, model: Any) -> Path | None:
    """Find the config.json beside a trace, else that of its model in the cache of Hugging Face."""
    adjacent = trace.parent / CONFIG_NAME
    if adjacent.is_file():
        return adjacent
    return _find_in_hub_cache(model) if isinstance(model, str) else None


def find_config_state(trace: Path) -> tuple[int, ...]:
    """Find numbers that change when another config would be found: of the adjacent one, and of the cache."""
    state = []
    for path in (trace.parent / CONFIG_NAME, _find_hub_folder()):
        with suppress(OSError):
            status = path.stat()
            state += [status.st_ino, status.st_mtime_ns]
    return tuple(state)


def _find_hub_folder() -> Path:
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def _find_in_hub_cache(model: str) -> Path | None:
    """Find the newest config.json of a model named `organisation/name`."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        return None
    folder = _find_hub_folder() / f"models--{model.replace('/', '--')}" / "snapshots"
    files = [path for path in folder.glob(f"*/{CONFIG_NAME}") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime, default=None)


def parse_config(document: Any, label: str) -> DecoderConfig | None:
    """Parse a config; None if it lacks a size that every decoder has."""
    if not isinstance(document, Mapping):
        return None
    fields = _flatten(document)
    layers = _find_size(fields, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    hidden = _find_size(fields, "hidden_size", "n_embd", "d_model")
    heads = _find_size(fields, "num_attention_heads", "n_head", "n_heads")
    if not (layers and hidden and heads) or layers > _MAX_LAYERS:
        return None
    family = str(fields.get("model_type") or "")
    base = _parse_base_format(fields)
    attention, network, routed = _parse_formats(fields, base)
    return DecoderConfig(
        label=label,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_find_kv_heads(fields) or heads,
        head_size=_find_size(fields, "head_dim", "attention_head_dim") or hidden // heads,
        inner=_find_inner_size(fields, hidden),
        vocabulary=_find_size(fields, "vocab_size"),
        has_gate=family not in _WITHOUT_GATE,
        is_plain_attention=_is_plain_attention(fields, hidden),
        has_gated_queries=family in _GATED_QUERIES or bool(fields.get("attn_output_gate")),
        latent=_parse_latent(fields),
        linear=_parse_linear(fields),
        linear_layers=_find_linear_layers(fields, layers),
        windows=_parse_windows(fields, family, layers),
        mixture=_parse_mixture(fields, layers),
        cache_bytes=base.activation_bytes,
        base=base,
        attention=attention,
        network=network,
        routed=routed,
    )


def _flatten(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a config with those of its parts; those of a text model go before others."""
    nested = [document.get(key) for key in ("text_config", "attn_config", "ffn_config")]
    text, attention, network = [part if isinstance(part, Mapping) else {} for part in nested]
    return {**attention, **network, **document, **text}


def _is_plain_attention(fields: Mapping[str, Any], hidden: int) -> bool:
    """Return whether attention is neither latent nor of another size than the hidden one."""
    return not fields.get("kv_lora_rank") and fields.get("attention_hidden_size") in (None, hidden)


def _find_kv_heads(fields: Mapping[str, Any]) -> int:
    """Find the number of key heads; 0 if there are as many as query heads."""
    if fields.get("multi_query") is True and not fields.get("new_decoder_architecture"):
        return 1
    return _find_size(fields, "num_key_value_heads", "num_kv_heads", "kv_n_heads")


def _find_inner_size(fields: Mapping[str, Any], hidden: int) -> int:
    """Find the inner size of a dense feed-forward network, four times the hidden one if no key has it.

    0 if layers differ in it.
    """
    keys = ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    values = [fields[key] for key in keys if fields.get(key)]
    value = values[0] if values else 4 * hidden
    sizes = set(value) if isinstance(value, list) else {value}
    return _find_size({"size": sizes.pop()}, "size") if len(sizes) == 1 else 0


def _parse_latent(fields: Mapping[str, Any]) -> LatentSizes | None:
    """Parse the sizes of latent attention; None of a model without it."""
    keys = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    sizes = [_find_size(fields, key) for key in keys]
    return LatentSizes(*sizes) if all(sizes) else None


def _parse_linear(fields: Mapping[str, Any]) -> LinearSizes | None:
    """Parse the sizes of linear attention; None without it, or if one is not told."""
    keys = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    sizes = [_find_size(fields, key) for key in keys]
    return LinearSizes(*sizes) if all(sizes) else None


def _find_linear_layers(fields: Mapping[str, Any], layers: int) -> frozenset[int]:
    """Find the layers with linear attention: listed ones, or all but every k-th."""
    kinds, every = fields.get("layer_types"), _find_size(fields, "full_attention_interval")
    if isinstance(kinds, Sequence) and len(kinds) == layers:
        return frozenset(n for n, kind in enumerate(kinds) if kind == _LINEAR)
    return frozenset(n for n in range(layers) if every and (n + 1) % every)


def _parse_mixture(fields: Mapping[str, Any], layers: int) -> ExpertSizes | None:
    """Parse the sizes of the experts; None of a model without them."""
    experts = _find_size(fields, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    chosen = _find_size(fields, "num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k", "moe_top_k")
    inner = _find_size(
        fields, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size"
    )
    if not (inner and 0 < chosen <= experts):
        return None
    shared = _find_size(fields, *_SHARED_SIZES)
    count = 1 if _find_size(fields, "intermediate_size_mlp") else _find_size(fields, *_SHARED_COUNTS)
    shared = shared or count * inner
    return ExpertSizes(experts, chosen, inner, shared, _find_dense_layers(fields, layers))


def _find_size(fields: Mapping[str, Any], *keys: str) -> int:
    """Find the first of several keys that holds a size; 0 without one."""
    values = (fields.get(key) for key in keys)
    return next((v for v in values if type(v) is int and 0 < v < _MAX_SIZE), 0)


def _parse_windows(fields: Mapping[str, Any], family: str, layers: int) -> tuple[int | None, ...] | None:
    """Parse how many tokens each layer looks back; None if the config does not tell which layers do."""
    window = _find_size(fields, "sliding_window") or None
    if window is None or fields.get("use_sliding_window") is False:
        return (None,) * layers
    kinds = _list_kinds(fields, family, layers)
    return None if kinds is None else tuple(window if kind == _SLIDING else None for kind in kinds)


def _list_kinds(fields: Mapping[str, Any], family: str, layers: int) -> Sequence[Any] | None:
    """List the kind of attention of each layer; None if the config does not tell it."""
    kinds = fields.get("layer_types")
    if isinstance(kinds, Sequence) and len(kinds) == layers:
        return kinds
    every = _find_size(fields, "sliding_window_pattern") or _FULL_EVERY.get(family)
    if every is None:
        return None
    full = range(every - 1, layers, every) if every else ()
    return ["full_attention" if layer in full else _SLIDING for layer in range(layers)]


def _find_dense_layers(fields: Mapping[str, Any], layers: int) -> frozenset[int]:
    """Find the layers without experts: the first ones, listed ones, or all but every k-th."""
    mixed = fields.get("moe_layers")
    if isinstance(mixed, list) and mixed:
        return frozenset(range(layers)) - frozenset(n for n in mixed if type(n) is int)
    first = range(min(layers, _find_size(fields, "first_k_dense_replace", "moe_layer_start_index")))
    listed = fields.get("mlp_only_layers")
    listed = [n for n in listed if type(n) is int] if isinstance(listed, list) else []
    step = _find_size(fields, *_EXPERT_STEPS) or 1
    offset = _find_size(fields, "expert_layer_offset") if "expert_layer_period" in fields else step - 1
    return frozenset([*first, *listed, *(n for n in range(layers) if (n - offset) % step)])


def _parse_base_format(fields: Mapping[str, Any]) -> WeightFormat:
    """Parse the number format of what is not quantised; bf16 if none is stated."""
    dtype = shorten_format(str(fields.get("dtype") or fields.get("torch_dtype") or "bfloat16"))
    width = _FORMAT_BYTES.get(dtype)
    return WeightFormat(dtype, width, width) if width else WeightFormat("bf16", 2.0, 2.0)


def _parse_formats(
    fields: Mapping[str, Any], base: WeightFormat
) -> tuple[WeightFormat | None, WeightFormat | None, WeightFormat | None]:
    """Parse how the weights of attention, feed-forward network and experts are stored."""
    quantisation = fields.get("quantization_config")
    if not isinstance(quantisation, Mapping):
        return base, base, base
    method = str(quantisation.get("quant_method") or quantisation.get("quant_algo") or "").lower()
    if method == "mxfp4":
        return base, base, WeightFormat(base.dtype, 0.5 + 1 / 32, base.activation_bytes)
    small = _parse_quantisation(method, quantisation, base)
    skipped = quantisation.get("modules_to_not_convert") or quantisation.get("ignore") or ()
    text = " ".join(str(name) for name in skipped) if isinstance(skipped, list) else ""
    network = base if re.search(r"\bmlp\b(?!\S*gate\b)", text) else small
    return (base if "attn" in text else small), network, small


def _parse_quantisation(
    method: str, quantisation: Mapping[str, Any], base: WeightFormat
) -> WeightFormat | None:
    """Parse the format of quantised weights; None for a method that is not known."""
    if method == "fp8":
        return _FP8
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin"):
        return _build_grouped(
            quantisation.get("bits"), quantisation.get("group_size"), base, zero_points=True
        )
    if method == "modelopt":
        return _FORMATS_BY_WORD.get(str(quantisation.get("quant_algo") or "").upper())
    return _parse_compressed(quantisation, base) if method == "compressed-tensors" else None


def _parse_compressed(quantisation: Mapping[str, Any], base: WeightFormat) -> WeightFormat | None:
    """Parse the first group of compressed-tensors."""
    groups = quantisation.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        return None
    if not group.get("input_activations"):
        return _build_grouped(weights.get("num_bits"), weights.get("group_size"), base, zero_points=False)
    return _FORMATS_BY_WORD.get(f"{weights.get('type')}{weights.get('num_bits')}")


def _build_grouped(bits: Any, group: Any, base: WeightFormat, *, zero_points: bool) -> WeightFormat | None:
    """Build the format of weights of few bits, whose groups have a 16-bit scale; products stay in 16 bits."""
    if type(bits) is not int or not 0 < bits <= 8:
        return None
    scales = 2 + (bits / 8 if zero_points else 0)
    shared = scales / group if type(group) is int and group > 0 else 0.0
    return WeightFormat(base.dtype, bits / 8 + shared, base.activation_bytes)
