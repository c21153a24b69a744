"""Nodes of llama.cpp's graphs: layer, role and category by name and operator."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import ctypes
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .op_ids import OpIds

# `Qcur-3 (view)`, `cache_k_l3 (view)`, `result_output`
_NAME: Final = re.compile(r"^(?P<base>.*?)(?:-(?P<layer>\d+)|_l(?P<cache>\d+))?(?: \(.*)?$")
_UNNAMED_PREFIX: Final = b"node_"  # prefix that ggml gives to nodes without a name
_ATTENTION_OUTPUTS: Final = ("kqv_out", "kqv", "__fattn__")  # followed by the output projection
_NO_WORK: Final = frozenset(("NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"))  # compute nothing

_ROLES: Final = {
    "Qcur": "attn.q", "Kcur": "attn.k", "Vcur": "attn.v", "Qcur_normed": "norm", "Kcur_normed": "norm",
    "kq": "attn.core", "kq_soft_max": "attn.core", "kqv": "attn.core", "fattn": "attn.core",
    "__fattn__": "attn.core", "kqv_out": "attn.out", "attn_out": "attn.out", "kqv_wo": "attn.out",
    "cache_k": "attn.kv", "cache_v": "attn.kv", "ffn_gate": "mlp.gate", "ffn_up": "mlp.up",
    "ffn_out": "mlp.down", "ffn_down": "mlp.down", "ffn_inp": "residual", "sa_out": "residual",
    "l_out": "residual", "inp_embd": "embed", "inp_scaled": "embed", "embd": "embed",
    "result_output": "lm_head",
}  # fmt: skip
_CATEGORIES: Final = {
    "MUL_MAT": "matmul", "MUL_MAT_ID": "matmul", "OUT_PROD": "matmul", "FLASH_ATTN_EXT": "attention",
    "SOFT_MAX": "attention", "RMS_NORM": "norm", "NORM": "norm", "L2_NORM": "norm", "GET_ROWS": "copy",
    "SET_ROWS": "copy", "CPY": "copy", "CONT": "copy", "DUP": "copy", "CONCAT": "copy",
}  # fmt: skip


class NodeOps:
    """Finds the op id of a graph node."""

    def __init__(self, module: Any, numbers: OpIds) -> None:
        self._op_ids = numbers
        function = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)  # node → text; not the program's own
        self._name = function(("ggml_get_name", module._lib))
        self._operator = function(("ggml_op_desc", module._lib))
        self._ids_by_node: dict[tuple[bytes, bytes, str | None, int | None, str], int | None] = {}
        self._names: dict[bytes, tuple[int | None, str]] = {}

    def find_op_id(self, node: int, previous: tuple[int | None, str], track: str | None) -> int | None:
        """Return the op id of a node, or None if it computes nothing; `previous` is from `find_name`."""
        name, operator = self._name(node), self._operator(node)
        layer, base = previous if name.startswith(_UNNAMED_PREFIX) else (None, "")
        key = name, operator, track, layer, base
        if key not in self._ids_by_node:
            does = operator.decode("utf-8", "replace")
            op = build_op(name.decode("utf-8", "replace"), does, (layer, base))
            self._ids_by_node[key] = None if does in _NO_WORK else self._op_ids.assign({**op, "track": track})
        return self._ids_by_node[key]

    def find_name(self, node: int, previous: tuple[int | None, str]) -> tuple[int | None, str]:
        """Return layer and name of a node, or those of the previous node if it has no name."""
        name = self._name(node)
        if name.startswith(_UNNAMED_PREFIX):
            return previous
        if name not in self._names:
            base, layer = parse_node_name(name.decode("utf-8", "replace"))
            self._names[name] = layer, base
        return self._names[name]


def parse_node_name(name: str) -> tuple[str, int | None]:
    """Return the name of a node within its layer, and the layer (None outside all layers)."""
    match = _NAME.match(name)
    assert match is not None  # noqa: S101
    layer = match["layer"] or match["cache"]
    return match["base"] or "node", int(layer) if layer is not None and len(layer) < 6 else None


def build_op(name: str, operator: str, previous: tuple[int | None, str] = (None, "")) -> dict[str, Any]:
    """Return the op of a node by its name and operator; an unnamed node is placed by the previous one."""
    base, layer = parse_node_name(name)
    if name.startswith(_UNNAMED_PREFIX.decode()):
        layer, is_projection = previous[0], previous[1] in _ATTENTION_OUTPUTS and operator == "MUL_MAT"
        base = "kqv_wo" if is_projection else "node"
    return {
        "name": f"{base} {operator.lower()}",
        "layer": layer,
        "op": _infer_role(base, operator),
        "category": _infer_category(base, operator),
        "lens": "wall",
        "path": " / ".join(filter(None, ("" if layer is None else f"blk.{layer}", base, operator.lower()))),
    }


def _infer_role(base: str, operator: str) -> str | None:
    if operator == "ROPE":
        return "attn.rope"
    if operator == "FLASH_ATTN_EXT":
        return "attn.core"
    if "norm" in base:
        return "norm"
    if base in ("ffn_silu", "ffn_gelu", "ffn_swiglu", "ffn_geglu", "ffn_act", "ffn_gate_par"):
        return "mlp.act"
    return _ROLES.get(base)


def _infer_category(base: str, operator: str) -> str:
    if _ROLES.get(base) == "attn.core":
        return "attention"
    return "norm" if "norm" in base else _CATEGORIES.get(operator, "elementwise")
