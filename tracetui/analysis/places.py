"""Where kernels stand that no scope holds: in which kind of step, which kind of layer, which op."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select, steps
from tracetui.analysis.growth import stretches

PLACE: Final = (
    "step_kind",
    "layer_kind",
    "word",
    "line",
)  # columns, from the outermost scope to the innermost
OUTSIDE: Final = "outside of the steps"
_LONGEST: Final = 24  # characters that the numbers of layers may take


def placed(run: Run) -> bool:
    """Tell whether kernels without scopes can be placed: the source states layers, or they were inferred."""
    return run.has("layer")


def with_places(run: Run, rows: pl.LazyFrame, free: pl.Expr) -> pl.LazyFrame:
    """Return rows with the columns of PLACE: step, layer and op for those that are `free` of scopes and know
    their step or their layer.

    The line that launched a row is for those that a scope holds, or that nothing else places: of a graph
    that is replayed it is the same for all.
    """
    if not placed(run):
        line = pl.col("line") if run.has("line") else pl.lit(None, pl.Categorical()).alias("line")
        none = [pl.lit(None, pl.String).alias(c) for c in PLACE[:2]]
        return rows.with_columns(*none, line, word=pl.lit(None, pl.Categorical()))
    ops = select.have(run, ("op", "category"))
    word = pl.coalesce(*ops) if ops else pl.lit(None, pl.Categorical())
    rows = rows.join(_layers(run).lazy(), on="layer", how="left")
    kinds = _steps(run)
    if kinds.is_empty():
        rows = rows.with_columns(step_kind=pl.lit(None, pl.Categorical()))
    else:
        rows = rows.join(kinds.lazy(), on="step", how="left", nulls_equal=True)
    line = pl.col("line") if run.has("line") else pl.lit(None, pl.Categorical())
    free = free & pl.any_horizontal(pl.col("step_kind", "layer_kind").is_not_null())
    around = {"step_kind": pl.col("step_kind"), "layer_kind": pl.col("layer_kind"), "word": word}
    return rows.with_columns(
        **{c: pl.when(free).then(e) for c, e in around.items()}, line=pl.when(~free).then(line)
    )


def path_of(path: pl.Expr) -> pl.Expr:
    """Return the path of a row below its place, of a table with the columns of PLACE and `name`.

    A path that ends with the name is whole.
    """
    name = pl.col("name").cast(pl.String)
    around = [pl.col(c).cast(pl.String) for c in PLACE]
    parts: Sequence[pl.Expr] = [path, *(pl.when(c != name).then(c) for c in around), name]
    below = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
    whole = path.str.split(PATH_SEPARATOR).list.last() == name
    return pl.when(whole).then(path).otherwise(below)


@select.once
def _steps(run: Run) -> pl.DataFrame:
    """Return the kind of each step: its phase and how many sequences it worked on; and of no step."""
    marks = steps.marks(run)
    phase, batch = pl.col("phase").fill_null("step"), pl.col("batch").cast(pl.String)
    name = pl.when(pl.col("batch").is_null()).then(phase).otherwise(phase + pl.lit(" · batch ") + batch)
    table = marks.select("step", step_kind=name.cast(pl.Categorical()))
    if table.is_empty():
        return table
    return pl.concat([table, pl.DataFrame({"step": [None], "step_kind": [OUTSIDE]}, schema=table.schema)])


@select.once
def _layers(run: Run) -> pl.DataFrame:
    """Return the kind of each layer, called by their numbers: those in which the same ops ran are of one."""
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("layer").is_not_null())
    key = select.have(run, ("op",))
    pairs = rows.select("layer", *key).unique().collect().cast(dict.fromkeys(key, pl.String))
    ops = pairs.drop_nulls().sort("layer", *key).group_by("layer", maintain_order=True)
    told = ops.agg(ops=pl.col("op").str.join(" ") if key else pl.lit(""))
    table = pairs.select("layer").unique().join(told, on="layer", how="left").sort("layer")
    alike = table.group_by(pl.col("ops").fill_null(""), maintain_order=True).agg("layer")
    names = [_numbered(layers) for layers in alike["layer"]]
    kinds = alike.with_columns(layer_kind=pl.Series(names, dtype=pl.String).cast(pl.Categorical()))
    return kinds.explode("layer").select("layer", "layer_kind")


def _numbered(layers: pl.Series) -> str:
    """Return what layers of one kind are called: layer 3, layers 0–35; of many stretches how many."""
    if layers.len() == 1:
        return f"layer {layers[0]}"
    text = stretches(layers)
    return f"layers {text}" if len(text) <= _LONGEST else f"{layers.len()} layers, {text.partition(',')[0]} …"
