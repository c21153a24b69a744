"""Infer layers, roles and steps from repetition for a run whose source reports none."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.classify.columns_from_names import as_categories
from capture.classify.kernel_symbols import find_symbols
from capture.classify.layer_inference import (
    MAX_STREAMS,
    InferenceEvidence,
    InferredLayers,
    KernelSequence,
    find_last_cycles,
    has_repeated_block,
    infer_layers,
)
from capture.classify.layer_roles import map_role_to_op
from capture.classify.name_rules import has_model_position, infer_op_and_category
from capture.dense_lookup import fill_nulls, filter_rows, find_positions, find_rows
from capture.import_log import Log
from capture.run import Run, drop_empty_columns

_STEP_NAME: Final = "forward pass"  # of an inferred step
NO_LAYERS: Final = "no_layers"  # key of the run's meta: why no layers are inferred
STEPS_NOTICE: Final = "inferred_steps"  # id of the notice, and key of the run's meta
_STEPS_MESSAGE: Final = "steps are inferred from repeated passes: the file does not mark steps"
_MIN_PASSES: Final = 2  # fewer are not taken as steps
MIN_SHARE: Final = 0.5  # of the launches in layers, and of the confidence; nothing is inferred below
MIN_AGREEMENT_SHARE: Final = 0.99  # of the launches with a reported layer, for which the same is inferred
_MIN_LAYERS: Final = 2
_ACTIVATION_OP: Final = "mlp.act"
_TABLE_OP: Final = "embed"
_END_SYMBOLS: Final = "EZ"  # of kernels at the ends of a pass: an embedding, sampling
_END_NAMES: Final = r"\brand|\b(send|recv_?)$"  # random input, and transfers between stages of a pipeline
_NO_STEP: Final = pl.Series([-1])
_TRAINING_PHASES: Final = ("backward", "optimizer")  # training runs its layers forward and backward


def add_inferred_structure(run: Run, log: Log) -> Run:
    """Return the run with the layers, roles and steps that its source lacks, inferred from repetition."""
    run = _add_repeated_passes(_add_inferred_layers(run, log), log)
    message = next((n.message for n in log.freeze().notices if n.id == STEPS_NOTICE), None)
    return replace(run, meta={**run.meta, STEPS_NOTICE: message}) if message else run


def _add_inferred_layers(run: Run, log: Log) -> Run:
    events, evidence, reason = infer_from_repetition(run.events)
    if evidence is None:
        run = replace(run, events=events)
        return replace(run, meta={**run.meta, NO_LAYERS: reason}) if reason and not run.has("layer") else run
    words = ("operations", "calls") if "work" in run.meta else ("kernels", "launches")
    message = _describe_inference(evidence, "op names" if run.has("layer") else "layers and op names", *words)
    log.note("inferred_layers", f"{message}; confidence {evidence.confidence:.2f}", count=evidence.layers)
    meta = {**run.meta, "inferred": message}
    if not run.has("step"):
        steps = _build_step_rows(events)
        if steps.is_empty():
            events = events.drop("step")
        else:
            log.note(STEPS_NOTICE, _STEPS_MESSAGE, count=steps.height)
            events = pl.concat([events, steps], how="diagonal")
    return replace(run, events=drop_empty_columns(events).rechunk(), meta=meta, log=log.freeze())


def _add_repeated_passes(run: Run, log: Log) -> Run:
    """Return the run with steps where what its busiest track runs repeats in one order, also in training."""
    if run.has("step") or not all(map(run.has, ("t", "dur", "lens"))):
        return run
    work = run.events.with_row_index("row").filter(_mark_work(run.events)).drop_nulls(["t", "dur"])
    kernels = work.sort("t", maintain_order=True)
    begins = _find_pass_begins(kernels)
    passes = pl.Series(begins.search_sorted(kernels["t"], side="right")).cast(pl.Int64)
    steps = pl.DataFrame({"row": kernels["row"], "step": passes}).filter(pl.col("step") > 0)
    events = run.events.with_row_index("row").join(steps, on="row", how="left", maintain_order="left")
    events = events.drop("row")
    marks = _build_step_rows(events)
    if begins.is_empty() or marks.is_empty():
        return run
    log.note(STEPS_NOTICE, _STEPS_MESSAGE, count=marks.height)
    return replace(run, events=pl.concat([events, marks], how="diagonal").rechunk(), log=log.freeze())


def _find_pass_begins(kernels: pl.DataFrame) -> pl.Series:
    """Find when each pass begins: where names and shapes repeat, else where names do, as contexts grow."""
    if "track" in kernels.columns and kernels.height:
        kernels = kernels.filter(pl.col("track") == kernels["track"].cast(pl.String).mode().min())
    for columns in (["name", "shape"], ["name"]):
        present = [pl.col(c).to_physical() for c in columns if c in kernels.columns]
        codes = kernels.select(pl.struct(present).rank("dense").cast(pl.Int64)).to_series()
        period, count = find_last_cycles(codes.to_numpy())
        if count and _is_whole_pass(kernels.tail(period), codes.tail(period)):
            first = kernels["t"].head(1 if kernels.height >= period * (count + 1) else 0)  # a prompt
            return first.append(kernels["t"].tail(period * count).gather_every(period))
    return kernels["t"].clear()


def _is_whole_pass(cycle: pl.DataFrame, codes: pl.Series) -> bool:
    """Whether kernels that repeat are no layer but a pass: with an end of it, a way back, or some layers."""
    if "phase" in cycle.columns and cycle["phase"].n_unique() > 1:
        return True
    names = cycle["name"].unique().cast(pl.String)
    is_end = names.str.contains(_END_NAMES).any() or {*find_symbols(names.to_list())} & {*_END_SYMBOLS}
    return bool(is_end) or has_repeated_block(codes.to_numpy())


def _build_step_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per pass, from its first kernel to that of the next; none if passes overlap."""
    kernels = events.filter((pl.col("kind") == "kernel") & pl.col("step").is_not_null())
    spans = kernels.group_by("step").agg(pl.col("t").min(), end=(pl.col("t") + pl.col("dur")).max()).sort("t")
    overlap = spans.select((pl.col("t") < pl.col("end").shift(1)).any()).item()
    if spans.height < _MIN_PASSES or overlap:
        return spans.clear()
    until = pl.col("t").shift(-1).fill_null(pl.col("end"))
    words = {"kind": "step", "lens": "wall", "name": _STEP_NAME}
    return spans.select("step", "t", dur=until - pl.col("t")).with_columns(
        pl.lit(word, dtype=pl.Categorical()).alias(column) for column, word in words.items()
    )


