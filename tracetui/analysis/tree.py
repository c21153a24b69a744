"""The scope tree: inclusive and self time of every scope, from reported paths or from nesting in time.

Kernels without a scope are placed by kind of step, kind of layer and op.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from capture.native.schema import LENSES, PATH_SEPARATOR
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import (
    build_totals,
    filter_rows,
    has_start_times,
    list_lenses,
    resolve_lens,
    select_existing,
)
from tracetui.analysis.frames.time_axis import uncovered_ns
from tracetui.analysis.merged.partial_results import MEMBERS, FrameShape
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

PLACEMENT_COLUMNS: Final = ("step_kind", "layer_kind", "op_label", "line")  # from the outermost scope inwards
OUTSIDE_STEPS: Final = "outside of the steps"
_MAX_LAYERS_TEXT: Final = 24  # characters for the numbers of layers

_LEAF_SUMS: Final = ("count", "own_ns", "span_ns")
_LEAF_SCHEMA: Final = {"path": pl.String(), **dict.fromkeys((*_LEAF_SUMS, "has_kernel"), pl.Int64())}
SHAPES: Final = {"leaves": FrameShape(("path",), {**dict.fromkeys(_LEAF_SUMS, "sum"), "has_kernel": "last"})}
_PARENT: Final = rf"(?s)^(.*){PATH_SEPARATOR}"  # a name may be empty
_TREE_SCHEMA: Final = {
    **dict.fromkeys(("scope", "path"), pl.String()),
    **dict.fromkeys(("depth", "count", "inside", "inclusive"), pl.Int64()),
}


def with_placement(run: Run, rows: pl.LazyFrame, is_placed: pl.Expr) -> pl.LazyFrame:
    """Return rows with PLACEMENT_COLUMNS: kinds of step and layer, and op, if known, where `is_placed`.

    All other rows have their launching line; in a replayed graph all kernels share one, so it places none.
    """
    no_label = pl.lit(None, pl.Categorical())
    line = pl.col("line") if run.has("line") else no_label
    if not run.has("layer"):
        no_kinds = [pl.lit(None, pl.String).alias(c) for c in PLACEMENT_COLUMNS[:2]]
        return rows.with_columns(*no_kinds, line=line, op_label=no_label)
    ops = select_existing(run, ("op", "category"))
    rows = rows.join(_find_layer_kinds(run).lazy(), on="layer", how="left")
    step_kinds = _find_step_kinds(run)
    if step_kinds.is_empty():
        rows = rows.with_columns(step_kind=no_label)
    else:
        rows = rows.join(step_kinds.lazy(), on="step", how="left", nulls_equal=True)
    rows = rows.with_columns(op_label=pl.coalesce(*ops) if ops else no_label)
    is_placed = is_placed & pl.any_horizontal(pl.col("step_kind", "layer_kind").is_not_null())
    placement = (pl.when(is_placed).then(c).alias(c) for c in PLACEMENT_COLUMNS[:3])
    return rows.with_columns(*placement, line=pl.when(~is_placed).then(line))


def placed_path(path: pl.Expr) -> pl.Expr:
    """Return the path of a row below its placement, in a table with PLACEMENT_COLUMNS and `name`.

    A path that ends with the name is already complete.
    """
    name = pl.col("name").cast(pl.String)
    placement = [pl.col(c).cast(pl.String) for c in PLACEMENT_COLUMNS]
    parts: Sequence[pl.Expr] = [path, *(pl.when(c != name).then(c) for c in placement), name]
    full_path = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
    is_complete = path.str.split(PATH_SEPARATOR).list.last() == name
    return pl.when(is_complete).then(path).otherwise(full_path)


@cache_per_run
def _find_step_kinds(run: Run) -> pl.DataFrame:
    """Return the kind of each step, its phase and number of sequences; and that of rows in no step."""
    step_facts = build_step_facts(run)
    phase, batch = pl.col("phase").fill_null("step"), pl.col("batch").cast(pl.String)
    name = pl.when(pl.col("batch").is_null()).then(phase).otherwise(phase + pl.lit(" · batch ") + batch)
    table = step_facts.select("step", step_kind=name.cast(pl.Categorical()))
    outside = pl.DataFrame({"step": [None], "step_kind": [OUTSIDE_STEPS]}, schema=table.schema)
    return pl.concat([table, outside]) if table.height else table


@cache_per_run
def _find_layer_kinds(run: Run) -> pl.DataFrame:
    """Return the kind of each layer, named by layer numbers: layers with the same ops are of one kind."""
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("layer").is_not_null())
    key = select_existing(run, ("op",))
    pairs = rows.select("layer", *key).unique().collect().cast(dict.fromkeys(key, pl.String))
    ops = pairs.drop_nulls().sort("layer", *key).group_by("layer", maintain_order=True)
    ops_by_layer = ops.agg(ops=pl.col("op").str.join(" ") if key else pl.lit(""))
    table = pairs.select("layer").unique().join(ops_by_layer, on="layer", how="left").sort("layer")
    layers_by_ops = table.group_by(pl.col("ops").fill_null(""), maintain_order=True).agg("layer")
    names = [_format_layers(layers) for layers in layers_by_ops["layer"]]
    kinds = layers_by_ops.with_columns(layer_kind=pl.Series(names, dtype=pl.String).cast(pl.Categorical()))
    return kinds.explode("layer").select("layer", "layer_kind")


def _format_layers(layers: pl.Series) -> str:
    """Format the layers of one kind: layer 3, layers 0–35; of many ranges their number and the first."""
    if layers.len() == 1:
        return f"layer {layers[0]}"
    text = units.format_ranges(layers)
    if len(text) <= _MAX_LAYERS_TEXT:
        return f"layers {text}"
    return f"{layers.len()} layers, {text.partition(',')[0]} …"


def compute_tree_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per scope, parents first, siblings by falling time.

    A scope that was itself measured has that time; any other has the sum of its contents, also a cover: a
    span on a device that also reports its kernels, such as an annotation or a wait.
    """
    tree = build_tree(compute_leaves(run, look))
    if not (look.filter or look.where):
        return tree
    everything = build_tree(compute_leaves(run, replace(look, filter="", where=())))
    total = pl.lit(everything.filter(depth=0)["inclusive_ns"].sum())
    return tree.with_columns(share=pl.when(total > 0).then(pl.col("inclusive_ns") / total))


