"""Infer layers, roles and steps from repetition for a run whose source reports none."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.classify.columns_from_layers import describe_inference, fill_inferred_layers
from capture.import_log import Log
from capture.run import Run, drop_empty_columns

_STEP_NAME: Final = "forward pass"  # of an inferred step
STEPS_NOTICE: Final = "inferred_steps"  # id of the notice, and key of the run's meta
_STEPS_MESSAGE: Final = "steps are inferred from repeated passes: the file does not mark steps"
_MIN_PASSES: Final = 2  # fewer are not taken as steps


def add_inferred_structure(run: Run, log: Log) -> Run:
    """Return the run with the layers, roles and steps that its source lacks, inferred from repetition."""
    run = _add_inferred_layers(run, log)
    message = next((n.message for n in log.freeze().notices if n.id == STEPS_NOTICE), None)
    return replace(run, meta={**run.meta, STEPS_NOTICE: message}) if message else run


def _add_inferred_layers(run: Run, log: Log) -> Run:
    events, evidence = fill_inferred_layers(run.events)
    if evidence is None:
        return run
    message = describe_inference(evidence, "roles") if run.has("layer") else describe_inference(evidence)
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