def fill_inferred_layers(events: pl.DataFrame) -> tuple[pl.DataFrame, InferenceEvidence | None]:
    """Fill layer and op of kernels by inference; also return the evidence, None if nothing was filled."""
    events, evidence, _ = infer_from_repetition(events)
    return events, evidence


def infer_from_repetition(events: pl.DataFrame) -> tuple[pl.DataFrame, InferenceEvidence | None, str | None]:
    """Fill layer and op of device kernels by inference; also return the evidence, or why there is none.

    The events stay unchanged, with None, if any kernel trains or if an inferred layer contradicts a reported
    one. If too little repeats, only tables of positions are no longer called embeddings, and activations of
    convolutions no feed-forwards. An op is filled if it is missing, if the name alone implied one without a
    position in the model (`copy`), or if the inferred one is finer (`moe` → `moe.router`). Reported layers
    stay. Without reported steps the passes become steps.
    """
    kernels = _select_timed_kernels(events)
    if kernels.is_empty():
        return events, None, None
    inferred = infer_layers(_build_sequence(kernels))
    evidence = inferred.evidence
    if evidence.layers < _MIN_LAYERS or min(evidence.launch_share, evidence.confidence) < MIN_SHARE:
        share = f"layers that repeat hold only {evidence.launch_share:.0%} of the launches"
        events = _clear_activations_of_convolutions(_clear_tables_of_positions(events, kernels), kernels)
        return events, None, (evidence.reason or share) + _describe_cut(evidence)
    if _compute_agreement(kernels, inferred) < MIN_AGREEMENT_SHARE:
        return events, None, "what repeats contradicts the layers that the source reports"
    return _fill_columns(events, kernels, inferred), evidence, None


