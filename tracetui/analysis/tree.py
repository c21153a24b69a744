"""The scope tree: inclusive and self time of every scope, from stated paths or from nesting in time."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from capture.native.schema import LENSES, PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look

_LEAVES: Final = {"path": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(), "span_ns": pl.Int64()}


def tree_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a scope, parents first, siblings by falling time.

    A scope that was itself measured takes what it measured; any other takes the sum of what is in it. A span
    of a device that has kernels only covers them: its own time is no work and is added to nothing.
    """
    leaves = _by_path(run, look) if stated(run) else _by_time(run, look)
    nodes = _with_parents(leaves)
    return _ordered(nodes)


def stated(run: Run) -> bool:
    """Tell whether timed rows say in which scope they stand."""
    if not run.has("path"):
        return False
    timed = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]))
    return bool(timed.select(pl.col("path").is_not_null().any()).collect().item())


def lens_of_scopes(run: Run, look: Look, column: str) -> str | None:
    """Return the lens of the tree: the one in use, or the first whose rows know the column; None without."""
    if look.lens is not None or not run.has("lens"):
        return select.lens_of(run, look)
    rows = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col(column).is_not_null())
    names = set(rows.select(pl.col("lens").unique()).collect()["lens"].cast(pl.String))
    used = select.lens_of(run, look)
    return used if used in names else next((x for x in LENSES if x in names), None)


def _covered(run: Run, lens: str | None) -> bool:
    """Tell whether spans of the lens are covers of kernels: annotations and waits on a device's streams."""
    return lens == "gpu" and lens in select.lenses(run)


def _timed(run: Run, look: Look, kind: str, lens: str | None) -> pl.LazyFrame:
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    if run.has("lens"):
        rows = rows.filter(pl.col("lens").eq_missing(pl.lit(lens, pl.String)))
    return select.narrowed(rows, run, look)


def _by_path(run: Run, look: Look) -> pl.DataFrame:
    """Return path with name → launches, leaf time and span time."""
    parts, lens = [], lens_of_scopes(run, look, "path")
    kinds = [("kernel", "own_ns"), *([] if _covered(run, lens) else [("span", "span_ns")])]
    for kind, column in kinds:
        rows = _timed(run, look, kind, lens)
        count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
        parts.append(
            rows.group_by("path", "name").agg(
                count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias(column)
            )
        )
    sums = pl.concat([p.collect() for p in parts], how="diagonal")
    path, name = (pl.col(c).cast(pl.String) for c in ("path", "name"))
    ends = path.str.split(PATH_SEPARATOR).list.last() == name
    whole = pl.when(path.is_null()).then(name).when(ends).then(path).otherwise(path + PATH_SEPARATOR + name)
    return _summed(sums.with_columns(path=whole))


def _by_time(run: Run, look: Look) -> pl.DataFrame:
    """Return the same for rows without paths: a row is inside the innermost span of its track around it."""
    from tracetui.analysis.nesting import path_sums  # numpy loads with the first question

    keys, lens = select.have(run, ("track",)), lens_of_scopes(run, look, "t")
    kernel = (pl.col("kind") == "kernel").alias("kernel")
    parts = [_timed(run, look, kind, lens) for kind in ("span", "kernel")]
    rows = pl.concat([p.select(*keys, "t", "dur", "name", kernel) for p in parts]).collect()
    loose = rows.filter(pl.col("t").is_null() & pl.col("kernel"))
    sums = [
        path_sums(rows.filter(pl.col("t").is_not_null())),
        loose.group_by(path=pl.col("name").cast(pl.String)).agg(
            count=pl.len().cast(pl.Int64), own_ns=pl.col("dur").sum(), work=pl.lit(True)
        ),
    ]
    table = pl.concat(sums, how="diagonal")
    if _covered(run, lens):
        used = {scope for path in table.filter("work")["path"] for scope in _around(path)}
        table = table.filter(pl.col("path").is_in(used)).with_columns(span_ns=pl.lit(0, pl.Int64))
    return _summed(table)


def _summed(sums: pl.DataFrame) -> pl.DataFrame:
    return (
        pl.concat(
            [pl.DataFrame(schema=_LEAVES), sums.select(c for c in _LEAVES if c in sums.columns)],
            how="diagonal",
        )
        .group_by("path")
        .agg(pl.col("count", "own_ns", "span_ns").sum())
    )


def _with_parents(leaves: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Return every scope on the way to a leaf: count, own, span and the sum of its children."""
    nodes: dict[str, dict[str, int]] = {}
    for path, count, own, span in leaves.select("path", "count", "own_ns", "span_ns").iter_rows():
        nodes[path] = {"count": count, "own": own or 0, "span": span or 0, "inside": 0}
        for scope in _around(path):
            nodes.setdefault(scope, {"count": 0, "own": 0, "span": 0, "inside": 0})
    for path in sorted(nodes, key=_depth, reverse=True):
        parent = _parent(path)
        if parent is not None:
            nodes[parent]["inside"] += _inclusive(nodes[path])
    return nodes


def _inclusive(node: dict[str, int]) -> int:
    return max(node["span"], node["own"] + node["inside"])


def _around(path: str) -> Iterator[str]:
    """Yield a path and those of all scopes around it, from the inside."""
    scope: str | None = path
    while scope is not None:
        yield scope
        scope = _parent(scope)


def _parent(path: str) -> str | None:
    """Return the path of the scope around this one; None at the root. A name may be empty."""
    above, separator, _ = path.rpartition(PATH_SEPARATOR)
    return above if separator else None


def _depth(path: str) -> int:
    return path.count(PATH_SEPARATOR)


def _ordered(nodes: dict[str, dict[str, int]]) -> pl.DataFrame:
    """Return the nodes depth first, the largest sibling first."""
    children: dict[str | None, list[str]] = {}
    for path in nodes:
        children.setdefault(_parent(path), []).append(path)
    for siblings in children.values():
        siblings.sort(key=lambda p: (-_inclusive(nodes[p]), p), reverse=True)
    waiting, order = list(children.get(None, [])), []
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])
    total = sum(_inclusive(nodes[p]) for p in children.get(None, []))
    return pl.DataFrame(
        {
            "scope": ["  " * _depth(p) + p.rpartition(PATH_SEPARATOR)[2] for p in order],
            "inclusive_ns": [_inclusive(nodes[p]) for p in order],
            "self_ns": [_inclusive(nodes[p]) - nodes[p]["inside"] for p in order],
            "share": [_inclusive(nodes[p]) / total if total else None for p in order],
            "count": [nodes[p]["count"] for p in order],
            "depth": [_depth(p) for p in order],
            "path": order,
        },
        schema={
            "scope": pl.String,
            "inclusive_ns": pl.Int64,
            "self_ns": pl.Int64,
            "share": pl.Float64,
            "count": pl.Int64,
            "depth": pl.Int64,
            "path": pl.String,
        },
    )
