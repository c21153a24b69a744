"""The typical step of a run: where a timeline opens."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import device_time, steps
from tracetui.analysis.steady import steady_state

MARGIN: Final = 50  # parts of the step's time that are shown before and after it: one of so many
_FAR: Final = 2  # times the device's time: a host that takes longer was not in this step alone


def typical_step(run: Run, phase: str | None = None) -> tuple[int, int] | None:
    """Return the first and last ns around the step of median duration; None where no step has a time.

    It is one of the phase asked for, else of the phase that most steps are of; of the steady state, where one
    was found. Where a device was watched,
    its kernels say when a step was: a host may launch long before.
    """
    table = _moments(run)
    if phase is not None:
        table = table.filter(phase=phase)
    if table.is_empty():
        return None
    sizes = table.group_by("phase").agg(count=pl.len(), time=pl.col("dur").sum())
    main = sizes.sort("count", "time", "phase", descending=[True, True, False])["phase"][0]
    of_main = table.filter(pl.col("phase").eq_missing(pl.lit(main, pl.String)))
    state = steady_state(run)
    settled = of_main.filter(pl.col("step").is_between(state.first, state.last)) if state else of_main
    ordered = (settled if settled.height else of_main).sort("dur", "step")
    low, high = ordered[(ordered.height - 1) // 2, ["low", "high"]].row(0)
    margin = (high - low) // MARGIN
    return low - margin, high + margin


def _moments(run: Run) -> pl.DataFrame:
    """Return one row a step with its phase, duration, first and last ns."""
    marks = steps.paced(run).filter(pl.col("steps") == 1)
    table = marks.join(device_time.by_step(run).select("step", "begin", "end"), on="step", how="left")
    host_end = pl.col("t") + pl.col("wall_ns")
    near = (host_end - pl.col("t")) <= _FAR * (pl.col("end") - pl.col("begin"))
    return table.select(
        "step",
        "phase",
        dur=pl.coalesce("took_ns", pl.col("end") - pl.col("begin")),
        low=pl.when(near).then(pl.min_horizontal("t", "begin")).otherwise(pl.coalesce("begin", "t")),
        high=pl.when(near).then(pl.max_horizontal(host_end, "end")).otherwise(pl.coalesce("end", host_end)),
    ).drop_nulls(["low", "high"])
