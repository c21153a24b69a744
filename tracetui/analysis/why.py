"""Why a kernel has its op and category: the rule that read its name, or what else was stated."""

from typing import Any, Final, NamedTuple

import polars as pl

from capture.classify.kernel_names import Classified
from capture.classify.names import ScopeRole, classified, roles_of_scopes
from capture.classify.own_rules import OWN
from capture.classify.short_names import short_names
from capture.run import Run

_PARTS: Final = {"base": "the name", "inner": "what it carries", "args": "a template argument"}
_COLUMNS: Final = ("name", "op", "category", "path")


class Reason(NamedTuple):
    """What is said of the kernels of one name, op and category, and why."""

    name: str
    short: str  # tells it apart from all other kernels of the run
    op: str | None
    category: str | None
    rule_id: str | None  # of the rule that reads its name, whether what it says stands or not; None for none
    because: str


def reasons(run: Run, part: str) -> list[Reason]:
    """Return why the kernels with a part in their names have their op and category, by falling time."""
    kernels = run.events.filter(kind="kernel")
    columns = [c for c in _COLUMNS if run.has(c)]
    weight = pl.col("dur").sum() if run.has("dur") else pl.len()
    every = kernels.group_by(columns, maintain_order=True).agg(weight=weight)
    rows = every.with_columns(pl.col(columns).cast(pl.String)).sort("weight", descending=True)
    short = short_names(rows["name"].drop_nulls())
    scopes = roles_of_scopes(rows["path"]) if "path" in columns else {}
    asked = [row for row in rows.to_dicts() if part.lower() in (row["name"] or "").lower()]
    distinct: dict[tuple[Any, ...], Reason] = {}
    for row in asked:
        name = str(row["name"])
        op, category = row.get("op"), row.get("category")
        scope = scopes.get(row.get("path") or "")
        rule_id, because = classified(name).rule_id, reason(run, name, op, category, scope)
        distinct.setdefault((name, op, category), Reason(name, short[name], op, category, rule_id, because))
    return list(distinct.values())


def reason(run: Run, name: str, op: str | None, category: str | None, scope: ScopeRole | None) -> str:
    """Return why a kernel has its op and category, in one sentence; `scope` is what its path speaks of."""
    said = classified(name)
    if (op, category) == (said.op, said.category):
        return _by_name(said)
    if op == said.op:
        return f"the source states its category; its op by {_by_name(said)}"
    of_category = "the source states its category" if category != said.category else _by_name(said)
    return f"{_stated(run, op, scope)}; category: {of_category}"


def _stated(run: Run, op: str | None, scope: ScopeRole | None) -> str:
    """Return what other than its name gave a kernel its op."""
    if scope and op == scope.op:
        return scope.basis
    if inferred := run.meta.get("inferred"):
        return f"its op is inferred from its place: {inferred}"
    if captured := run.meta.get("captured"):
        return f"its op is told by the capture of its graph: {captured}"
    return "the source states its op"


def _by_name(said: Classified) -> str:
    """Return which rule read a name, and what of the name it read."""
    if said.rule_id is None:
        return "no rule reads its name"
    if said.rule_id.startswith(OWN):
        return said.basis
    part, _, fits = said.basis.partition(": ")
    return f"rule {said.rule_id}, by {_PARTS.get(part, part)}: {fits}"
