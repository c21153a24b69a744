"""What a name says: the layer, role and phase of a row, and which rule said it."""

from functools import lru_cache
from typing import Final

from capture.classify.rules import LAYER, PHASE_RULES, ROLE_RULES, PhaseRule, RoleRule

_LOOKED_AT: Final = 1 << 12  # characters of a name that are searched


def layer_of(name: str) -> int | None:
    """Return the transformer layer that a name or path speaks of; None where it speaks of none."""
    match = LAYER.search(name[:_LOOKED_AT])
    return int(match[1]) if match else None


def role_rule(name: str) -> RoleRule | None:
    """Return the rule that decides the role of a row of this name; None where no rule fits."""
    head = name[:_LOOKED_AT]
    return next((rule for rule in ROLE_RULES if rule.pattern.search(head)), None)


@lru_cache(maxsize=1 << 14)
def role_of(name: str) -> tuple[str | None, str]:
    """Return the op, None where it stays open, and the category of a row of this name."""
    rule = role_rule(name)
    return (rule.op, rule.category) if rule else (None, "other")


def phase_rule(text: str) -> PhaseRule | None:
    """Return the rule that decides the phase that a name or path speaks of; None where no rule fits."""
    head = text[:_LOOKED_AT]
    return next((rule for rule in PHASE_RULES if rule.pattern.search(head)), None)


def phase_of(text: str) -> str | None:
    """Return the phase that a name or path speaks of; None where it speaks of none."""
    rule = phase_rule(text)
    return rule.phase if rule else None
