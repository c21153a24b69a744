"""The scope tree: inclusive and self time of every scope, from stated paths or from nesting in time."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from capture.native.schema import LENSES, PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.places import PLACE, path_of, with_places
from tracetui.look import Look

_LEAVES: Final = {"path": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(), "span_ns": pl.Int64()}


def tree_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a scope, parents first, siblings by falling time.

    A scope that was itself measured takes what it measured; any other takes the sum of what is in it. A span
    of a device that has kernels only covers them: its own time is no work and is added to nothing.
    """
    leaves = _by_time(run, look) if by_time(run, look) else _by_path(run, look)
    nodes = _with_parents(leaves)
    return _ordered(nodes)


def stated(run: Run) -> bool:
    """Tell whether timed rows say in which scope they stand."""
    if not run.has("path"):
        return False
    timed = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]))
    return bool(timed.select(pl.col("path").is_not_null().any()).collect().item())


def lens_of_tree(run: Run, look: Look) -> str | None:
    """Return the lens of the tree: the one in use, or the first whose rows tell their scope; None without."""
    column = "path" if stated(run) else "t"
    if look.lens is not None or not run.has("lens") or not run.has(column):
        return select.lens_of(run, look)
    rows = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col(column).is_not_null())
    names = set(rows.select(pl.col("lens").unique()).collect()["lens"].cast(pl.String))
    used = select.lens_of(run, look)
    return used if used in names else next((x for x in LENSES if x in names), None)


def has_free_kernels(run: Run, lens: str | None) -> bool:
    """Tell whether some kernel of the lens states no path."""
    rows = _timed(run, Look(), "kernel", lens).filter(_without_path(run))
    return not rows.head(1).collect().is_empty()


def by_time(run: Run, look: Look) -> bool:
    """Tell whether the times of spans say what is in them: no paths are stated, and spans have starts."""
    if stated(run) or not select.on_timeline(run, ("span",)):
        return False
    spans = _timed(run, look, "span", lens_of_tree(run, look)).filter(pl.col("t").is_not_null())
    return not spans.head(1).collect().is_empty()


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
    lens = lens_of_tree(run, look)
    key = [*select.have(run, ("path",)), *PLACE, "name"]
    kernels = with_places(run, _timed(run, look, "kernel", lens), _without_path(run))
    parts = [kernels.group_by(key).agg(_count(run), pl.col("dur").sum().alias("own_ns")).collect()]
    if not _covered(run, lens):
        spans = _timed(run, look, "span", lens).group_by(*select.have(run, ("path",)), "name")
        parts.append(spans.agg(_count(run), pl.col("dur").sum().alias("span_ns")).collect())
    sums = pl.concat(parts, how="diagonal")
    path = pl.col("path").cast(pl.String) if run.has("path") else pl.lit(None, pl.String)
    return _summed(sums.with_columns(path=path_of(path)))


def _count(run: Run) -> pl.Expr:
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    return count.cast(pl.Int64).alias("count")


def _without_path(run: Run) -> pl.Expr:
    return pl.col("path").is_null() if run.has("path") else pl.lit(True)


def _by_time(run: Run, look: Look) -> pl.DataFrame:
    """Return the same for rows without paths: a row is inside the innermost span of its track around it."""
    from tracetui.analysis.nesting import path_sums  # numpy loads with the first question

    keys, lens = (*select.have(run, ("track",)), "t", "dur", "name"), lens_of_tree(run, look)
    spans = _timed(run, look, "span", lens).select(*keys, kernel=pl.lit(False))
    kernels = with_places(run, _timed(run, look, "kernel", lens), pl.lit(True))
    kernels = kernels.select(*keys, *PLACE, kernel=pl.lit(True))
    rows = pl.concat([spans, kernels], how="diagonal").collect()
    started = pl.col("t").is_not_null()
    loose = rows.filter(~started & pl.col("kernel")).group_by(*PLACE, "name").agg(
        count=pl.len().cast(pl.Int64), own_ns=pl.col("dur").sum(), work=pl.lit(True)
    )  # fmt: skip
    loose = loose.with_columns(path=path_of(pl.lit(None, pl.String)))
    table = pl.concat([path_sums(rows.filter(started), PLACE), loose], how="diagonal")
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
    """Return every scope on the way to a leaf: count, own, span and the sum of its children.

    One that was itself not counted stands for what is in it.
    """
    nodes: dict[str, dict[str, int]] = {}
    for path, count, own, span in leaves.select("path", "count", "own_ns", "span_ns").iter_rows():
        nodes[path] = {"count": count, "own": own or 0, "span": span or 0, "inside": 0, "within": 0}
        for scope in _around(path):
            nodes.setdefault(scope, {"count": 0, "own": 0, "span": 0, "inside": 0, "within": 0})
    for path in sorted(nodes, key=_depth, reverse=True):
        node, parent = nodes[path], _parent(path)
        node["count"] = node["count"] or node["within"]
        if parent is not None:
            nodes[parent]["inside"] += _inclusive(node)
            nodes[parent]["within"] += node["count"]
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
