"""Rows that were seen in some steps only, because watching costs time, and what they stand for.

A recorder that watches single kernels in short windows tells in which steps it did, and times every step in
some cheaper way. What was seen keeps its distribution. Phase by phase, totals are scaled by the time of all
steps over that of the watched ones, counts by their numbers.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.native.schema import WINDOW
from capture.run import Run
from tracetui import units
from tracetui.analysis import select, series, steps
from tracetui.look import Look

COLUMNS: Final = ("scale", "measured_ns")  # of a table that was scaled

_SCALED: Final = ("scaled_ns", "scaled_count")


@select.once
def watched(run: Run) -> dict[str, pl.DataFrame]:
    """Return lens → one row a step: its phase, how many steps it is, how many were watched, its time."""
    if not (run.has("op") and run.has("step") and run.has("lens")):
        return {}
    places = ((run.events["op"] == WINDOW) & (run.events["kind"] == "span")).arg_true()
    windows = run.events[places, select.have(run, ("lens", "step", "count", "track"))]
    if windows.is_empty():
        return {}
    return {str(lens): _watched(run, rows) for (lens,), rows in windows.group_by("lens") if lens is not None}


def _watched(run: Run, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of one lens; of several ranks the one that watched most counts."""
    counts = windows.with_columns(_n=select.standing_for(run)).group_by("step", *select.have(run, ["track"]))
    most = counts.agg(pl.col("_n").sum()).group_by("step").agg(pl.col("_n").max().alias("watched"))
    marks = steps.marks(run).select("step", "phase", "steps", "t", "wall_ns")
    table = marks.join(most, on="step", how="left").with_columns(
        pl.min_horizontal(pl.col("watched").fill_null(0), "steps").cast(pl.Int64)
    )
    table = table.join(_spans(run, str(windows["lens"][0])), on="step", how="left")
    return table.with_columns(per=_per_step(table)).drop("wall_ns", "spans_ns")


def _spans(run: Run, lens: str) -> pl.DataFrame:
    """Return step → what the spans of the lens took, which are timed in every step."""
    if not run.has("dur"):
        return pl.DataFrame(schema={"step": pl.Int64, "spans_ns": pl.Int64})
    rows = run.events.filter(
        (pl.col("kind") == "span") & (pl.col("lens") == lens) & pl.col("dur").is_not_null()
    )
    return rows.group_by("step").agg(pl.col("dur").sum().alias("spans_ns"))


def _per_step(table: pl.DataFrame) -> pl.Expr:
    """Return the time of one step, by the best of what is known of all. Watching makes a step longer than it
    is: the time of a watched one lies between those of its neighbours.
    """
    timed = next((c for c in ("spans_ns", "wall_ns") if not table[c].null_count()), None)
    per = (pl.col(timed) if timed else pl.col("steps")) / pl.col("steps")
    alone = pl.when(pl.col("watched") < pl.col("steps")).then(per)
    return pl.coalesce(alone.interpolate().forward_fill().backward_fill().over("phase"), per)


def coverage(run: Run, look: Look) -> pl.DataFrame | None:
    """Return phase, watched, steps, scale, one row a phase; None where everything was seen."""
    table = watched(run).get(select.lens_of(run, look) or "")
    if table is None or look.group == "step" or "step" in look.focused:
        return None
    if look.window is not None:
        table = table.filter(pl.col("step").is_between(*look.window))
    seen, whole = (pl.col(c) * pl.col("per") for c in ("watched", "steps"))
    phases = table.group_by("phase", maintain_order=True).agg(
        pl.col("watched").sum(),
        pl.col("steps").sum(),
        scale=pl.when(seen.sum() > 0).then(whole.sum() / seen.sum()),
    )
    return phases if (phases["watched"] < phases["steps"]).any() else None


