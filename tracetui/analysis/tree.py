"""The scope tree: inclusive and self time of every scope, from stated paths or from nesting in time."""

from typing import Final

import polars as pl

from capture.native.schema import LENSES, PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look

MOST_NESTED: Final = 500_000  # rows that are nested by time; a tree of more is a tree of the first ones

_LEAVES: Final = {"path": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(), "span_ns": pl.Int64()}


def tree_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a scope, parents first, siblings by falling time.

    A scope that was itself measured takes what it measured; any other takes the sum of what is in it.
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


def _timed(run: Run, look: Look, kind: str, lens: str | None) -> pl.LazyFrame:
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    if run.has("lens"):
        rows = rows.filter(pl.col("lens").eq_missing(pl.lit(lens, pl.String)))
    return select.narrowed(rows, run, look)


def _by_path(run: Run, look: Look) -> pl.DataFrame:
    """Return path with name → launches, leaf time and span time."""
    parts, lens = [], lens_of_scopes(run, look, "path")
    for kind, column in (("kernel", "own_ns"), ("span", "span_ns")):
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
    """Return the same for rows without paths: a row is inside another of its track that covers it."""
    keys, lens = select.have(run, ("track",)), lens_of_scopes(run, look, "t")
    parts = [_timed(run, look, k, lens).filter(pl.col("t").is_not_null()) for k in ("span", "kernel")]
    rows = pl.concat([p.select(*keys, "t", "dur", pl.col("name").cast(pl.String), "kind") for p in parts])
    rows = rows.sort(*keys, "t", "dur", descending=[*(False for _ in keys), False, True]).head(MOST_NESTED)
    nodes: dict[str, list[int]] = {}
    stack: list[tuple[int, str]] = []
    track: object = None
    for *key, t, dur, name, kind in rows.collect().iter_rows():
        if key != track:
            track, stack = key, []
        while stack and stack[-1][0] <= t:
            stack.pop()
        path = stack[-1][1] + PATH_SEPARATOR + name if stack else name
        stack.append((t + dur, path))
        sums = nodes.setdefault(path, [0, 0, 0])
        sums[0] += 1
        sums[1 if kind == "kernel" else 2] += dur
    columns = list(zip(*nodes.values(), strict=True)) or [(), (), ()]
    names = ("count", "own_ns", "span_ns")
    return _summed(
        pl.DataFrame({"path": list(nodes), **dict(zip(names, columns, strict=True))}, schema=_LEAVES)
    )


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
        parent = _parent(path)
        while parent is not None:
            nodes.setdefault(parent, {"count": 0, "own": 0, "span": 0, "inside": 0})
            parent = _parent(parent)
    for path in sorted(nodes, key=_depth, reverse=True):
        parent = _parent(path)
        if parent is not None:
            nodes[parent]["inside"] += _inclusive(nodes[path])
    return nodes


def _inclusive(node: dict[str, int]) -> int:
    return max(node["span"], node["own"] + node["inside"])


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