def _clear_tables_of_positions(events: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the events without the op of embeddings that run beside more than half of the attention."""
    if "op" not in events.columns or not (events["op"] == _TABLE_OP).any():
        return events
    attends = (kernels["category"].cast(pl.String) == "attention").fill_null(value=False)
    rows = kernels.select("row", "name", op=events["op"].gather(kernels["row"]), at=attends.cum_sum())
    tables = rows.filter(pl.col("op").cast(pl.String) == _TABLE_OP)
    is_frequent = pl.col("at").n_unique().over("name") > max(_MIN_LAYERS, attends.sum() / 2)
    frequent = tables.filter(is_frequent)["row"]
    if frequent.is_empty():
        return events
    is_open = pl.int_range(pl.len()).is_in(frequent.implode())
    return events.with_columns(op=pl.when(~is_open).then("op"))


def _clear_activations_of_convolutions(events: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the events without the op of activations behind a convolution: none is of a feed-forward."""
    if "op" not in events.columns:
        return events
    work = pl.col("category").cast(pl.String)
    behind = pl.when(work.is_in(["conv", "matmul", "attention"])).then(work).forward_fill() == "conv"
    rows = kernels.filter(kernels.select(behind.fill_null(value=False)).to_series())["row"]
    is_open = pl.int_range(pl.len()).is_in(rows.implode()) & (pl.col("op").cast(pl.String) == _ACTIVATION_OP)
    return events.with_columns(op=pl.when(~is_open.fill_null(value=False)).then("op"))


def _describe_inference(evidence: InferenceEvidence, what: str, work: str, calls: str) -> str:
    """Describe for the user what was inferred, and from what."""
    share = f"{100 * evidence.launch_share:.0f} % of the {calls}"
    pattern = f"a pattern of {evidence.period} {work} seen {evidence.layers} times"
    doubt = f"; {evidence.doubt}" if evidence.doubt else ""
    return f"{what} are guessed from {pattern} ({share}){_describe_cut(evidence)}{doubt}"


def _describe_cut(evidence: InferenceEvidence) -> str:
    """Describe that not all streams were looked at; empty if they were."""
    if evidence.streams <= MAX_STREAMS:
        return ""
    return f", looked for on the {MAX_STREAMS} busiest of {evidence.streams:,} streams"


def _compute_agreement(kernels: pl.DataFrame, inferred: InferredLayers) -> float:
    """Compute the share of kernels with a reported layer whose inferred layer is the same; 1 without any."""
    if "layer" not in kernels.columns:
        return 1.0
    same = (kernels["layer"] == pl.Series(inferred.layer)).drop_nulls()
    return float(same.sum()) / same.len() if same.len() else 1.0


def _select_timed_kernels(events: pl.DataFrame) -> pl.DataFrame:
    """Select the device's kernels by start time, else the host's; none if any of them trains."""
    if not {"t", "dur", "lens", "category"} <= set(events.columns):
        return events.clear()
    work = _mark_work(events)
    if "phase" in events.columns and any((work & (events["phase"] == p)).any() for p in _TRAINING_PHASES):
        return events.clear()
    columns = [c for c in ("name", "category", "t", "dur", "track", "step", "layer") if c in events.columns]
    for column in (events["t"], events["dur"]):
        work = work & column.is_not_null() if column.null_count() else work
    rows = pl.int_range(events.height, dtype=pl.UInt32, eager=True).alias("row")
    kernels = filter_rows(events[columns].insert_column(0, rows), work)
    return kernels if kernels["t"].is_sorted() else kernels.sort("t", maintain_order=True)


def _mark_work(events: pl.DataFrame) -> pl.Series:
    """Mark the device's kernels, else the host's."""
    is_kernel, lens = events["kind"] == "kernel", events["lens"]
    work = is_kernel & (lens == "gpu")
    return work if work.any() else is_kernel & (lens == "host")


def _build_sequence(kernels: pl.DataFrame) -> KernelSequence:
    distinct = kernels.group_by("name", maintain_order=True).agg(pl.col("category").drop_nulls().first())
    return KernelSequence(
        name=find_positions(kernels["name"], distinct["name"]).to_numpy(),
        names=distinct["name"].cast(pl.String).to_list(),
        start=kernels["t"].to_numpy(),
        duration=kernels["dur"].to_numpy(),
        categories=distinct["category"].cast(pl.String).to_list(),
        stream=kernels["track"].to_physical().to_numpy() if "track" in kernels.columns else None,
        step=fill_nulls(kernels["step"], _NO_STEP).to_numpy() if "step" in kernels.columns else None,
    )


def _fill_columns(events: pl.DataFrame, kernels: pl.DataFrame, inferred: InferredLayers) -> pl.DataFrame:
    """Fill layer, op and step of the events at the rows of the kernels."""
    ops = as_categories(map(map_role_to_op, inferred.roles))
    by_kernel = pl.DataFrame(
        {
            "layer": _mask_negative_codes(pl.Series(inferred.layer)).cast(pl.Int32),
            "step": _mask_negative_codes(pl.Series(inferred.pass_index)) + 1,
            "op": ops.gather(_mask_negative_codes(pl.Series(inferred.role))),
            "is_outside": pl.Series(inferred.kind < 0).set(pl.Series(inferred.pass_index < 0), None),
            "general_op": _infer_general_ops(kernels["name"]),
            "is_after_product": (kernels["category"] == "matmul").fill_null(value=False),
        }
    ).with_columns(pl.col("is_after_product").cum_max().over("step"))
    guesses = _scatter_rows(by_kernel, kernels["row"], events.height)
    if "step" in events.columns:
        guesses = guesses.drop("step")
    elif "op" in events.columns:
        events = events.with_columns(guesses["step"])
    if "path" in events.columns:
        guesses = guesses.with_columns(is_outside=pl.when(events["path"].is_null()).then("is_outside"))
    if "layer" in events.columns:
        is_open = events["path"].is_null() if "path" in events.columns else events["layer"].is_null()
        guesses = guesses.with_columns(layer=pl.coalesce(events["layer"], pl.when(is_open).then("layer")))
    if "op" not in events.columns:
        return events.with_columns(guesses.drop("general_op", "is_outside", "is_after_product"))
    return events.with_columns(guesses["layer"], _refine_ops(events["op"], guesses))


def _refine_ops(reported: pl.Series, guesses: pl.DataFrame) -> pl.Series:
    """Replace reported ops that are missing, general, or coarser than the inferred ones.

    An activation outside the layers of its pass, as of a head, is no feed-forward as its name suggests,
    a table of positions inside a layer, or after a product of the pass, is no embedding, and an argmax inside
    a layer samples no token.
    """
    op, text = pl.col("op"), pl.col("reported").cast(pl.String)
    is_finer = op.cast(pl.String).str.starts_with(pl.concat_str(text, pl.lit(".")))
    is_finer |= (text == pl.col("general_op").cast(pl.String)) & op.is_not_null()
    is_inside = ~pl.col("is_outside")
    is_elsewhere = (
        (pl.col("is_outside") & (text == _ACTIVATION_OP))
        | ((is_inside | pl.col("is_after_product")) & (text == _TABLE_OP))
        | (is_inside & (text == "sample"))
    )
    refined = (
        pl.when(is_finer)
        .then("op")
        .when(~is_elsewhere.fill_null(value=False))
        .then(pl.coalesce("reported", "op"))
        .when(text == "sample")
        .then("op")
    )
    return guesses.with_columns(reported=reported).select(refined.alias("op"))["op"]


def _scatter_rows(by_kernel: pl.DataFrame, rows: pl.Series, height: int) -> pl.DataFrame:
    """Scatter values of some rows into a frame of `height` rows, null elsewhere."""
    if rows.len() == height and rows.is_sorted():
        return by_kernel
    indices = find_rows(rows, pl.int_range(height, dtype=pl.UInt32, eager=True), keep="last")
    return by_kernel.select(pl.all().gather(indices))


def _infer_general_ops(names: pl.Series) -> pl.Series:
    """Infer from each name an op without a position in the model, such as `copy`; null for other ops."""
    distinct = names.unique(maintain_order=True)
    words = distinct.cast(pl.String)
    ops = (None if has_model_position(name) else infer_op_and_category(name)[0] for name in words)
    return as_categories(ops)[find_positions(names, distinct)]


def _mask_negative_codes(codes: pl.Series) -> pl.Series:
    return pl.select(pl.when(codes >= 0).then(codes))[:, 0]
