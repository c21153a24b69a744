"""gpt-oss: experts stored in MXFP4, heads that may look at nothing, windows in every other layer."""

from dataclasses import replace

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family, Piece
from engines.models.spec import Experts, Scaling, Spec
from engines.models.windows import stated_windows, with_windows

MODEL_TYPE = "gpt_oss"
MXFP4 = "mxfp4"
GROUP = 32  # numbers that share an exponent
ALPHA, LIMIT = 1.702, 7.0
YARN = Scaling("yarn", 32.0, 1.0, 32.0, 4096, magnitude=1.3465735902799727)


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, rope_section(config), theta=150000.0, head_dim=64, eps=1e-5)
    stored = config.section("quantization_config")
    kind = stored.get("quant_method")
    stored.get("modules_to_not_convert")  # all but the experts: of what is stored, the names tell
    if kind not in (None, MXFP4):
        config.refuse(f"quantization_config {kind}")
    for repeated in ("initial_context_length", "experts_per_token", "output_router_logits"):
        config.get(repeated)
    config.get("router_aux_loss_coef")
    local = stated_windows(config, spec.layers) or tuple(layer % 2 == 0 for layer in range(spec.layers))
    bias = config.flag("attention_bias", default=True)
    experts = Experts(
        config.integer("num_local_experts"),
        config.integer("num_experts_per_tok"),
        spec.ffn,
        bias=True,
        limit=config.number("swiglu_limit", LIMIT),
        alpha=config.number("swiglu_alpha", ALPHA),
        packed=kind == MXFP4,
    )
    spec = replace(spec, qkv_bias=bias, out_bias=bias, sinks=True, experts=experts)
    return with_windows(spec, local, config.integer("sliding_window", 128))


def find_piece(spec: Spec, name: str) -> Piece | None:
    """Return where a checkpoint keeps what belongs to an expert: all experts' in one tensor."""
    before, _, own = name.partition(".mlp.")
    router, experts = f"{before}.mlp.router", f"{before}.mlp.experts"
    mixture = spec.experts
    if own.startswith("gate.") and mixture:
        kind = own.removeprefix("gate.")
        scores = (mixture.count, spec.hidden) if kind == "weight" else (mixture.count,)
        return Piece(f"{router}.{kind}", scores)
    if not own or not mixture:
        return None
    _, number, part, kind = own.split(".")
    whole, wide, narrow = f"{experts}.gate_up_proj", 2 * mixture.ffn, spec.hidden
    rows: slice | None = slice(part == "up_proj", None, 2)  # gate and up by turns
    if part == "down_proj":
        whole, wide, narrow, rows = f"{experts}.down_proj", spec.hidden, mixture.ffn, None
    if kind == "bias":
        return Piece(f"{whole}_bias", (mixture.count, wide), rows, int(number))
    if not mixture.packed:
        return Piece(whole, (mixture.count, narrow, wide), rows, int(number), turned=True)
    shape = (mixture.count, wide, narrow // GROUP, GROUP // 2)
    return Piece(f"{whole}_blocks", shape, rows, int(number), scales=f"{whole}_scales")


def _preset(name: str, layers: int, experts: int) -> Spec:
    mixture = Experts(experts, 4, 2880, bias=True, limit=LIMIT, alpha=ALPHA, packed=True)
    spec = Spec(
        name, MODEL_TYPE, 201088, 2880, layers, 64, 8, 64, 2880,
        eps=1e-5, theta=150000.0, scaling=YARN, tied=False, max_context=131072,
        qkv_bias=True, out_bias=True, sinks=True, experts=mixture,
        eos=(200002, 199999, 200012), hub=(f"openai/{name}",),
    )  # fmt: skip
    return with_windows(spec, tuple(layer % 2 == 0 for layer in range(layers)), 128)


FAMILY = Family(
    MODEL_TYPE,
    read,
    (_preset("gpt-oss-20b", 24, 32), _preset("gpt-oss-120b", 36, 128)),
    find_piece=find_piece,
)