def compute_leaves(run: Run, look: Look) -> pl.DataFrame:
    """Return the measured paths of a run with launches, kernel time and span time.

    `has_kernel` is null unless paths may be covers without any kernel.
    """
    return _sum_nested_paths(run, look) if is_nested_by_time(run, look) else _sum_reported_paths(run, look)


def collect_leaves(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the contribution of a run to a tree of many: its measured paths, and the lens of their times."""
    lens = pl.Series("lens", [resolve_tree_lens(run, look)], dtype=pl.String)
    return {"leaves": compute_leaves(run, look), MEMBERS: lens.to_frame()}


def build_tree(leaves: pl.DataFrame) -> pl.DataFrame:
    """Return the tree of measured paths; covers without any kernel are left out."""
    used = _list_enclosing_paths(leaves.filter(pl.col("has_kernel") == 1)["path"])
    with_kernels = leaves.filter(pl.col("has_kernel").is_null() | pl.col("path").is_in(used.implode()))
    return _order_depth_first(_build_levels(with_kernels.drop("has_kernel")))


def has_paths(run: Run) -> bool:
    """True if timed rows report their scope."""
    if not run.has("path"):
        return False
    timed = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]))
    return bool(timed.select(pl.col("path").is_not_null().any()).collect().item())


def resolve_tree_lens(run: Run, look: Look) -> str | None:
    """Return the lens of the tree: the one in use, else the first whose rows report scopes, else None."""
    column = "path" if has_paths(run) else "t"
    if look.lens is not None or not run.has("lens") or not run.has(column):
        return resolve_lens(run, look)
    rows = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col(column).is_not_null())
    names = set(rows.select(pl.col("lens").unique()).collect()["lens"].cast(pl.String))
    used = resolve_lens(run, look)
    return used if used in names else next((x for x in LENSES if x in names), None)


def has_kernels_without_path(run: Run, lens: str | None) -> bool:
    """True if some kernel of the lens reports no path."""
    rows = _select_timed(run, Look(), "kernel", lens).filter(_has_no_path(run))
    return not rows.head(1).collect().is_empty()


def is_nested_by_time(run: Run, look: Look) -> bool:
    """True if nesting in time replaces paths: spans have starts, and no row that counts reports a path.

    On a device any path counts. On a thread only those of spans: a kernel's path names some of the spans
    around it, which the times name all.
    """
    lens = resolve_tree_lens(run, look)
    if not has_start_times(run, ("span",)) or (_has_covers(run, lens) and has_paths(run)):
        return False
    spans = _select_timed(run, look, "span", lens)
    flags = spans.select(has_start=pl.col("t").is_not_null().any(), has_no_path=_has_no_path(run).all())
    return all(flags.collect().row(0))


def _has_covers(run: Run, lens: str | None) -> bool:
    """True if spans of the lens only cover kernels: annotations and waits on a device's streams."""
    return lens == "gpu" and lens in list_lenses(run)


def _select_timed(run: Run, look: Look, kind: str, lens: str | None) -> pl.LazyFrame:
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    if run.has("lens"):
        rows = rows.filter(pl.col("lens").eq_missing(pl.lit(lens, pl.String)))
    return filter_rows(rows, run, look)


def _sum_reported_paths(run: Run, look: Look) -> pl.DataFrame:
    """Return launches, kernel time and span time of each reported path, completed by the name."""
    lens = resolve_tree_lens(run, look)
    count, total_ns = build_totals(run)
    key = [*select_existing(run, ("path",)), "name"]
    kernels = with_placement(run, _select_timed(run, look, "kernel", lens), _has_no_path(run))
    parts = [kernels.group_by(*key, *PLACEMENT_COLUMNS).agg(count, total_ns.alias("own_ns")).collect()]
    if not _has_covers(run, lens):
        spans = _select_timed(run, look, "span", lens).group_by(key)
        parts.append(spans.agg(count, total_ns.alias("span_ns")).collect())
    sums = pl.concat(parts, how="diagonal")
    path = pl.col("path").cast(pl.String) if run.has("path") else pl.lit(None, pl.String)
    return _sum_leaves(sums.with_columns(path=placed_path(path)))


def _has_no_path(run: Run) -> pl.Expr:
    return pl.col("path").is_null() if run.has("path") else pl.lit(True)


def _sum_nested_paths(run: Run, look: Look) -> pl.DataFrame:
    """Return the same for rows without paths: a row is in the innermost span that contains it.

    On a thread, kernels without a start that are named like spans are the self times of these.
    """
    from tracetui.analysis.frames.nesting import sum_by_path  # loads numpy, not needed at startup

    keys, lens = (*select_existing(run, ("track",)), "t", "dur", "name"), resolve_tree_lens(run, look)
    is_thread = not _has_covers(run, lens)
    spans = _select_timed(run, look, "span", lens).select(*keys, kernel=pl.lit(False))
    kernels = with_placement(run, _select_timed(run, look, "kernel", lens), pl.lit(True))
    kernels = kernels.select(*keys, *PLACEMENT_COLUMNS, kernel=pl.lit(True))
    rows = pl.concat([spans, kernels], how="diagonal").collect()
    has_start = pl.col("t").is_not_null()
    is_self_time = pl.col("name").is_in(rows.filter(has_start & ~pl.col("kernel"))["name"].unique().implode())
    without_start = rows.filter(~has_start & pl.col("kernel"), *([~is_self_time] if is_thread else []))
    groups = without_start.group_by(*PLACEMENT_COLUMNS, "name")
    unstarted = groups.agg(count=pl.len().cast(pl.Int64), own_ns=pl.col("dur").sum(), has_kernel=pl.lit(True))
    unstarted = unstarted.with_columns(path=placed_path(pl.lit(None, pl.String)))
    sums = sum_by_path(rows.filter(has_start), PLACEMENT_COLUMNS, is_thread=is_thread)
    table = pl.concat([sums, unstarted], how="diagonal")
    if not is_thread:
        return _sum_leaves(
            table.with_columns(pl.col("has_kernel").cast(pl.Int64), span_ns=pl.lit(0, pl.Int64))
        )
    return _sum_leaves(table.drop("has_kernel"))


def compute_outside_ns(run: Run) -> tuple[int, int]:
    """Return the time of the steps in which their thread is in no row of a tree of threads, and all of it."""
    if not {"step", "t", "track"} <= set(run.events.columns):
        return 0, 0
    rows = run.events.lazy().filter(pl.col("t").is_not_null() & (pl.col("dur") > 0))
    rows = rows.filter(pl.col("kind").is_in(["step", "span", "kernel"]), pl.col("track").is_not_null())
    spans = rows.select("track", "t", "dur", is_step=pl.col("kind") == "step").collect()
    spans = spans.filter(pl.col("is_step").any().over("track"))
    outside_ns = _sum_covered(spans) - _sum_covered(spans.filter(~pl.col("is_step")))
    return outside_ns, _sum_covered(spans.filter("is_step"))


def _sum_covered(spans: pl.DataFrame) -> int:
    """Return the time that the spans of each track cover, in ns."""
    covered_ns = uncovered_ns(pl.col("t") + pl.col("dur"), "track").sum()
    return int(spans.sort("track", "t").select(covered_ns).item())


def _sum_leaves(sums: pl.DataFrame) -> pl.DataFrame:
    sums = sums.select(c for c in _LEAF_SCHEMA if c in sums.columns)
    leaves = pl.concat([pl.DataFrame(schema=_LEAF_SCHEMA), sums], how="diagonal").group_by("path")
    return leaves.agg(pl.col(_LEAF_SUMS).sum(), pl.col("has_kernel").max())


def _build_levels(leaves: pl.DataFrame) -> list[pl.DataFrame]:
    """Return every scope on the way to a leaf, a table per level, the deepest first.

    Columns: `path`, `parent`, `depth`, `scope` (the indented name), `count`, `inside` and `within` (time and
    count of its children), `inclusive`, `size` (scopes in it, with itself). A scope without a count of its
    own has that of its children.
    """
    leaves = leaves.with_columns(depth=pl.col("path").str.count_matches(PATH_SEPARATOR, literal=True))
    deepest = leaves["depth"].max()
    levels: list[pl.DataFrame] = []
    sums_inside = dict.fromkeys(("inside", "within", "size"), pl.Int64)
    above = pl.DataFrame(schema={"path": pl.String, **sums_inside})
    for depth in range(deepest if isinstance(deepest, int) else -1, -1, -1):
        of_level = leaves.filter(pl.col("depth") == depth).drop("depth")
        groups = pl.concat([above, of_level], how="diagonal").group_by("path")
        level = groups.agg(pl.col(*_LEAF_SUMS, *sums_inside).sum()).with_columns(
            parent=pl.col("path").str.extract(_PARENT) if depth else pl.lit(None, pl.String),
            depth=pl.lit(depth, pl.Int64),
            count=pl.when(pl.col("count") == 0).then("within").otherwise("count"),
            inclusive=pl.max_horizontal("span_ns", pl.col("own_ns") + pl.col("inside")),
            size=pl.col("size") + 1,
        )  # fmt: skip
        name = pl.col("path").str.strip_prefix(pl.col("parent") + PATH_SEPARATOR) if depth else pl.col("path")
        levels.append(level.with_columns(scope=pl.lit("  " * depth) + name))
        inside, within, size = (pl.col(c).sum() for c in ("inclusive", "count", "size"))
        above = level.group_by(path="parent").agg(inside=inside, within=within, size=size)
    return levels


def _list_enclosing_paths(paths: pl.Series) -> pl.Series:
    """Return the distinct paths, with all paths around them."""
    levels = [paths.drop_nulls().unique()]
    while not levels[-1].is_empty():
        levels.append(levels[-1].str.extract(_PARENT).drop_nulls().unique())
    return pl.concat(levels).unique()


def _order_depth_first(levels: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the scopes depth first, the largest sibling first."""
    parents = pl.DataFrame({"parent": [None], "base": [-1]}, schema={"parent": pl.String, "base": pl.Int64})
    tables = []
    for level in reversed(levels):
        level = level.join(parents, on="parent", nulls_equal=True)
        level = level.sort("base", "inclusive", "path", descending=[False, True, False])
        siblings_before = (pl.col("size").cum_sum() - pl.col("size")).over("base")
        tables.append(level.with_columns(at=pl.col("base") + 1 + siblings_before))
        parents = tables[-1].select(parent="path", base="at")
    table = pl.concat(tables).sort("at") if tables else pl.DataFrame(schema=_TREE_SCHEMA)
    roots = pl.col("inclusive").filter(pl.col("depth") == 0).sum()
    total = pl.col("inclusive") * 0 + roots  # a column: dividing by a scalar differs in the last bit
    return table.with_columns(total=total).select(
        scope="scope",
        inclusive_ns="inclusive",
        self_ns=pl.col("inclusive") - pl.col("inside"),
        share=pl.when(pl.col("total") > 0).then(pl.col("inclusive") / pl.col("total")),
        count="count",
        depth="depth",
        path="path",
    )
