"""What a kernel's name says: its op and category, and which rule said it."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from capture.classify.base_name import KernelName, parse
from capture.classify.kernel_rules import CARRIED, INDEX, KERNEL_RULES, KernelRule
from capture.classify.rule_index import places_of

_LOOKED_AT: Final = 1 << 10  # characters of each part that are searched
# what PyTorch calls its functors, before or after what they compute
_AFFIXES: Final = re.compile(
    r"^(?:CUDAFunctor(?:OnSelf|OnOther)?_|launch_|op_|wrapped_)"
    r"|(?:_tensor_scalar|_scalar)?(?:_kernel)?(?:_cuda)?(?:_kernel)?(?:_impl|_out)?$"
    r"|(?:Functor|CUDAKernelImpl|Ops|_functor|Operator)$"
)
_WORDS: Final = {
    "compare": "compare", "compareeq": "compare", "bitwiseand": "bitwise", "bitwiseor": "bitwise",
    "bitwise_not": "bitwise", "maxnan": "max", "minnan": "min", "normtwo": "norm2", "and": "all", "or": "any",
    "plus": "add", "multiplies": "mul", "operator_call": "reduce",
}  # fmt: skip


class Classified(NamedTuple):
    """What a name says of a kernel."""

    op: str | None  # None where the name leaves the role open
    category: str
    rule_id: str | None  # None where no rule fits
    basis: str  # the part of the name that decided, and what stood there; empty where no rule fits


class _Parts(NamedTuple):
    base: str
    inner: str


_ARGUMENT_RULES: Final = [place for place, rule in enumerate(KERNEL_RULES) if rule.part == "args"]
_UNKNOWN: Final = Classified(None, "other", None, "")


@lru_cache(maxsize=1 << 15)
def classify(name: str) -> Classified:
    """Return what a kernel's name says of it; op None and category "other" where no rule fits."""
    parsed = parse(name)
    parts = _Parts(parsed.base[:_LOOKED_AT], parsed.inner[:_LOOKED_AT])
    place, fits = _by_name(parts)
    if parsed.arguments:
        arguments = ", ".join(parsed.arguments)[:_LOOKED_AT]
        for earlier in _ARGUMENT_RULES:
            if earlier < place and (fits_there := KERNEL_RULES[earlier].search(arguments, arguments.lower())):
                place, fits = earlier, fits_there
                break
    if place == len(KERNEL_RULES):
        return _UNKNOWN
    rule = KERNEL_RULES[place]
    return Classified(_op(rule, parsed), rule.category, rule.id, f"{rule.part}: {fits}")


@lru_cache(maxsize=1 << 14)
def _by_name(parts: _Parts) -> tuple[int, str]:
    """Return the place of the first rule that fits without template arguments, and what of the name fits."""
    small = _Parts(parts.base.lower(), parts.inner.lower())
    bits = INDEX["base"].may_fit(small.base) if small.base else 0
    bits |= INDEX["inner"].may_fit(small.inner) if small.inner else 0
    for place in places_of(bits):
        rule = KERNEL_RULES[place]
        text, folded = (parts.base, small.base) if rule.part == "base" else (parts.inner, small.inner)
        if fits := rule.search(text, folded):
            return place, fits
    return len(KERNEL_RULES), ""


def rule_of(id: str) -> KernelRule | None:
    """Return the rule with this id; None where there is none."""
    return next((rule for rule in KERNEL_RULES if rule.id == id), None)


def _op(rule: KernelRule, parsed: KernelName) -> str | None:
    if rule.op != CARRIED:
        return rule.op
    return None if parsed.cut else carried_op(parsed.inner) or None


def carried_op(inner: str) -> str:
    """Return what a functor computes in a word, such as `add` for `CUDAFunctor_add`; empty for none."""
    *outer, leaf = inner.split("::")
    if leaf == "operator_call" and outer:
        leaf = outer[-1]
    word = leaf
    while (shorter := _AFFIXES.sub("", word)) != word and shorter:
        word = shorter
    return _WORDS.get(word.lower(), word.lower())
