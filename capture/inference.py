"""Runs whose source tells neither layers nor steps: both from what repeats, and marked as inferred."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.classify.inferred import fill_from_blocks, sentence
from capture.importlog import Log
from capture.run import Run, tidy

_NAME: Final = "forward pass"  # how a step that was inferred is named
STEPS: Final = "inferred_steps"  # the notice that says so, and the key of a run's meta
_SAID: Final = "steps are inferred from the repetition of the whole pass: nothing in this file marks a step"
_LEAST: Final = 2  # passes that make steps


def with_inferred(run: Run, log: Log) -> Run:
    """Return the run with layers, roles and steps from the block that repeats, where it tells none."""
    run = _with_layers(run, log)
    steps = next((n.message for n in log.freeze().notices if n.id == STEPS), None)
    return replace(run, meta={**run.meta, STEPS: steps}) if steps else run


def _with_layers(run: Run, log: Log) -> Run:
    events, evidence = fill_from_blocks(run.events, captured="captured" in run.meta)
    if evidence is None:
        return run
    said = sentence(evidence, "roles") if run.has("layer") else sentence(evidence)
    log.note("inferred_layers", f"{said}; confidence {evidence.confidence:.2f}", count=evidence.layers)
    meta = {**run.meta, "inferred": said}
    if not run.has("step"):
        steps = _steps(events)
        if steps.is_empty():
            events = events.drop("step")
        else:
            log.note(STEPS, _SAID, count=steps.height)
            events = pl.concat([events, steps], how="diagonal")
    return replace(run, events=tidy(events).rechunk(), meta=meta, log=log.freeze())


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each pass, from its first kernel to that of the next; none where passes overlap."""
    kernels = events.filter((pl.col("kind") == "kernel") & pl.col("step").is_not_null())
    spans = kernels.group_by("step").agg(pl.col("t").min(), end=(pl.col("t") + pl.col("dur")).max()).sort("t")
    overlap = spans.select((pl.col("t") < pl.col("end").shift(1)).any()).item()
    if spans.height < _LEAST or overlap:
        return spans.clear()
    until = pl.col("t").shift(-1).fill_null(pl.col("end"))
    words = {"kind": "step", "lens": "wall", "name": _NAME}
    return spans.select("step", "t", dur=until - pl.col("t")).with_columns(
        pl.lit(word, dtype=pl.Categorical()).alias(column) for column, word in words.items()
    )
