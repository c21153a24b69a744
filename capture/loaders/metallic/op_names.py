"""Parse metallic op names: scopes, kernel, phase, layer, role and lens."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from capture.classify.name_rules import find_layer, infer_op_and_category
from capture.native.schema import PATH_SEPARATOR

LOOP: Final = "generation_loop"

_PHASE: Final = {"Generation Loop": "decode", "Prompt Processing": "prefill"}
_BLOCK: Final = re.compile(r"_?block_\d+")
_BLOCK_NUMBER: Final = re.compile(r"block_\d+")
_STAGE: Final = re.compile(r"^(?P<stage>\w+?)_block_\d+_op$")
_NESTING: Final = ("_total", "_latency")

# stage → role, and the category if the kernel's name does not show it
_STAGES: Final = {
    "attn_norm": ("norm", "norm"),
    "qkv_proj": ("attn.qkv", "matmul"),
    "attn_qkv_proj": ("attn.qkv", "matmul"),
    "attn_rearrange": ("attn.kv", "copy"),
    "rope": ("attn.rope", "elementwise"),
    "kv_cache": ("attn.kv", "copy"),
    "kv_repeat": ("attn.kv", "copy"),
    "sdpa": ("attn.core", "attention"),
    "attn_output": ("attn.out", "matmul"),
    "attn_residual": ("residual", "elementwise"),
    "mlp_norm": ("norm", "norm"),
    "mlp_swiglu": ("mlp", "matmul"),
    "mlp_output": ("mlp.down", "matmul"),
}

# kernels that the general rules would misjudge: fused ones end in the name of their smaller half
_KERNELS: Final = (
    (re.compile("SwiGlu|swiglu"), "mlp", "matmul"),
    (re.compile("Permute|tensor_staging"), None, "copy"),
)


class OpMeaning(NamedTuple):
    """Columns that an op name gives to its events."""

    kind: str
    name: str
    path: str
    phase: str | None
    layer: int | None
    op: str | None
    category: str
    lens: str


def collapse_repeated_scopes(name: str) -> str:
    """Remove a scope prefix that is repeated: a/b/a/b/K → a/b/K."""
    parts = name.split("/")
    for length in range(len(parts) // 2, 0, -1):
        if parts[:length] == parts[length : 2 * length]:
            return "/".join(parts[length:])
    return name


def parse_kernel_type(name: str) -> str:
    """Return the kernel without its location: the last segment, a stage without its block."""
    last = name.rsplit("/", 1)[-1]
    for stage in ("sdpa", "mlp_swiglu"):
        if last.startswith(f"{stage}_block_") and last.endswith("_op"):
            return stage
    return last.rsplit("_", 1)[0] if last.endswith("_op") else last


def infer_lens(name: str) -> str:
    """Infer the lens of an op's duration from its name."""
    if "/cb_gpu" in name:
        return "gpu"
    return "wait" if "cb_wait" in name or name.lower().endswith("wait") else "wall"


def parse_op_names(names: Iterable[str]) -> dict[str, OpMeaning]:
    """Parse every op name; two names never share a name and path, so each can be found again."""
    meanings: dict[str, OpMeaning] = {}
    used_paths: set[tuple[str, str]] = set()
    for raw in names:
        meaning = parse_op_name(collapse_repeated_scopes(raw))
        if (meaning.name, meaning.path) in used_paths:
            meaning = parse_op_name(raw)
        used_paths.add((meaning.name, meaning.path))
        meanings[raw] = meaning
    return meanings


def parse_op_name(name: str) -> OpMeaning:
    """Parse the name of one op."""
    scopes = name.split("/")
    lens = infer_lens(name)
    op, category = _infer_role(_BLOCK_NUMBER.sub("block_0", name))
    return OpMeaning(
        kind="kernel",
        name=_shorten_name(name, lens),
        path=PATH_SEPARATOR.join(scopes),
        phase=_PHASE.get(scopes[0]),
        layer=find_layer(name),
        op=op,
        category="wait" if lens == "wait" else category,
        lens=lens,
    )


def describe_internal_kernel(parent: str, name: str) -> OpMeaning:
    """Describe one of the engine's own timers: totals nest and are never added, others are host work."""
    is_total = name.endswith(_NESTING)
    scopes = (parent, *_list_enclosing_totals(name), name) if parent == LOOP else (parent, name)
    return OpMeaning(
        kind="span" if is_total else "kernel",
        name=name,
        path=PATH_SEPARATOR.join(scopes),
        phase=None,
        layer=find_layer(name.replace("_block_", " block_")),
        op=None if is_total else infer_op_and_category(name)[0],
        category="host",
        lens="host",
    )


def _list_enclosing_totals(name: str) -> tuple[str, ...]:
    """List the totals that enclose a timer of the generation loop."""
    if name == "iteration_total":
        return ()
    is_in_forward = name == "embedding" or "block_" in name
    return ("iteration_total", "forward_step_total") if is_in_forward else ("iteration_total",)


def _shorten_name(name: str, lens: str) -> str:
    """Return the kernel; for a wait or command buffer, also the scope it belongs to."""
    if lens == "wall" or "/" not in name:
        return parse_kernel_type(name)
    *_, scope, last = name.split("/")
    stage = _STAGE.match(scope)
    return f"{stage['stage'] if stage else _BLOCK.sub('block', scope)}/{last}"


@lru_cache(maxsize=4096)
def _infer_role(name: str) -> tuple[str | None, str]:
    """Infer role and category from stage and kernel; the same for every block."""
    *scopes, last = name.split("/")
    kernel_op, kernel_category = next(
        ((op, cat) for pattern, op, cat in _KERNELS if pattern.search(last)), infer_op_and_category(last)
    )
    if kernel_category == "other" and "matmul" in scopes:
        kernel_category = "matmul"
    stages = [s["stage"] for part in (*scopes, last) if (s := _STAGE.match(part))]
    if stages and stages[-1] in _STAGES:
        op, category = _STAGES[stages[-1]]
        return op, category if kernel_category in ("other", "wait") else kernel_category
    if "generation_step_output" in scopes and kernel_category == "matmul":
        return "lm_head", kernel_category
    return kernel_op, kernel_category
