"""Explain the op and category of a kernel: the rule that matched its name, or another source."""

from typing import Any, Final, NamedTuple

import polars as pl

from capture.classify.kernel_rules import USER_RULE_PREFIX, Classification
from capture.classify.name_rules import ScopeRole, classify_name, infer_scope_roles
from capture.classify.short_names import shorten_names
from capture.run import Run

_PARTS: Final = {"base": "the name", "inner": "what it carries", "args": "a template argument"}
_COLUMNS: Final = ("name", "op", "category", "path")


class Reason(NamedTuple):
    """Op and category of the kernels of one name, and the reason."""

    name: str
    short: str  # unique among the kernels of the run
    op: str | None
    category: str | None
    rule_id: str | None  # of the rule that matches its name, even if overridden; None without one
    explanation: str


def explain_kernels(run: Run, part: str) -> list[Reason]:
    """Return the reasons for kernels whose name contains `part`, by falling time."""
    kernels = run.events.filter(kind="kernel")
    columns = [c for c in _COLUMNS if run.has(c)]
    weight = pl.col("dur").sum() if run.has("dur") else pl.len()
    groups = kernels.group_by(columns, maintain_order=True).agg(weight=weight)
    rows = groups.with_columns(pl.col(columns).cast(pl.String)).sort("weight", descending=True)
    short = shorten_names(rows["name"].drop_nulls())
    scopes = infer_scope_roles(rows["path"]) if "path" in columns else {}
    matching = [row for row in rows.to_dicts() if part.lower() in (row["name"] or "").lower()]
    reasons: dict[tuple[Any, ...], Reason] = {}
    for row in matching:
        name = str(row["name"])
        op, category = row.get("op"), row.get("category")
        scope = scopes.get(row.get("path") or "")
        rule_id, because = classify_name(name).rule_id, explain_kernel(run, name, op, category, scope)
        reasons.setdefault((name, op, category), Reason(name, short[name], op, category, rule_id, because))
    return list(reasons.values())


def explain_kernel(run: Run, name: str, op: str | None, category: str | None, scope: ScopeRole | None) -> str:
    """Explain op and category of a kernel in one sentence; `scope` is the role implied by its path."""
    by_name = classify_name(name)
    if (op, category) == (by_name.op, by_name.category):
        return _explain_name_rule(by_name)
    if op == by_name.op:
        return f"its category is from the source; its op by {_explain_name_rule(by_name)}"
    of_category = "from the source" if category != by_name.category else _explain_name_rule(by_name)
    return f"{_explain_op(run, op, scope)}; category: {of_category}"


def _explain_op(run: Run, op: str | None, scope: ScopeRole | None) -> str:
    """Return the origin of an op that is not from the name."""
    if scope and op == scope.op:
        return scope.basis
    if inferred := run.meta.get("inferred"):
        return f"its op is inferred from its position: {inferred}"
    if captured := run.meta.get("captured"):
        return f"its op is from the capture of its graph: {captured}"
    return "its op is from the source"


def _explain_name_rule(by_name: Classification) -> str:
    """Return the rule that matched a name, and the part that it matched."""
    if by_name.rule_id is None:
        return "no rule matches its name"
    if by_name.rule_id.startswith(USER_RULE_PREFIX):
        return by_name.basis
    part, _, match = by_name.basis.partition(": ")
    return f"rule {by_name.rule_id}, by {_PARTS.get(part, part)}: {match}"
