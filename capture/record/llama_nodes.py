"""The nodes of llama.cpp's graphs: their layer and what they do in the model, by name and operator."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import ctypes
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .op_numbers import OpNumbers

# `Qcur-3 (view)`, `cache_k_l3 (view)`, `result_output`
_NAME: Final = re.compile(r"^(?P<base>.*?)(?:-(?P<layer>\d+)|_l(?P<cache>\d+))?(?: \(.*)?$")
_UNNAMED: Final = b"node_"  # what ggml calls a node that the model gives no name
_HEADS: Final = ("kqv_out", "kqv", "__fattn__")  # behind these comes the product that joins the heads
_IDLE: Final = frozenset(("NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"))  # nothing is computed

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
    """Gives the node of a graph the number of its op."""

    def __init__(self, module: Any, numbers: OpNumbers) -> None:
        self._numbers = numbers
        self._name, self._operator = (
            _function(module._lib, name) for name in ("ggml_get_name", "ggml_op_desc")
        )
        self._known: dict[tuple[bytes, bytes, str | None, int | None, str], int | None] = {}
        self._named: dict[bytes, tuple[int | None, str]] = {}

    def number(self, node: int, before: tuple[int | None, str], track: str | None) -> int | None:
        """Return the number of a node's op, None where nothing is computed; `before` as `named` gave it."""
        name, operator = self._name(node), self._operator(node)
        layer, base = before if name.startswith(_UNNAMED) else (None, "")
        key = name, operator, track, layer, base
        if key not in self._known:
            does = operator.decode("utf-8", "replace")
            op = op_of(name.decode("utf-8", "replace"), does, (layer, base))
            self._known[key] = None if does in _IDLE else self._numbers.of({**op, "track": track})
        return self._known[key]

    def named(self, node: int, before: tuple[int | None, str]) -> tuple[int | None, str]:
        """Return layer and name of a node; those of the one before it where the model gives it none."""
        name = self._name(node)
        if name.startswith(_UNNAMED):
            return before
        if name not in self._named:
            base, layer = parts_of(name.decode("utf-8", "replace"))
            self._named[name] = layer, base
        return self._named[name]


def parts_of(name: str) -> tuple[str, int | None]:
    """Return what a node is called within its layer, and the layer; None outside of any."""
    match = _NAME.match(name)
    assert match is not None  # noqa: S101
    number = match["layer"] or match["cache"]
    return match["base"] or "node", int(number) if number is not None and len(number) < 6 else None


def op_of(name: str, operator: str, before: tuple[int | None, str] = (None, "")) -> dict[str, Any]:
    """Return what is known of a node by its name and operator; one without a name by the node before it."""
    base, layer = parts_of(name)
    if name.startswith(_UNNAMED.decode()):
        layer, base = before[0], "kqv_wo" if before[1] in _HEADS and operator == "MUL_MAT" else "node"
    local = f"{base} {operator.lower()}"
    return {
        "name": local,
        "layer": layer,
        "op": _role(base, operator),
        "category": _category(base, operator),
        "lens": "wall",
        "path": " / ".join(filter(None, ("" if layer is None else f"blk.{layer}", base, operator.lower()))),
    }


def _role(base: str, operator: str) -> str | None:
    """Return the part of the model that a node is of."""
    if operator == "ROPE":
        return "attn.rope"
    if operator == "FLASH_ATTN_EXT":
        return "attn.core"
    if "norm" in base:
        return "norm"
    if base in ("ffn_silu", "ffn_gelu", "ffn_swiglu", "ffn_geglu", "ffn_act", "ffn_gate_par"):
        return "mlp.act"
    return _ROLES.get(base)


def _category(base: str, operator: str) -> str:
    """Return what kind of work a node is."""
    if _ROLES.get(base) == "attn.core":
        return "attention"
    return "norm" if "norm" in base else _CATEGORIES.get(operator, "elementwise")


def _function(library: Any, name: str) -> Any:
    """Return a function of the library, from a node to a text; that of the program stays as it is."""
    kind = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
    return kind((name, library))
