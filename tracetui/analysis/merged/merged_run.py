"""Build a Run from merged sums, so that single-run views can answer about many files.

A file contributes its steps and its rows, summed by some of their columns; all files together are the rows of
a run, one row per many launches.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.import_log import ImportLog
from capture.run import DTYPES, Run, drop_empty_columns
from tracetui.analysis.frames import selection
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.analysis.time import step_table
from tracetui.look import Look

# of several ranks, the largest counts
_STEP_NUMBERS: Final = ("tokens", "context", "batch", "wall_ns", "steps", "is_requested")
STEP_SHAPES: Final = {
    "steps": FrameShape(("step",), {"phase": "same", **dict.fromkeys(_STEP_NUMBERS, "last")})
}
_EVENT_COLUMNS: Final = {"wall_ns": "dur", "steps": "count"}  # step column → event column

_WORK: Final = {"bytes": "has_bytes", "flops": "has_flops"}  # what is summed → whether a row has any
_WORDS: Final = ("name", "op", "phase", "category", "lens", "shape", "dtype", "line", "track", "path")
_NUMBERS: Final = ("layer", "step", *_WORK.values())
_SUMS: Final = {"count": pl.Int64(), "dur": pl.Int64(), **dict.fromkeys(_WORK, pl.Float64())}
_ROW_SCHEMA: Final = dict.fromkeys(_WORDS, pl.String()) | dict.fromkeys(_NUMBERS, pl.Int64()) | _SUMS
ROW_SHAPES: Final = {"rows": FrameShape((*_WORDS, *_NUMBERS), dict.fromkeys(_SUMS, "sum")), **STEP_SHAPES}


def cast_for_merge(column: str) -> pl.Expr:
    """Cast a column to text or a 64-bit integer, the same in all files, also in those without it."""
    dtype = DTYPES.get(column, pl.String())
    return pl.col(column).cast(pl.Int64 if dtype.is_integer() else pl.String)


def collect_steps(facts: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Collect step facts, perhaps with `is_requested`; no frame if there are no steps."""
    numbers = [c for c in _STEP_NUMBERS if c in facts.columns]
    steps = facts.select(pl.col("step").cast(pl.Int64), "phase", pl.col(numbers).cast(pl.Int64))
    return {"steps": steps} if steps.height else {}


def build_empty_run(merged: PartialResult) -> Run:
    """Build a run without events, with the metadata that all files share."""
    return Run("files", merged.meta, pl.DataFrame(), ImportLog())


def build_merged_run(merged: PartialResult, rows: pl.DataFrame) -> Run:
    """Build a run of these rows and of the steps of all files."""
    frames = [rows]
    if "steps" in merged.frames:
        facts = merged.frames["steps"].rename(_EVENT_COLUMNS).drop("is_requested", strict=False)
        frames.append(facts.with_columns(kind=pl.lit("step")))
    events = pl.concat(frames, how="diagonal_relaxed")
    typed = [pl.col(c).cast(DTYPES[c]) for c in events.columns]
    return Run("files", merged.meta, drop_empty_columns(events.select(typed)), ImportLog())


def sum_run_rows(run: Run, look: Look, by: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Sum the rows of a run that the look selects by these columns, and collect its steps."""
    key = [c for c in dict.fromkeys((*by, "lens", "dtype")) if run.has(c)]
    work = [c for c in _WORK if run.has(c)]
    has_work = [(pl.col(c) > 0).cast(pl.Int64).alias(_WORK[c]) for c in work]
    rows = selection.select_timed(run, look).with_columns(has_work)
    table = rows.group_by(*key, *(_WORK[c] for c in work)).agg(
        selection.launch_count(run).sum().cast(pl.Int64).alias("count"),
        pl.col("dur").sum(),
        *(pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in work),
    )
    sums = table.with_columns([cast_for_merge(c) for c in key]).collect()
    steps = collect_steps(step_table.build_step_facts(run))
    return {"rows": pl.concat([pl.DataFrame(schema=_ROW_SCHEMA), sums], how="diagonal"), **steps}


def build_run_of_sums(merged: PartialResult) -> Run:
    """Build a run from the sums of `sum_run_rows`."""
    rows = merged.frames["rows"].drop(_WORK.values()).with_columns(kind=pl.lit("kernel"))
    return build_merged_run(merged, rows.select(c for c in DTYPES if c in rows.columns))
