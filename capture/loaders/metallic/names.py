"""What metallic's op names say: scopes, kernel, phase, layer, role and stopwatch."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from capture.classify.names import layer_of, role_of
from capture.native.schema import PATH_SEPARATOR

LOOP: Final = "generation_loop"

_PHASE: Final = {"Generation Loop": "decode", "Prompt Processing": "prefill"}
_BLOCK: Final = re.compile(r"_?block_\d+")
_BLOCK_NUMBER: Final = re.compile(r"block_\d+")
_STAGE: Final = re.compile(r"^(?P<stage>\w+?)_block_\d+_op$")
_NESTING: Final = ("_total", "_latency")

# stage → role, and the category of its work where the kernel's own name does not tell
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

# kernels whose names would mislead the general rules: fused ones name their lesser half last
_KERNELS: Final = (
    (re.compile("SwiGlu|swiglu"), "mlp", "matmul"),
    (re.compile("Permute|tensor_staging"), None, "copy"),
)


class Meaning(NamedTuple):
    """What one name says of the rows that carry it."""

    kind: str
    name: str
    path: str
    phase: str | None
    layer: int | None
    op: str | None
    category: str
    lens: str


def collapsed(name: str) -> str:
    """Return a name whose scope prefix stands twice, with it once: a/b/a/b/K → a/b/K."""
    parts = name.split("/")
    for length in range(len(parts) // 2, 0, -1):
        if parts[:length] == parts[length : 2 * length]:
            return "/".join(parts[length:])
    return name


def kernel_type(name: str) -> str:
    """Return the kernel without its place: the last segment, a stage without its block."""
    last = name.rsplit("/", 1)[-1]
    for stage in ("sdpa", "mlp_swiglu"):
        if last.startswith(f"{stage}_block_") and last.endswith("_op"):
            return stage
    return last.rsplit("_", 1)[0] if last.endswith("_op") else last


def lens_of(name: str) -> str:
    """Return the stopwatch behind an op's duration."""
    if "/cb_gpu" in name:
        return "gpu"
    return "wait" if "cb_wait" in name or name.lower().endswith("wait") else "wall"


def op_meanings(names: Iterable[str]) -> dict[str, Meaning]:
    """Return every op name with its meaning.

    Two names never mean the same, so that each can be found again.
    """
    meanings: dict[str, Meaning] = {}
    taken: set[tuple[str, str]] = set()
    for raw in names:
        meaning = op_meaning(collapsed(raw))
        if (meaning.name, meaning.path) in taken:
            meaning = op_meaning(raw)
        taken.add((meaning.name, meaning.path))
        meanings[raw] = meaning
    return meanings


def op_meaning(name: str) -> Meaning:
    scopes = name.split("/")
    lens = lens_of(name)
    op, category = _role(_BLOCK_NUMBER.sub("block_0", name))
    return Meaning(
        kind="kernel",
        name=_shown(name, lens),
        path=PATH_SEPARATOR.join(scopes),
        phase=_PHASE.get(scopes[0]),
        layer=layer_of(name),
        op=op,
        category="wait" if lens == "wait" else category,
        lens=lens,
    )


def internal_meaning(parent: str, name: str) -> Meaning:
    """Return the engine's own stopwatches: totals nest and are never added, the others are work of the
    host.
    """
    nests = name.endswith(_NESTING)
    scopes = (parent, *_enclosing(name), name) if parent == LOOP else (parent, name)
    return Meaning(
        kind="span" if nests else "kernel",
        name=name,
        path=PATH_SEPARATOR.join(scopes),
        phase=None,
        layer=layer_of(name.replace("_block_", " block_")),
        op=None if nests else role_of(name)[0],
        category="host",
        lens="host",
    )


def _enclosing(name: str) -> tuple[str, ...]:
    """Return the totals around one of the generation loop's stopwatches."""
    if name == "iteration_total":
        return ()
    inside = name == "embedding" or "block_" in name
    return ("iteration_total", "forward_step_total") if inside else ("iteration_total",)


def _shown(name: str, lens: str) -> str:
    """Return the kernel; for a wait or a command buffer, the scope that it belongs to as well."""
    if lens == "wall" or "/" not in name:
        return kernel_type(name)
    scope, last = name.rsplit("/", 1)
    return f"{_without_block(scope.rsplit('/', 1)[-1])}/{last}"


def _without_block(segment: str) -> str:
    stage = _STAGE.match(segment)
    return stage["stage"] if stage else _BLOCK.sub("block", segment)


@lru_cache(maxsize=4096)
def _role(name: str) -> tuple[str | None, str]:
    """Return role and category by stage and kernel; the same for every block."""
    *scopes, last = name.split("/")
    own_op, own = next(((op, cat) for pattern, op, cat in _KERNELS if pattern.search(last)), role_of(last))
    if own == "other" and "matmul" in scopes:
        own = "matmul"
    stages = [s["stage"] for part in (*scopes, last) if (s := _STAGE.match(part))]
    if stages and stages[-1] in _STAGES:
        op, category = _STAGES[stages[-1]]
        return op, category if own in ("other", "wait") else own
    if "generation_step_output" in scopes and own == "matmul":
        return "lm_head", own
    return own_op, own
