"""Infer layer, op and phase from a name, and the op from the module path around it.

A module path is matched by the rules of module_rules.tsv; a name by the user's rules, then the built-in ones.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.kernel_rules import (
    USER_RULE_PREFIX,
    Classification,
    UserRules,
    classify_kernel,
    compile_once,
    parse_table,
    read_user_rules,
)
from capture.native.schema import PATH_SEPARATOR

LAYER_PATTERN: Final = re.compile(
    r"(?:\bL|\blayers?[._/ \[]?|\bblocks?[._/ ]|\bblk\.|\bh\.|\btransformer[._]h[._])(\d{1,4})(?!\d)"
)
_AMBIGUOUS_OPS: Final = ("mlp.act", "conv")  # ops that a name suggests, but that mixers and experts have, too
PRODUCT_CATEGORIES: Final = ("matmul", "softmax")  # of matrix products and of the softmax between them
_REGION: Final = "{ForeignNode["  # TensorRT names what it compiles at once by its first and last node
_MAX_NAME_CHARS: Final = 1 << 12  # longer names are cut before the search
_ANNOTATED_OP: Final = re.compile(
    r"(?:^|[./])(attn\.(?:qkv|q|k|v|out|core|rope|kv)|mlp\.(?:gate_up|gate|up|down|act)|lm_head|sample|embed|norm)$"
)
# ops of these families have a fixed position in a model; others, such as `copy`, occur anywhere
_MODEL_OP_PREFIXES: Final = frozenset({
    "attn", "mlp", "moe", "ssm", "conv", "norm", "embed", "lm_head", "sample", "comm", "optimizer", "loss",
})  # fmt: skip
_TABLE: Final = Path(__file__).with_name("module_rules.tsv")
_COLUMNS: Final = ("id", "path", "place", "of", "op", "example")
MODULE_PREFIX: Final = "nn.Module: "  # of scopes that are modules, as profilers write them
_MAX_PATH_CHARS: Final = 1 << 12  # of a path, from its end
_MAX_MODULES: Final = 8  # of a path, from the innermost
_COUNTER: Final = re.compile(r"_(\d{1,9})$")
_KERNELS: Final = ("products", "all")
_POSITION: Final = re.compile(r"last|earlier|\d/\d|under (?:one|several)")


class ModuleRule(NamedTuple):
    """The end of a module path, and the op of the kernels that run in such a module."""

    id: str
    pattern: str
    # position among the modules of its class under one parent: `2/3`, `last` or `earlier` of several; the
    # same of its parent: `under one` or `under several`; empty for any
    position: str
    is_products_only: bool  # applies to matrix products and the softmax between them, else to all kernels
    op: str
    example: str


class ModulePosition(NamedTuple):
    """A module: the path that leads to it, and its number among the modules of its class."""

    path: str  # classes or attributes, joined by slashes, innermost last, without counters
    number: int = 1
    siblings: int = 1
    parent_siblings: int = 1  # modules of its parent's class under its grandparent


def parse_module_rules(table: str) -> tuple[ModuleRule, ...]:
    """Parse a table of tab-separated lines; raise ValueError for other columns or an invalid line."""
    return tuple(_parse_rule(*row) for row in parse_table(table, _COLUMNS))


def _parse_rule(id: str, pattern: str, position: str, kernels: str, op: str, example: str) -> ModuleRule:
    if kernels not in _KERNELS or (position and not _POSITION.fullmatch(position)):
        raise ValueError(f"rule {id}: unknown kernels or position")
    return ModuleRule(id, rf"(?:^|/)(?:{pattern})", position, kernels == "products", op, example)


MODULE_RULES: Final = parse_module_rules(_TABLE.read_text(encoding="utf-8"))


@lru_cache(maxsize=1 << 14)
def find_module_rule(module: ModulePosition) -> ModuleRule | None:
    """Find the rule that decides the op of kernels in a module."""
    for rule in MODULE_RULES:
        if compile_once(rule.pattern).search(module.path) and _is_at_position(rule.position, module):
            return rule
    return None


def _is_at_position(position: str, module: ModulePosition) -> bool:
    if not position:
        return True
    if position in ("last", "earlier"):
        return module.siblings > 1 and (position == "last") == (module.number == module.siblings)
    if position.startswith("under"):
        return (position == "under one") == (module.parent_siblings == 1)
    return position == f"{module.number}/{module.siblings}"


def find_path_rules(paths: Iterable[str]) -> Mapping[str, ModuleRule]:
    """Find path → rule for the scope paths whose innermost module has one.

    The number of a module among its siblings counts the modules that these paths name.
    """
    chains = {path: chain for path in paths if (chain := _split_modules(path))}
    counters: dict[tuple[str, str], set[int]] = defaultdict(set)
    for chain in chains.values():
        for key, counter in _parse_counters(chain):
            counters[key].add(counter)
    sorted_counters = {key: sorted(numbers) for key, numbers in counters.items()}
    rules = {path: find_module_rule(_locate_module(chain, sorted_counters)) for path, chain in chains.items()}
    return {path: rule for path, rule in rules.items() if rule}


def _split_modules(path: str) -> tuple[str, ...]:
    """Split a scope path into its modules, innermost last; without a profiler's mark every scope is one."""
    scopes = path[-_MAX_PATH_CHARS:].split(PATH_SEPARATOR)
    marked = [scope.removeprefix(MODULE_PREFIX) for scope in scopes if scope.startswith(MODULE_PREFIX)]
    return tuple(marked or (scope.partition("(")[0] for scope in scopes))[-_MAX_MODULES:]


