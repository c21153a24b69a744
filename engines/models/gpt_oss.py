"""gpt-oss: experts stored in MXFP4, attention sinks, windows in every other layer."""

from dataclasses import replace

from engines.models.config_fields import Family, ModelConfig, TensorSlice
from engines.models.decoder_config import find_rope_section, read_decoder, read_layer_types, with_windows
from engines.models.spec import Experts, RopeScaling, Spec

MODEL_TYPE = "gpt_oss"
MXFP4 = "mxfp4"
GROUP = 32  # numbers that share an exponent
UNUSED_KEYS = "initial_context_length", "experts_per_token", "output_router_logits", "router_aux_loss_coef"
ALPHA, LIMIT = 1.702, 7.0
YARN = RopeScaling("yarn", 32.0, 1.0, 32.0, 4096, magnitude=1.3465735902799727)


def read(config: ModelConfig, name: str) -> Spec:
    """Read a config."""
    spec = read_decoder(config, name, find_rope_section(config), theta=150000.0, head_dim=64, eps=1e-5)
    quantisation = config.open_section("quantization_config")
    method = quantisation.read("quant_method")
    quantisation.read("modules_to_not_convert")  # all but the experts: of what is stored, the names tell
    if method not in (None, MXFP4):
        config.refuse(f"quantization_config {method}")
    for key in UNUSED_KEYS:
        config.read(key)
    windowed_layers = read_layer_types(config, spec.layers) or _mark_even(spec.layers)
    bias = config.read_flag("attention_bias", default=True)
    experts = Experts(
        config.read_integer("num_local_experts"),
        config.read_integer("num_experts_per_tok"),
        spec.ffn,
        has_bias=True,
        limit=config.read_number("swiglu_limit", LIMIT),
        alpha=config.read_number("swiglu_alpha", ALPHA),
        is_mxfp4=method == MXFP4,
    )
    spec = replace(spec, qkv_bias=bias, out_bias=bias, has_sinks=True, experts=experts)
    return with_windows(spec, windowed_layers, config.read_integer("sliding_window", 128))


def _mark_even(layers: int) -> tuple[bool, ...]:
    return tuple(layer % 2 == 0 for layer in range(layers))


def find_tensor_slice(spec: Spec, name: str) -> TensorSlice | None:
    """Find where a checkpoint stores tensors of experts: one tensor for all of them."""
    layer, _, part_name = name.partition(".mlp.")
    router, experts = f"{layer}.mlp.router", f"{layer}.mlp.experts"
    mixture = spec.experts
    if part_name.startswith("gate.") and mixture:
        kind = part_name.removeprefix("gate.")
        scores = (mixture.count, spec.hidden) if kind == "weight" else (mixture.count,)
        return TensorSlice(f"{router}.{kind}", scores)
    if not part_name or not mixture:
        return None
    _, number, part, kind = part_name.split(".")
    tensor, wide, narrow = f"{experts}.gate_up_proj", 2 * mixture.ffn, spec.hidden
    rows: slice | None = slice(part == "up_proj", None, 2)  # gate and up by turns
    if part == "down_proj":
        tensor, wide, narrow, rows = f"{experts}.down_proj", spec.hidden, mixture.ffn, None
    if kind == "bias":
        return TensorSlice(f"{tensor}_bias", (mixture.count, wide), rows, int(number))
    if not mixture.is_mxfp4:
        return TensorSlice(tensor, (mixture.count, narrow, wide), rows, int(number), is_transposed=True)
    shape = (mixture.count, wide, narrow // GROUP, GROUP // 2)
    return TensorSlice(f"{tensor}_blocks", shape, rows, int(number), scales=f"{tensor}_scales")


def _make_preset(name: str, layers: int, experts: int) -> Spec:
    mixture = Experts(experts, 4, 2880, has_bias=True, limit=LIMIT, alpha=ALPHA, is_mxfp4=True)
    spec = Spec(
        name, MODEL_TYPE, 201088, 2880, layers, 64, 8, 64, 2880,
        eps=1e-5, theta=150000.0, scaling=YARN, tied=False, max_context=131072,
        qkv_bias=True, out_bias=True, has_sinks=True, experts=mixture,
        eos=(200002, 199999, 200012), hub=(f"openai/{name}",),
    )  # fmt: skip
    return with_windows(spec, _mark_even(layers), 128)


PRESETS = _make_preset("gpt-oss-20b", 24, 32), _make_preset("gpt-oss-120b", 36, 128)
FAMILY = Family(MODEL_TYPE, read, PRESETS, find_tensor_slice=find_tensor_slice)
