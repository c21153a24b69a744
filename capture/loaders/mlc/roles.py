"""Guesses what an MLC kernel does from its name and its calls; every guess is labelled as one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MATMUL: Final = re.compile(r"NT_matmul(\d{1,9})(?:_add\d*)?_kernel(_\d+)?$")
_ATTENTION: Final = re.compile(r"batch_(prefill|decode)_")
_BLOCK: Final = ("attn.qkv", "attn.out", "mlp.gate_up", "mlp.down")
_BY_TIME: Final = ("mlp.gate_up", "mlp.down", "attn.qkv", "attn.out")
_NEAR: Final = 0.1

EXPLANATION: Final = "roles and phases of the matrix kernels: from their order, their time and their calls"


@dataclass(frozen=True)
class Kernel:
    """What is known of a kernel before any guess."""

    name: str
    calls: int
    total: int


@dataclass(frozen=True)
class Role:
    op: str | None = None
    phase: str | None = None


def roles(kernels: Sequence[Kernel]) -> dict[str, Role]:
    """Return name → role, for the kernels whose role the table gives away."""
    by_name = _matmuls(kernels) | _attention(kernels)
    return by_name | _activations(kernels, by_name)


def lost_calls(kernels: Sequence[Kernel], by_name: dict[str, Role]) -> dict[str, tuple[int, int]]:
    """Return phase → fewest and most calls of kernels that each run once a layer, where they differ."""
    spans = {}
    for phase in ("prefill", "decode"):
        calls = [
            k.calls
            for k in kernels
            if by_name.get(k.name, Role()).phase == phase and by_name[k.name].op in _BLOCK
        ]
        if calls and min(calls) < max(calls):
            spans[phase] = (min(calls), max(calls))
    return spans


def _matmuls(kernels: Sequence[Kernel]) -> dict[str, Role]:
    """Return the roles of matrix kernels: a block is four in module order, prefill has its own, lm_head is
    last.
    """
    matched = ((int(m[1]), bool(m[2]), k) for k in kernels if (m := _MATMUL.search(k.name)))
    numbered = sorted(matched, key=lambda entry: entry[0])
    prefill = [k for _, tiled, k in numbered if tiled]
    decode = [k for _, tiled, k in numbered if not tiled]
    by_name = _block(prefill, "prefill")
    if len(decode) == 5 and decode[-1].calls == min(k.calls for k in decode):
        head = decode.pop()
        if block := _block(decode, "decode"):
            by_name |= block | {head.name: Role("lm_head")}
    return by_name


def _block(kernels: list[Kernel], phase: str) -> dict[str, Role]:
    """Return the roles of four kernels if their mean times rank as those of a block do, else nothing."""
    if len(kernels) != len(_BLOCK):
        return {}
    named = dict(zip(_BLOCK, kernels, strict=True))
    means = [named[op].total / max(1, named[op].calls) for op in _BY_TIME]
    if means != sorted(means, reverse=True):
        return {}
    return {k.name: Role(op, phase) for op, k in named.items()}


def _attention(kernels: Sequence[Kernel]) -> dict[str, Role]:
    return {k.name: Role(phase=m[1]) for k in kernels if (m := _ATTENTION.search(k.name))}


def _activations(kernels: Sequence[Kernel], by_name: dict[str, Role]) -> dict[str, Role]:
    """Return the phase of activations: that whose blocks are called as often."""
    usual = {
        role.phase: k.calls for k in kernels if (role := by_name.get(k.name, Role())).op == "mlp.gate_up"
    }
    guessed = {}
    for k in kernels:
        near = [phase for phase, calls in usual.items() if abs(k.calls - calls) <= _NEAR * calls]
        if "silu" in k.name and len(near) == 1:
            guessed[k.name] = Role("mlp.act", near[0])
    return guessed
