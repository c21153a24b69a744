"""What a name says: the layer, role and phase of a row, and which rule said it. Own rules go first."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, NamedTuple

from capture.classify.kernel_names import Classified, classify
from capture.classify.module_rules import MODULE, ModuleRule, rules_of_paths
from capture.classify.own_rules import OWN, OwnRules, read_own_rules
from capture.classify.rules import LAYER, PHASE_RULES, PhaseRule
from capture.native.schema import PATH_SEPARATOR

_LIKELY: Final = (
    "mlp.act",
    "conv",
)  # what a name suggests, though it may also stand in a mixer or in experts
PRODUCTS: Final = ("matmul", "softmax")  # categories of matrix products and of what stands between them
_LOOKED_AT: Final = 1 << 12  # characters of a name that are searched
_SPOKEN_ROLE: Final = re.compile(
    r"(?:^|[./])(attn\.(?:qkv|q|k|v|out|core|rope|kv)|mlp\.(?:gate_up|gate|up|down|act)|lm_head|sample|embed|norm)$"
)
# first words of the ops that are a place in a model; the others, such as `copy`, may stand anywhere
_PLACES: Final = frozenset({
    "attn", "mlp", "moe", "ssm", "conv", "norm", "embed", "lm_head", "sample", "comm", "optimizer", "loss",
})  # fmt: skip


def layer_of(name: str) -> int | None:
    """Return the transformer layer that a name or path speaks of; None where it speaks of none."""
    match = LAYER.search(name[:_LOOKED_AT])
    return int(match[1]) if match else None


@cache
def own_rules() -> OwnRules:
    """Return the person's own rules, read once in a process; empty where there are none."""
    return read_own_rules()


@lru_cache(maxsize=1 << 15)
def classified(name: str) -> Classified:
    """Return what a name says of its row, by the person's own rules, else by the built-in ones."""
    own = own_rules()
    return (own.classify(name) if len(own) else None) or classify(name)


def role_of(name: str) -> tuple[str | None, str]:
    """Return the op, None where it stays open, and the category of a row of this name."""
    said = classified(name)
    return said.op, said.category


def places_its_row(name: str) -> bool:
    """Return whether a name says where in a model its row stands: no scope around it knows better."""
    op, _, rule_id, _ = classified(name)
    own = (rule_id or "").startswith(OWN)
    return op is not None and (own or (op.partition(".")[0] in _PLACES and op not in _LIKELY))


class ScopeRole(NamedTuple):
    """What a scope says of the kernels that run in it."""

    op: str
    of_products: bool  # says it of matrix products and the softmax between them only
    basis: str  # what said it


def roles_of_scopes(paths: Iterable[str | None]) -> dict[str, ScopeRole]:
    """Return path → role for the paths whose innermost scope tells one.

    A scope may speak of it as `L3.attn.qkv` does, be a module that a rule knows, or be named after a product.
    """
    distinct = dict.fromkeys(path for path in paths if path)
    rules = rules_of_paths(distinct)
    roles = {path: _role_of_scope(path, rules.get(path)) for path in distinct}
    return {path: role for path, role in roles.items() if role}


def _role_of_scope(path: str, rule: ModuleRule | None) -> ScopeRole | None:
    *outer, scope = path.split(PATH_SEPARATOR)
    stated = f"the scope that launched it says its op: {scope}"
    spoken = _SPOKEN_ROLE.search(scope)
    if spoken and not (rule and rule.op.startswith("moe.")):  # experts call their router `mlp.gate`
        return ScopeRole(spoken[1], of_products=False, basis=stated)
    if rule:
        where = PATH_SEPARATOR.join(word.removeprefix(MODULE) for word in (*outer[-1:], scope))
        return ScopeRole(rule.op, rule.of_products, f"rule {rule.id}, by the module around it: {where}")
    op, category = role_of(scope)
    return ScopeRole(op, of_products=False, basis=stated) if op and category == "matmul" else None


def phase_rule(text: str) -> PhaseRule | None:
    """Return the rule that decides the phase that a name or path speaks of; None where no rule fits."""
    head = text[:_LOOKED_AT]
    return next((rule for rule in PHASE_RULES if rule.pattern.search(head)), None)


def phase_of(text: str) -> str | None:
    """Return the phase that a name or path speaks of; None where it speaks of none."""
    rule = phase_rule(text)
    return rule.phase if rule else None