def weighed(run: Run, look: Look, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with what each stands for; as they are where everything was seen."""
    phases = coverage(run, look)
    if phases is None:
        return rows
    table = watched(run)[select.lens_of(run, look) or ""]
    often = pl.when(pl.col("watched") > 0).then(pl.col("steps") / pl.col("watched"))
    factors = phases.select("phase", "scale", often=often)
    scales = table.join(factors, on="phase", nulls_equal=True).select("step", "scale", "often")
    time, count = (pl.col(c).fill_null(1.0) for c in ("scale", "often"))
    return rows.join(scales.lazy(), on="step", how="left").with_columns(
        scaled_ns=pl.col("dur") * time, scaled_count=select.standing_for(run) * count
    )


def sums(run: Run, look: Look) -> list[pl.Expr]:
    """Return the expressions that add up weighed rows, to be scaled afterwards."""
    return [] if coverage(run, look) is None else [pl.col(c).sum() for c in _SCALED]


def scaled(table: pl.DataFrame) -> pl.DataFrame:
    """Return totals and counts of all steps, beside what was measured and the factor between."""
    if _SCALED[0] not in table.columns:
        return table
    scale = pl.when(pl.col("total_ns") > 0).then(pl.col("scaled_ns") / pl.col("total_ns"))
    return table.with_columns(
        measured_ns=pl.col("total_ns"),
        scale=scale,
        total_ns=pl.col("scaled_ns").round().cast(pl.Int64),
        count=pl.col("scaled_count").round().cast(pl.Int64),
    ).drop(_SCALED)


def whole(run: Run, look: Look, rows: pl.LazyFrame) -> int:
    """Return the time of all rows, scaled where they stand for more."""
    rows, column = weighed(run, look, rows), "dur" if coverage(run, look) is None else _SCALED[0]
    return int(rows.select(pl.col(column).sum().round()).collect().item())


def stood_for(run: Run, look: Look, numbers: pl.Series) -> pl.Series:
    """Return the steps that rows of these steps stand for."""
    phases = coverage(run, look)
    if phases is None:
        return numbers
    table = watched(run)[select.lens_of(run, look) or ""]
    table = table if look.window is None else table.filter(pl.col("step").is_between(*look.window))
    seen = table.filter(pl.col("step").is_in(numbers.implode()))["phase"].unique()
    return table.join(seen.to_frame(), on="phase", nulls_equal=True)["step"]


def stretched(run: Run, look: Look, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with time and count of what they stand for; unchanged where all was seen."""
    if coverage(run, look) is None:
        return rows
    time = pl.col("scaled_ns").round().cast(pl.Int64)
    return weighed(run, look, rows).with_columns(dur=time, count=pl.col("scaled_count"))


def seen(run: Run, look: Look, numbers: pl.Series) -> pl.Series:
    """Tell of each step whether it was watched: elsewhere nothing was seen, which is not nothing."""
    table = watched(run).get(select.lens_of(run, look) or "")
    if table is None:
        return pl.repeat(True, numbers.len(), eager=True)
    complete = table.filter(pl.col("watched") == pl.col("steps"))["step"]
    return numbers.is_in(complete.implode())


def share(run: Run, look: Look) -> float:
    """Return the share of the steps of watched phases in which single rows were seen."""
    phases = coverage(run, look)
    if phases is None:
        return 1.0
    watched_phases = phases.filter(pl.col("watched") > 0)
    return int(watched_phases["watched"].sum()) / max(1, int(watched_phases["steps"].sum()))


def scope(run: Run, look: Look, *, scaled: bool = False) -> list[str]:
    """Return notes on the lens of the numbers, and on the steps in which rows were seen."""
    return [*select.notes(run, look), *notes(run, look, scaled=scaled)]


def notes(run: Run, look: Look, *, scaled: bool) -> list[str]:
    """Return in how many steps the rows were seen, and what that means for the numbers."""
    phases = coverage(run, look)
    if phases is None:
        return []
    if look.window is not None and look.window[0] == look.window[1]:
        return [_unseen(run, look, look.window[0])]
    lens = select.lens_of(run, look)
    seen = phases.filter(pl.col("watched") > 0)
    words = ", ".join(f"{w:,} of {n:,} {p or ''}".strip() + " steps" for p, w, n in _counts(seen))
    means = (
        "totals, counts and shares are scaled to all of them, the rest is as it was seen"
        if scaled
        else "what stands here is what was seen, not scaled"
    )
    lines = [f"{lens} rows were seen in {words or 'no step'}{_aside(run, look)}; {means}"]
    missed = [str(p or "other") for p, w, _ in _counts(phases) if not w]
    return lines + ([f"no window in {', '.join(missed)}: its {lens} rows are not known"] if missed else [])


def _counts(phases: pl.DataFrame) -> Sequence[tuple[str | None, int, int]]:
    return phases.select("phase", "watched", "steps").rows()


def _unseen(run: Run, look: Look, step: int) -> str:
    seen = watched(run)[select.lens_of(run, look) or ""].filter(pl.col("watched") > 0)["step"]
    near = (seen.filter(seen < step).max(), seen.filter(seen > step).min())
    others = " and ".join(f"{n:,}" for n in near if isinstance(n, int))
    return f"step {step:,} was not watched" + (f"; the nearest that were: {others}" if others else "")


def _aside(run: Run, look: Look) -> str:
    """Return how long ago the last window was, and what the capture takes; empty where unknown."""
    table = watched(run)[select.lens_of(run, look) or ""]
    last = table.filter(pl.col("watched") > 0)["t"].max()
    end = table["t"].max()
    parts = []
    if isinstance(last, int) and isinstance(end, int) and end > last:
        parts.append(f"the last {units.duration(end - last)} before the end")
    if run.has("value"):
        cost = series.counter_table(run, Look(filter="^capture cost$"))["mean"].mean()
        parts += [f"capture cost {cost:.1f}%"] if isinstance(cost, float) else []
    return f" ({', '.join(parts)})" if parts else ""
