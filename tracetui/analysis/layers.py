"""Time per layer and op (or step), and layers unlike the others."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.dense_lookup import find_distinct
from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.frames import line_fit
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.selection import build_totals, extract_stack, select_timed, with_group
from tracetui.analysis.roofline import build_work_sums, with_compute_time, with_rates
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

STACKS: Final = pl.Enum(["encoder", "decoder"])  # of a model of two, whose layers share their numbers
_MAX_RARE_LAYERS: Final = 2  # that run the same kernels and are no kind of their own


def compute_layer_table(run: Run, look: Look, column: str) -> pl.DataFrame:
    """Return one row per layer and op: time, time per token, rates, and deviation from the other layers.

    Kernels of no step are left out if others have steps: they are of a pass that was recorded in part.
    Where paths name an encoder and a decoder, `stack` says of which a layer is.
    """
    rows = with_compute_time(_select_rows(run, look, column), run)
    sums = rows.group_by("stack", "layer", column).agg(*build_totals(run), *build_work_sums(run))
    table = with_rates(sums.collect(), run)
    tokens = _sum_tokens(run, rows, column)
    per_token = pl.lit(None, pl.Int64)
    if tokens is not None:
        table = table.join(tokens, on=column, how="left", nulls_equal=True)
        per_token = (pl.col("total_ns") / pl.col("tokens")).round().cast(pl.Int64)
    deviations = _compute_deviations(run, look, column)
    table = table.join(deviations, on=["stack", "layer", column], how="left", nulls_equal=True)
    table = table.with_columns(pl.col("median_ns").round().cast(pl.Int64))
    table = table.with_columns(pl.col("odd").fill_null(value=False), per_token_ns=per_token)
    table = table.sort("stack", "layer", column, nulls_last=True)
    rates = [c for c in roofline.RATE_COLUMNS if c in table.columns]
    stack = [] if table["stack"].null_count() == table.height else ["stack"]
    return table.select(
        *stack, "layer", column, "count", "total_ns", "per_token_ns", *rates, "median_ns", "deviation", "odd"
    )


def _sum_tokens(run: Run, rows: pl.LazyFrame, column: str) -> pl.DataFrame | None:
    """Return for each value of `column` the tokens of the steps of its rows; None if a step lacks tokens."""
    if not run.has("step") or not run.has("tokens"):
        return None
    step_tokens = build_step_facts(run).select("tokens", _n="step").lazy()
    pairs = rows.select(column, _n="step").drop_nulls("_n").unique().join(step_tokens, on="_n", how="left")
    tokens = pl.col("tokens")
    sums = pairs.group_by(column).agg(tokens.sum(), unknown=tokens.null_count()).collect()
    if sums.is_empty() or sums["unknown"].sum() or not sums["tokens"].min():
        return None
    return sums.drop("unknown")


def _compute_deviations(run: Run, look: Look, column: str) -> pl.DataFrame:
    """Return the `deviation` of each layer from the median layer in robust SDs, and whether it is `odd`.

    `median_ns` is the total of the median layer. The others are of a typical step, the median one, since one
    slow launch makes no odd layer. All layers are compared, also if a filter shows only some of them, those
    that run the same kernels with each other.
    """
    all_layers = tuple(term for term in look.where if term.column != "layer")
    focus = tuple(pair for pair in look.focus if pair[0] != "layer")
    rows = _select_rows(run, replace(look, where=all_layers, focus=focus), column)
    by = ["stack", "layer", column]
    by_step = [*by, "step"] if run.has("step") and column != "step" else by
    in_steps = group_by_packed_key(rows, by_step, (pl.col("dur").sum(),))
    typical = in_steps.group_by(by).agg(typical_ns=pl.col("dur").median(), total_ns=pl.col("dur").sum())
    everything = _select_rows(run, Look(lens=look.lens, phase=look.phase, window=look.window), column)
    typical = typical.join(_find_layer_kinds(everything), on=["stack", "layer"], how="left", nulls_equal=True)
    value = pl.col("typical_ns")
    median = value.median().over("stack", column, "kind")
    off = value - median
    spread = off.abs().median().over("stack", column, "kind") * line_fit.MAD_TO_SD
    is_far = off.abs() > line_fit.OUTLIER_DEVIATIONS * spread
    is_far &= off.abs() > line_fit.OUTLIER_MIN_SHARE * median
    has_enough = pl.len().over("stack", column, "kind") >= line_fit.MIN_POINTS
    deviation = pl.when(has_enough & (spread > 0)).then(off / spread)
    of_kind = pl.col("total_ns").median().over("stack", column, "kind")
    return typical.select(*by, median_ns=of_kind, deviation=deviation, odd=is_far & has_enough)


def _find_layer_kinds(rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the `kind` of each layer: equal where kernels are; of one or two, the kind most alike.

    A kernel of one layer alone says nothing: names may state the layer (`ffn_down:L7`).
    """
    by = ["stack", "layer"]
    names = group_by_packed_key(rows, [*by, "name"]).with_columns(pl.col("name").to_physical())
    names = names.sort("name").with_columns(is_common=pl.len().over("stack", "name") > 1)
    common = pl.col("name").filter("is_common")
    kinds = names.group_by(by).agg(common, kind=common.hash().sum())
    kinds = kinds.with_columns(size=pl.len().over("kind"))
    large = kinds.filter(pl.col("size") > _MAX_RARE_LAYERS).unique("kind").explode("name")
    rare = kinds.filter(pl.col("size") <= _MAX_RARE_LAYERS).explode("name")
    pairs = rare.join(
        large.select("stack", "name", of="kind", of_size="size"), on=["stack", "name"], nulls_equal=True
    )
    alike = pairs.group_by(*by, "of", "of_size").len().sort("len", "of_size", "of", descending=True)
    alike = alike.unique(by, keep="first", maintain_order=True).select(*by, "of")
    kinds = kinds.join(alike, on=by, how="left", nulls_equal=True)
    return kinds.select(*by, kind=pl.coalesce("of", "kind"))


def find_odd_layers(run: Run, phase: str | None) -> frozenset[tuple[int, str]]:
    """Return the pairs of layer and op of a phase that are unlike the others in a typical step."""
    if not run.has("layer"):
        return frozenset()
    table = _compute_deviations(run, Look(phase=phase), "op").filter("odd")
    return frozenset(table.select(pl.col("layer").cast(pl.Int64), pl.col("op").cast(pl.String)).rows())


def _select_rows(run: Run, look: Look, column: str) -> pl.LazyFrame:
    """Return the timed rows in layers, with their `stack`.

    Those of no step are left out if their stack has steps: an encoder may be called before the first one.
    """
    rows = with_group(run, select_timed(run, look), column).filter(pl.col("layer").is_not_null())
    is_in_step = pl.col("step").is_not_null()
    has_steps = is_in_step.any()
    stack = pl.lit(None, STACKS)
    if run.has("path") and _has_two_stacks(run):
        stack = extract_stack(pl.col("path")).cast(STACKS)
        has_steps = has_steps.over("stack")
    rows = rows.with_columns(stack=stack)
    if not run.has("step"):
        return rows
    return rows.filter(is_in_step if column == "step" else is_in_step | ~has_steps)


def _has_two_stacks(run: Run) -> bool:
    paths = find_distinct(run.events["path"]).to_frame("path")
    count = paths.select(extract_stack(pl.col("path")).drop_nulls().n_unique()).item()
    return int(count) == len(STACKS.categories)
