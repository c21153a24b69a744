"""Callers and callees of a scope or kernel, wherever its name occurs in the tree."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis.tree import compute_tree_table
from tracetui.look import Look

ITSELF, CALLER, CALLEE = RELATIONS = ("itself", "caller", "callee")
_SUMS: Final = ("inclusive_ns", "self_ns", "count")
_CALL_COLUMNS: Final = ("relation", "scope", "inclusive_ns", "self_ns", "share", "count", "path")


def compute_calls_table(run: Run, look: Look, scope: str) -> pl.DataFrame:
    """Return a row for a scope, one per path that calls it, and one per scope that it calls.

    Recursive calls count once. A caller's times are those of the scope when called from there; shares refer
    to the scope. Empty if there is no such scope.
    """
    return compute_calls_in_tree(compute_tree_table(run, replace(look, focus=())), scope)


def compute_calls_in_tree(tree: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Return the same table from a scope tree."""
    name = scope.rpartition(PATH_SEPARATOR)[2] if (tree["path"] == scope).any() else scope
    parts = pl.col("path").str.split(PATH_SEPARATOR)
    above = parts.list.slice(0, parts.list.len() - 1)
    is_recursive = above.list.contains(pl.lit(name))
    parent = above.list.join(PATH_SEPARATOR)
    tree = tree.with_columns(leaf=parts.list.last(), parent=parent, is_recursive=is_recursive)
    nodes = tree.filter(pl.col("leaf") == name, ~pl.col("is_recursive"))
    itself = nodes.select(pl.col(_SUMS).sum(), path=pl.col("path").first())
    callers = nodes.filter(pl.col("depth") > 0).group_by(path="parent").agg(pl.col(_SUMS).sum())
    called = tree.filter(pl.col("parent").is_in(nodes["path"].implode()), pl.col("depth") > 0)
    callees = called.group_by("leaf").agg(pl.col(_SUMS).sum(), pl.col("path").first())
    total = int(itself["inclusive_ns"][0] or 0)
    tables = [
        itself.filter(pl.lit(nodes.height > 0)).with_columns(scope=pl.lit(name), relation=pl.lit(ITSELF)),
        callers.with_columns(scope=pl.col("path"), relation=pl.lit(CALLER)),
        callees.rename({"leaf": "scope"}).with_columns(relation=pl.lit(CALLEE)),
    ]
    share = pl.col("inclusive_ns") / total if total else pl.lit(None, pl.Float64)
    tables = [t.with_columns(share=share).select(_CALL_COLUMNS) for t in tables]
    return pl.concat(t.sort("inclusive_ns", "scope", descending=[True, False]) for t in tables)
