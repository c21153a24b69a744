"""Who calls a scope or a kernel, and what it calls: the tree seen from one name, wherever that stands."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis.tree import tree_table
from tracetui.look import Look

ITSELF, CALLER, CALLEE = RELATIONS = ("itself", "caller", "callee")
_SUMS: Final = ("inclusive_ns", "self_ns", "count")
_SHOWN: Final = ("relation", "scope", "inclusive_ns", "self_ns", "share", "count", "path")


def calls_table(run: Run, look: Look, scope: str) -> pl.DataFrame:
    """Return a row for a scope, one for each path that calls it, and one for each scope that it calls.

    It is meant wherever its name stands; within itself it is counted once. Of a caller, the times are those
    of the scope when it is called from there; shares are of the scope. No rows where there is no such scope.
    """
    return calls_in(tree_table(run, replace(look, focus=())), scope)


def calls_in(tree: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Return the same of a tree."""
    name = scope.rpartition(PATH_SEPARATOR)[2] if (tree["path"] == scope).any() else scope
    parts = pl.col("path").str.split(PATH_SEPARATOR)
    above = parts.list.slice(0, parts.list.len() - 1)
    tree = tree.with_columns(
        own=parts.list.last(),
        around=above.list.join(PATH_SEPARATOR),
        within=above.list.contains(pl.lit(name)),
    )
    nodes = tree.filter(pl.col("own") == name, ~pl.col("within"))
    whole = nodes.select(pl.col(_SUMS).sum(), path=pl.col("path").first())
    callers = nodes.filter(pl.col("depth") > 0).group_by(path="around").agg(pl.col(_SUMS).sum())
    inside = tree.filter(pl.col("around").is_in(nodes["path"].implode()), pl.col("depth") > 0)
    callees = inside.group_by("own").agg(pl.col(_SUMS).sum(), pl.col("path").first())
    total = int(whole["inclusive_ns"][0] or 0)
    tables = [
        whole.filter(pl.lit(nodes.height > 0)).with_columns(scope=pl.lit(name), relation=pl.lit(ITSELF)),
        callers.with_columns(scope=pl.col("path"), relation=pl.lit(CALLER)),
        callees.rename({"own": "scope"}).with_columns(relation=pl.lit(CALLEE)),
    ]
    share = pl.col("inclusive_ns") / total if total else pl.lit(None, pl.Float64)
    rows = [
        t.with_columns(share=share).select(_SHOWN).sort("inclusive_ns", "scope", descending=[True, False])
        for t in tables
    ]
    return pl.concat(rows)