def _parse_counters(chain: tuple[str, ...]) -> list[tuple[tuple[str, str], int]]:
    """Parse (parent, class) and counter of each module: (`Block_0`, `Linear`), 3 of `Linear_3`; 0 if none."""
    counters = []
    for parent, module in zip(("", *chain), chain, strict=False):
        match = _COUNTER.search(module)
        counters.append(((parent, _COUNTER.sub("", module)), int(match[1]) if match else 0))
    return counters


def _locate_module(
    chain: tuple[str, ...], sorted_counters: Mapping[tuple[str, str], list[int]]
) -> ModulePosition:
    """Locate the innermost module of a chain among its siblings."""
    words = [_COUNTER.sub("", module) for module in chain]
    path = "/".join(word for scope in words for word in scope.split(".") if word and not word.isdigit())
    positions = [
        (sorted_counters[key].index(counter) + 1, len(sorted_counters[key]))
        for key, counter in _parse_counters(chain)
    ]
    parent_siblings = positions[-2][1] if len(positions) > 1 else 1
    return ModulePosition(path, *positions[-1], parent_siblings)


class PhaseRule(NamedTuple):
    """A pattern in a name or path, and the phase that it implies."""

    id: str
    pattern: re.Pattern[str]
    phase: str
    example: str


# id, pattern, phase, example; the first match decides
PHASE_RULES: Final = tuple(
    PhaseRule(id, re.compile(pattern, re.IGNORECASE), phase, example)
    for id, pattern, phase, example in (
        ("phase.prefill",   r"prefill|prompt.?processing",      "prefill",   "Prompt Processing"),
        ("phase.decode",    r"decode(?!r)|generation.?loop",    "decode",    "Generation Loop"),
        ("phase.backward",  r"backward|autograd::engine",       "backward",  "autograd::engine::evaluate_function"),
        ("phase.optimizer", r"optimizer",                       "optimizer", "Optimizer.step#AdamW.step"),
        ("phase.forward",   r"forward_pass|\bforward\b",        "forward",   "LlamaDecoderLayer.forward"),
    )
)  # fmt: skip


def find_layer(name: str) -> int | None:
    """Find the number of the transformer layer in a name or path, such as 3 in `layers.3.mlp`."""
    if name.startswith(_REGION):
        return None
    match = LAYER_PATTERN.search(name[:_MAX_NAME_CHARS])
    return int(match[1]) if match else None


@cache
def load_user_rules() -> UserRules:
    """Load the user's rules, once per process; empty if there are none."""
    return read_user_rules()


@lru_cache(maxsize=1 << 16)
def classify_name(name: str) -> Classification:
    """Classify a name by the user's rules, else by the built-in ones."""
    user_rules = load_user_rules()
    return (user_rules.classify(name) if len(user_rules) else None) or classify_kernel(name)


def infer_op_and_category(name: str) -> tuple[str | None, str]:
    """Infer op and category of a row from its name; the op is None if the name leaves it open."""
    classification = classify_name(name)
    return classification.op, classification.category


def has_model_position(name: str) -> bool:
    """Whether a name implies a position in the model, so that enclosing scopes are not consulted."""
    op, _, rule_id, _ = classify_name(name)
    is_user_rule = (rule_id or "").startswith(USER_RULE_PREFIX)
    is_model_op = op is not None and op.partition(".")[0] in _MODEL_OP_PREFIXES and op not in _AMBIGUOUS_OPS
    return op is not None and (is_user_rule or is_model_op)


class ScopeRole(NamedTuple):
    """The op that a scope implies for the kernels launched in it."""

    op: str
    is_products_only: bool  # applies to matrix products and the softmax between them only
    basis: str  # why, as shown to the user


def infer_scope_roles(paths: Iterable[str | None]) -> dict[str, ScopeRole]:
    """Infer path → role for the paths whose innermost scope implies one.

    A scope may name its op (`L3.attn.qkv`), be a module that a rule knows, or be named after a product.
    """
    distinct = dict.fromkeys(path for path in paths if path)
    rules = find_path_rules(distinct)
    roles = {path: _infer_scope_role(path, rules.get(path)) for path in distinct}
    return {path: role for path, role in roles.items() if role}


def _infer_scope_role(path: str, rule: ModuleRule | None) -> ScopeRole | None:
    *outer, scope = path.split(PATH_SEPARATOR)
    basis = f"the enclosing scope names the op: {scope}"
    annotated = _ANNOTATED_OP.search(scope)
    if annotated and not (rule and rule.op.startswith("moe.")):  # experts call their router `mlp.gate`
        return ScopeRole(annotated[1], is_products_only=False, basis=basis)
    if rule:
        module = PATH_SEPARATOR.join(word.removeprefix(MODULE_PREFIX) for word in (*outer[-1:], scope))
        return ScopeRole(rule.op, rule.is_products_only, f"rule {rule.id}, by the enclosing module: {module}")
    op, category = infer_op_and_category(scope)
    return ScopeRole(op, is_products_only=False, basis=basis) if op and category == "matmul" else None


def find_phase_rule(text: str) -> PhaseRule | None:
    """Find the rule that decides the phase of a name or path."""
    head = text[:_MAX_NAME_CHARS]
    return next((rule for rule in PHASE_RULES if rule.pattern.search(head)), None)


def find_phase(text: str) -> str | None:
    """Find the phase that a name or path implies, such as `decode`."""
    rule = find_phase_rule(text)
    return rule.phase if rule else None
