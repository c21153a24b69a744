"""Layer, role and phase that a name implies, and the rule that says so; the user's rules come first."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, NamedTuple

from capture.classify.kernel_rules import Classification, classify_kernel
from capture.classify.module_rules import MODULE_PREFIX, ModuleRule, find_path_rules
from capture.classify.user_rules import USER_RULE_PREFIX, UserRules, read_user_rules
from capture.native.schema import PATH_SEPARATOR


class PhaseRule(NamedTuple):
    """A pattern in a name or path, and the phase that it implies."""

    id: str
    pattern: re.Pattern[str]
    phase: str
    example: str


LAYER_PATTERN: Final = re.compile(
    r"(?:\bL|\blayers?[._/ \[]?|\bblocks?[._/ ]|\bblk\.|\bh\.|\btransformer[._]h[._])(\d{1,4})(?!\d)"
)

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

_AMBIGUOUS_OPS: Final = ("mlp.act", "conv")  # ops that a name suggests, but that mixers and experts have, too
PRODUCT_CATEGORIES: Final = ("matmul", "softmax")  # of matrix products and of the softmax between them
_MAX_NAME_CHARS: Final = 1 << 12  # longer names are cut before the search
_ANNOTATED_OP: Final = re.compile(
    r"(?:^|[./])(attn\.(?:qkv|q|k|v|out|core|rope|kv)|mlp\.(?:gate_up|gate|up|down|act)|lm_head|sample|embed|norm)$"
)
# ops of these families have a fixed position in a model; others, such as `copy`, occur anywhere
_MODEL_OP_PREFIXES: Final = frozenset({
    "attn", "mlp", "moe", "ssm", "conv", "norm", "embed", "lm_head", "sample", "comm", "optimizer", "loss",
})  # fmt: skip


def find_layer(name: str) -> int | None:
    """Find the number of the transformer layer in a name or path, such as 3 in `layers.3.mlp`."""
    match = LAYER_PATTERN.search(name[:_MAX_NAME_CHARS])
    return int(match[1]) if match else None


@cache
def load_user_rules() -> UserRules:
    """Load the user's rules, once per process; empty if there are none."""
    return read_user_rules()


@lru_cache(maxsize=1 << 15)
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
