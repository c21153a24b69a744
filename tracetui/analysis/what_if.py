"""What a step would take if an op were faster or slower, by a replay of host and device."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis import gap_causes
from tracetui.analysis.host_waits import joins, waits
from tracetui.analysis.ledger import main_phase
from tracetui.analysis.ledger_rows import timed_rows
from tracetui.analysis.replay import Recorded, recorded, replay
from tracetui.analysis.stray_rows import with_strays
from tracetui.look import Look

MOST_ROWS: Final = 100_000  # that are replayed: of more, the steps in the middle of the run
_CHANGE: Final = re.compile(r"(.+)=(?:([+-]\d+(?:\.\d+)?)\s*%|x(\d+(?:\.\d+)?))")


@dataclass(frozen=True)
class Prediction:
    """What changed durations do to the mean step, in ns: `asked_ns` is taken off the rows, of which
    `saved_ns` comes off the step; `host_ns` is hidden by a host that launches no sooner, the rest by other
    streams.
    """

    change: str
    step_ns: int
    predicted_ns: int
    asked_ns: int
    saved_ns: int
    host_ns: int
    steps: int
    all_steps: int


def change_of(text: str) -> tuple[str, float]:
    """Return the op and the factor of a text like attn.core=-30% or attn.core=x0.5; raise UsageError for
    others.
    """
    match = _CHANGE.fullmatch(text.strip())
    factor = 1.0
    if match is not None:
        factor = 1 + float(match[2]) / 100 if match[2] else float(match[3])
    if match is None or factor < 0:
        raise UsageError(
            f"{text!r} is no change of an op", todo="write it like attn.core=-30% or mlp.down=x0.5"
        )
    return match[1].strip(), factor


def predictions(run: Run, look: Look) -> list[Prediction]:
    """Return what each change of the look alone would do, and of several all together; raise UsageError for
    an op that no row has, and where rows have no start.
    """
    phase = look.phase or main_phase(run)
    rows = timed_rows(run, Look(phase=phase, window=look.window, lens=look.lens)).filter(
        pl.col("t").is_not_null()
    )
    table = with_strays(rows.with_columns(pl.col("step").fill_null(0)).collect(), ["step"])
    table = table.filter(~pl.col("stray"))
    if table.is_empty():
        raise UsageError("no kernel of this run has a start", why="a replay needs to know when each ran")
    kept = _middle(table).sort("t", maintain_order=True)
    was = recorded(kept, waits(run), joins(run), gap_causes.usual_delay(run))
    scales = [(f"{op} {_written(factor)}", _factors(kept, [(op, factor)])) for op, factor in look.what_if]
    if len(scales) > 1:
        scales.append(("all together", _factors(kept, look.what_if)))
    every = table["step"].n_unique()
    return [_predicted(name, kept, was, factors, every) for name, factors in scales]


def _middle(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of as many steps in the middle of the run as a replay takes; at least of one."""
    if rows.height <= MOST_ROWS:
        return rows
    sizes = rows.group_by("step").agg(pl.len(), pl.col("t").min()).sort("t")
    room = max(1, MOST_ROWS * sizes.height // rows.height)
    first = (sizes.height - room) // 2
    return rows.filter(pl.col("step").is_in(sizes["step"].slice(first, room).implode()))


def _factors(rows: pl.DataFrame, changes: Sequence[tuple[str, float]]) -> pl.Series:
    """Return what the duration of each row is multiplied by; raise UsageError for an op that no row has."""
    factor = pl.lit(1.0)
    for op, much in changes:
        fits = (pl.col("op") == op) | pl.col("op").cast(pl.String).str.starts_with(f"{op}.")
        if not rows.select(fits.any()).item():
            sums = rows.group_by("op").agg(pl.col("dur").sum()).sort("dur", "op", descending=[True, False])
            known = ", ".join(str(name) for name in sums["op"].head(8))
            raise UsageError(
                f"no row of these steps has the op {op!r}", todo=f"those that take longest: {known}"
            )
        factor = factor * pl.when(fits).then(much).otherwise(1.0)
    return rows.select(factor=factor)["factor"]


def _predicted(name: str, rows: pl.DataFrame, was: Recorded, factors: pl.Series, every: int) -> Prediction:
    durations = (rows["dur"] * factors).round().cast(pl.Int64)
    count = rows["step"].n_unique()
    before = _steps(rows, list(was.start), list(was.end)) / count
    after = _steps(rows, *replay(was, durations.to_list())) / count
    free = [_steps(rows, *replay(was, d.to_list(), host=False)) / count for d in (rows["dur"], durations)]
    saved = round(before) - round(after)
    asked = round(int((rows["dur"] - durations).sum()) / count)
    hidden = round(free[0] - free[1]) - saved  # what a host that launches in time would save beside
    return Prediction(
        change=name,
        step_ns=round(before),
        predicted_ns=round(after),
        asked_ns=asked,
        saved_ns=saved,
        host_ns=max(0, min(hidden, asked - saved)),
        steps=count,
        all_steps=every,
    )


def _steps(rows: pl.DataFrame, starts: list[int], ends: list[int]) -> int:
    """Return the sum of the steps' windows, from the first start to the last end of each."""
    moved = rows.select("step").with_columns(start=pl.Series(starts), end=pl.Series(ends))
    spans = moved.group_by("step").agg(span=pl.col("end").max() - pl.col("start").min())
    return int(spans["span"].sum())


def _written(factor: float) -> str:
    return f"{100 * (factor - 1):+.4g} %"
