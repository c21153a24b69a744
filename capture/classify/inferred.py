"""Frames whose kernels have no layer, filled from the block that repeats; what is stated stays."""

from typing import Final

import polars as pl

from capture.classify.block_roles import op_of
from capture.classify.blocks import Blocks, Evidence, Kernels, infer_blocks
from capture.classify.fill import positions_of
from capture.classify.names import places_its_row, role_of
from capture.classify.positions import rows_of

LEAST: Final = 0.5  # share of launches in layers, and confidence, below which nothing is inferred
AGREED: Final = 0.99  # share of launches that must have the layer which is stated
_FEWEST: Final = 2  # layers
_TRAINING: Final = ("backward", "optimizer")  # phases of a training step, whose layers run both ways


def fill_from_blocks(events: pl.DataFrame) -> tuple[pl.DataFrame, Evidence | None]:
    """Return the events with layer and op of device kernels inferred, and the evidence.

    The events come back as they are, with None, where a part trains, where the block contradicts a layer, or
    where too little repeats. An op is filled where it is open, or where the name alone gave one that is
    no place in a model (`copy`), or refined (`moe` to `moe.router`). Layers that are stated stand, and the
    block must agree with them. Where no step is stated, the passes are numbered as steps.
    """
    kernels = _timed_kernels(events)
    if kernels.is_empty():
        return events, None
    blocks = infer_blocks(_ordered(kernels))
    evidence = blocks.evidence
    if evidence.layers < _FEWEST or min(evidence.launches, evidence.confidence) < LEAST:
        return events, None
    if _agreement(kernels, blocks) < AGREED:
        return events, None
    return _filled(events, kernels, blocks), evidence


def sentence(evidence: Evidence, what: str = "layers and roles") -> str:
    """Return what was inferred and from what, for whoever reads layers and roles."""
    return (
        f"{what} are inferred from the repeating block ({evidence.period} kernels × "
        f"{evidence.layers}, {100 * evidence.launches:.0f} % of the launches)"
    )


def _agreement(kernels: pl.DataFrame, blocks: Blocks) -> float:
    """Return the share of kernels with a stated layer that the block gives the same; 1 where none has one."""
    if "layer" not in kernels.columns:
        return 1.0
    same = (kernels["layer"] == pl.Series(blocks.layer)).drop_nulls()
    return float(same.sum()) / same.len() if same.len() else 1.0


def _timed_kernels(events: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels in order of start, those of the host where no device is recorded.

    None where something trains.
    """
    if not {"t", "dur", "lens", "category"} <= set(events.columns):
        return events.clear()
    kernel = pl.col("kind") == "kernel"
    device = events.select((kernel & (pl.col("lens") == "gpu")).any()).item()
    work = kernel & (pl.col("lens") == ("gpu" if device else "host"))
    if "phase" in events.columns:
        trains = pl.col("phase").is_in(list(_TRAINING))
        if events.select((work & trains).any()).item():
            return events.clear()
    columns = ("name", "category", "t", "dur", "track", "step", "layer")
    kernels = (
        events.lazy()
        .with_row_index("row")
        .filter(work & pl.col("t").is_not_null() & pl.col("dur").is_not_null())
        .select("row", *(c for c in columns if c in events.columns))
        .collect()
    )
    return kernels if kernels["t"].is_sorted() else kernels.sort("t", maintain_order=True)


def _ordered(kernels: pl.DataFrame) -> Kernels:
    """Return the kernels in the form that the inference reads."""
    distinct = kernels.group_by("name", maintain_order=True).agg(pl.col("category").drop_nulls().first())
    categories = distinct["category"].cast(pl.String).to_list()
    names = distinct["name"].cast(pl.String).to_list()
    step = kernels["step"].fill_null(-1).to_numpy() if "step" in kernels.columns else None
    track = kernels["track"].to_physical().to_numpy() if "track" in kernels.columns else None
    name = positions_of(kernels["name"], distinct["name"])
    return Kernels(
        name.to_numpy(), names, kernels["t"].to_numpy(), kernels["dur"].to_numpy(), categories, track, step
    )


def _filled(events: pl.DataFrame, kernels: pl.DataFrame, blocks: Blocks) -> pl.DataFrame:
    """Return the events with the inferred columns put at the rows of the kernels."""
    roles = pl.Series([op_of(role) for role in blocks.roles], dtype=pl.String).cast(pl.Categorical())
    guesses = kernels.select("row").with_columns(
        layer=_or_null(pl.Series(blocks.layer)).cast(pl.Int32),
        step=_or_null(pl.Series(blocks.number)) + 1,
        op=roles.gather(_or_null(pl.Series(blocks.role))),
        general=_general_ops(kernels["name"]),
    )
    spread = _spread(guesses.drop("row"), kernels["row"], events.height)
    if "step" in events.columns:
        spread = spread.drop("step")
    elif "op" in events.columns:
        events = events.with_columns(spread["step"])
    if "layer" in events.columns:
        open_ = events["path"].is_null() if "path" in events.columns else events["layer"].is_null()
        guessed = pl.when(open_).then("layer")
        spread = spread.with_columns(layer=pl.coalesce(events["layer"], guessed))
    if "op" not in events.columns:
        return events.with_columns(spread.drop("general"))
    stated, said = pl.col("op"), pl.col("stated").cast(pl.String)
    finer = stated.cast(pl.String).str.starts_with(pl.concat_str(said, pl.lit(".")))
    finer |= (said == pl.col("general").cast(pl.String)) & stated.is_not_null()
    refined = pl.when(finer).then("op").otherwise(pl.coalesce("stated", "op"))
    op = spread.with_columns(stated=events["op"]).select(refined.alias("op"))["op"]
    return events.with_columns(spread["layer"], op)


def _spread(guesses: pl.DataFrame, rows: pl.Series, height: int) -> pl.DataFrame:
    """Return a frame of some height with what is guessed of some rows at their places, null elsewhere."""
    if rows.len() == height and rows.is_sorted():
        return guesses
    at = rows_of(rows, pl.int_range(height, dtype=pl.UInt32, eager=True), keep="last")
    return guesses.select(pl.all().gather(at))


def _general_ops(names: pl.Series) -> pl.Series:
    """Return for each name the op that it speaks of where that is no place in a model, such as `copy`."""
    distinct = names.unique(maintain_order=True)
    ops = [None if places_its_row(name) else role_of(name)[0] for name in distinct.cast(pl.String)]
    return pl.Series(ops, dtype=pl.String).cast(pl.Categorical()).gather(positions_of(names, distinct))


def _or_null(codes: pl.Series) -> pl.Series:
    return pl.select(pl.when(codes >= 0).then(codes))[:, 0]
