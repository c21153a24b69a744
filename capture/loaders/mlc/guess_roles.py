"""Guess roles and phases of MLC kernels from names, call counts and mean times; every guess is marked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MATMUL: Final = re.compile(r"NT_matmul(\d{1,9})(?:_add\d*)?_kernel(_\d+)?$")
_ATTENTION: Final = re.compile(r"batch_(prefill|decode)_")
_LAYER_OPS: Final = ("attn.qkv", "attn.out", "mlp.gate_up", "mlp.down")
_OPS_BY_TIME: Final = ("mlp.gate_up", "mlp.down", "attn.qkv", "attn.out")
_TOLERANCE: Final = 0.1

ROLE_GUESS: Final = "roles and phases of matmul kernels: from their order, time and calls"


@dataclass(frozen=True)
class UnlabelledKernel:
    """A kernel before any guess."""

    name: str
    calls: int
    total: int


@dataclass(frozen=True)
class GuessedRole:
    """Role and phase of a kernel; None if unknown."""

    op: str | None = None
    phase: str | None = None


RolesByName = dict[str, GuessedRole]


def guess_roles(kernels: Sequence[UnlabelledKernel]) -> RolesByName:
    """Guess role and phase by kernel name; kernels without a guess are missing."""
    attention = ((kernel.name, _ATTENTION.search(kernel.name)) for kernel in kernels)
    by_name = _guess_matmuls(kernels)
    by_name |= {name: GuessedRole(phase=match[1]) for name, match in attention if match}
    return by_name | _guess_activations(kernels, by_name)


def find_uneven_calls(kernels: Sequence[UnlabelledKernel], roles: RolesByName) -> dict[str, tuple[int, int]]:
    """Map each phase to the fewest and most calls of its per-layer kernels, if they differ."""
    ranges = {}
    for phase in ("prefill", "decode"):
        in_phase = [k for k in kernels if roles.get(k.name, GuessedRole()).phase == phase]
        calls = [kernel.calls for kernel in in_phase if roles[kernel.name].op in _LAYER_OPS]
        if calls and min(calls) < max(calls):
            ranges[phase] = (min(calls), max(calls))
    return ranges


def _guess_matmuls(kernels: Sequence[UnlabelledKernel]) -> RolesByName:
    """Guess matmul roles: a layer has four in module order, prefill has its own four, lm_head is last."""
    matched = ((int(m[1]), bool(m[2]), kernel) for kernel in kernels if (m := _MATMUL.search(kernel.name)))
    numbered = sorted(matched, key=lambda entry: entry[0])
    prefill = [kernel for _, tiled, kernel in numbered if tiled]
    decode = [kernel for _, tiled, kernel in numbered if not tiled]
    by_name = _guess_layer(prefill, "prefill")
    if len(decode) == 5 and decode[-1].calls == min(kernel.calls for kernel in decode):
        lm_head = decode.pop()
        if block := _guess_layer(decode, "decode"):
            by_name |= block | {lm_head.name: GuessedRole("lm_head")}
    return by_name


def _guess_layer(kernels: list[UnlabelledKernel], phase: str) -> RolesByName:
    """Guess the roles of four matmuls if their mean times rank as those of a layer do, else none."""
    if len(kernels) != len(_LAYER_OPS):
        return {}
    kernel_by_op = dict(zip(_LAYER_OPS, kernels, strict=True))
    means = [kernel_by_op[op].total / max(1, kernel_by_op[op].calls) for op in _OPS_BY_TIME]
    if means != sorted(means, reverse=True):
        return {}
    return {kernel.name: GuessedRole(op, phase) for op, kernel in kernel_by_op.items()}


def _guess_activations(kernels: Sequence[UnlabelledKernel], roles: RolesByName) -> RolesByName:
    """Guess the phase of activations: the one whose layers have as many calls."""
    kernel_roles = [(kernel, roles.get(kernel.name, GuessedRole())) for kernel in kernels]
    calls_by_phase = {role.phase: kernel.calls for kernel, role in kernel_roles if role.op == "mlp.gate_up"}
    activations = {}
    for kernel in kernels:
        near = [p for p, calls in calls_by_phase.items() if abs(kernel.calls - calls) <= _TOLERANCE * calls]
        if "silu" in kernel.name and len(near) == 1:
            activations[kernel.name] = GuessedRole("mlp.act", near[0])
    return activations
