"""The scope tree: inclusive and self time of every scope, from stated paths or from nesting in time."""

from typing import Final

import polars as pl

from capture.native.schema import LENSES, PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.places import PLACE, path_of, with_places
from tracetui.look import Look

_LEAVES: Final = {
    "path": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(), "span_ns": pl.Int64(),
    "work": pl.Int64(),
}  # fmt: skip
_SUMS: Final = ("count", "own_ns", "span_ns", "inside", "within", "size")
_PARENT: Final = rf"(?s)^(.*){PATH_SEPARATOR}"  # a name may be empty
_PLACED: Final = {
    "scope": pl.String(), "path": pl.String(), "depth": pl.Int64(), "count": pl.Int64(), "inside": pl.Int64(),
    "inclusive": pl.Int64(),
}  # fmt: skip


def tree_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a scope, parents first, siblings by falling time.

    A scope that was itself measured takes what it measured; any other takes the sum of what is in it. A span
    of a device that has kernels only covers them: its own time is no work and is added to nothing.
    """
    return tree_of(leaves(run, look))


def leaves(run: Run, look: Look) -> pl.DataFrame:
    """Return the paths of a run that were measured, each with its launches, the time of its kernels and of
    its spans; `work` tells of paths that are only covers whether a kernel is among them.
    """
    return _by_time(run, look) if by_time(run, look) else _by_path(run, look)


def tree_of(leaves: pl.DataFrame) -> pl.DataFrame:
    """Return the tree of measured paths; covers without any kernel are left out."""
    used = _scopes_around(leaves.filter(pl.col("work") == 1)["path"])
    kept = leaves.filter(pl.col("work").is_null() | pl.col("path").is_in(used.implode()))
    return _ordered(_levels(kept.drop("work")))


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
        return _summed(table.with_columns(pl.col("work").cast(pl.Int64), span_ns=pl.lit(0, pl.Int64)))
    return _summed(table.drop("work"))


def _summed(sums: pl.DataFrame) -> pl.DataFrame:
    return (
        pl.concat(
            [pl.DataFrame(schema=_LEAVES), sums.select(c for c in _LEAVES if c in sums.columns)],
            how="diagonal",
        )
        .group_by("path")
        .agg(pl.col("count", "own_ns", "span_ns").sum(), pl.col("work").max())
    )


def _levels(leaves: pl.DataFrame) -> list[pl.DataFrame]:
    """Return every scope on the way to a leaf, a table a level, the deepest first: `path`, `parent`, `depth`,
    `scope`, the indented name, `count`, `inside`, the sum of its children, `inclusive`, and `size`, how many
    scopes it is with all in it.

    One that was itself not counted stands for what is in it.
    """
    leaves = leaves.with_columns(depth=pl.col("path").str.count_matches(PATH_SEPARATOR, literal=True))
    deepest = leaves["depth"].max()
    levels: list[pl.DataFrame] = []
    above = leaves.clear().with_columns(**dict.fromkeys(("inside", "within", "size"), pl.lit(0, pl.Int64)))
    for depth in range(deepest if isinstance(deepest, int) else -1, -1, -1):
        own = leaves.filter(pl.col("depth") == depth).drop("depth")
        level = pl.concat([above.select(c for c in above.columns if c != "depth"), own], how="diagonal")
        level = level.group_by("path").agg(pl.col(_SUMS).sum()).with_columns(
            parent=pl.col("path").str.extract(_PARENT) if depth else pl.lit(None, pl.String),
            depth=pl.lit(depth, pl.Int64),
            count=pl.when(pl.col("count") == 0).then("within").otherwise("count"),
            inclusive=pl.max_horizontal("span_ns", pl.col("own_ns") + pl.col("inside")),
            size=pl.col("size") + 1,
        )  # fmt: skip
        name = pl.col("path").str.strip_prefix(pl.col("parent") + PATH_SEPARATOR) if depth else pl.col("path")
        levels.append(level.with_columns(scope=pl.lit("  " * depth) + name))
        above = level.group_by(path="parent").agg(
            inside=pl.col("inclusive").sum(), within=pl.col("count").sum(), size=pl.col("size").sum()
        )
    return levels


def _scopes_around(paths: pl.Series) -> pl.Series:
    """Return paths and those of all scopes around them, each once."""
    found = [paths.drop_nulls().unique()]
    while not found[-1].is_empty():
        found.append(found[-1].str.extract(_PARENT).drop_nulls().unique())
    return pl.concat(found).unique()


def _ordered(levels: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the scopes depth first, the largest sibling first."""
    around = pl.DataFrame({"parent": [None], "base": [-1]}, schema={"parent": pl.String, "base": pl.Int64})
    placed = []
    for level in reversed(levels):
        level = level.join(around, on="parent", nulls_equal=True)
        level = level.sort("base", "inclusive", "path", descending=[False, True, False])
        before = (pl.col("size").cum_sum() - pl.col("size")).over("base")
        level = level.with_columns(at=pl.col("base") + 1 + before)
        around = level.select(parent="path", base="at")
        placed.append(level)
    table = pl.concat(placed).sort("at") if placed else pl.DataFrame(schema=_PLACED)
    roots = pl.col("inclusive").filter(pl.col("depth") == 0).sum()
    total = pl.col("inclusive") * 0 + roots  # a whole column: by one number polars does not quite divide
    return table.with_columns(total=total).select(
        scope="scope",
        inclusive_ns="inclusive",
        self_ns=pl.col("inclusive") - pl.col("inside"),
        share=pl.when(pl.col("total") > 0).then(pl.col("inclusive") / pl.col("total")),
        count="count",
        depth="depth",
        path="path",
    )
