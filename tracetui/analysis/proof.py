"""The evidence behind each row of a diff: its samples on both sides, brought together and judged."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import evidence
from tracetui.analysis.align import Alignment, align
from tracetui.analysis.evidence import FEWEST, Evidence, Floats
from tracetui.analysis.select import timed
from tracetui.look import Look

MOST_INSTANCES: Final = 512  # of one row, where instances are the samples

Names = tuple[list[str], list[str]]  # of one match: its rows on either side

_COLUMNS: Final = (
    "median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns", "p", "p_adjusted", "cliff",
)  # fmt: skip


def prove(
    a: Run, b: Run, look: Look, rows: pl.DataFrame, names: Sequence[Names]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Medians, interval, tests and verdict of each row, and the words that say how they were found."""
    columns: dict[str, Any] = {c: np.full(rows.height, np.nan) for c in _COLUMNS}
    columns |= {"n_a": np.zeros(rows.height, int), "n_b": np.zeros(rows.height, int)}
    verdict = ["new" if not x else "gone" if not y else "~" for x, y in names]
    how: list[str] = []
    for phase in rows["phase"].unique(maintain_order=True):
        members = [i for i, (x, y) in enumerate(names) if x and y and rows["phase"][i] == phase]
        found, words = _of_phase(a, b, look, phase, [names[i] for i in members])
        how.append(f"{phase or 'all rows'}: {words}")
        if found is not None:
            _write(columns, verdict, members, found, look.terms.floor)
    frame = pl.DataFrame(columns).with_columns(pl.col(c).fill_nan(None) for c in _COLUMNS)
    return frame.with_columns(pl.Series("verdict", verdict, pl.String)), tuple(how)


def of_phase(run: Run, phase: str | None) -> Run:
    """The run's rows of one phase; rows that name none are a phase of their own."""
    if not run.has("phase"):
        return run
    kept = run.events.filter(pl.col("phase").eq_missing(pl.lit(phase)))
    return Run(run.name, run.meta, kept, run.log)


def phase_look(look: Look, phase: str | None) -> Look:
    return replace(look, phase=phase, per="total", sort=None, limit=None)


def _write(
    columns: dict[str, Any], verdict: list[str], members: list[int], e: Evidence, floor: float
) -> None:
    values = (e.median_a, e.median_b, e.delta, e.low, e.high, e.p, e.p_adjusted, e.cliff, e.n_a, e.n_b)
    for name, found in zip((*_COLUMNS, "n_a", "n_b"), values, strict=True):
        columns[name][members] = found
    matters = floor * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
    for i, word in zip(members, evidence.verdicts(e, matters), strict=True):
        verdict[i] = word


def _of_phase(
    a: Run, b: Run, look: Look, phase: str | None, names: Sequence[Names]
) -> tuple[Evidence | None, str]:
    """Steps are the samples where both runs have enough of them, else instances, else there are none."""
    if not names:
        return None, "no row stands on both sides"
    pairs = align(a, b, phase, look.terms.align)
    if pairs.pairs.height >= FEWEST:
        left = per_step(a, look, phase, pairs, "a", [x for x, _ in names])
        right = per_step(b, look, phase, pairs, "b", [y for _, y in names])
        return evidence.paired(left, right), _words(pairs)
    if _has_instances(a) and _has_instances(b):
        left_rows = instances(a, look, phase, [x for x, _ in names])
        right_rows = instances(b, look, phase, [y for _, y in names])
        words = "launches of one run each are the samples, unpaired; they share one moment and one clock"
        return evidence.ragged(left_rows, right_rows), words
    return None, "no spread in this source; totals and means only"


def _words(pairs: Alignment) -> str:
    warm = (
        f"; {pairs.warm_a} and {pairs.warm_b} warm-up steps left out" if pairs.warm_a or pairs.warm_b else ""
    )
    return (
        f"{pairs.pairs.height} {pairs.how} paired, per token{warm}; "
        "intervals from a block bootstrap over the steps of one run each"
    )


def _has_instances(run: Run) -> bool:
    return run.has("dur") and not (run.has("count") and (run.events["count"] > 1).any())


def per_step(
    run: Run, look: Look, phase: str | None, pairs: Alignment, side: str, names: Sequence[Sequence[str]]
) -> Floats:
    """Rows × aligned steps, in ns per token; a row that is absent in a step took nothing there."""
    picked = pairs.pairs.select(step=f"step_{side}", tokens=f"tokens_{side}")
    sums = (
        _named(run, look, phase)
        .group_by("name", "step")
        .agg(pl.col("dur").sum())
        .join(picked.with_row_index("column").lazy(), on="step")
        .collect()
    )
    kept = sums.with_columns(row=_places(sums["name"], names)).drop_nulls("row")
    out = np.zeros((len(names), picked.height))
    np.add.at(out, (kept["row"].to_numpy(), kept["column"].to_numpy()), kept["dur"].to_numpy())
    return np.asarray(out / picked["tokens"].to_numpy())


def instances(run: Run, look: Look, phase: str | None, names: Sequence[Sequence[str]]) -> list[Floats]:
    """Of each row the durations of its launches, evenly thinned where they are very many."""
    rows = _named(run, look, phase).select("name", "dur").collect()
    placed = rows.with_columns(row=_places(rows["name"], names)).drop_nulls("row")
    grouped = {k[0]: g["dur"].to_numpy().astype(float) for k, g in placed.group_by("row")}
    return [_thinned(np.sort(grouped.get(i, np.empty(0)))) for i in range(len(names))]


def _thinned(values: Floats) -> Floats:
    if len(values) <= MOST_INSTANCES:
        return values
    places = np.linspace(0, len(values) - 1, MOST_INSTANCES).round().astype(int)
    return np.asarray(values[places])


def _named(run: Run, look: Look, phase: str | None) -> pl.LazyFrame:
    """Timed rows of a phase with the name they are compared by."""
    group = look.group or "name"
    label = pl.col(group).cast(pl.String) if run.has(group) else pl.lit(None, pl.String)
    return timed(of_phase(run, phase), phase_look(look, phase)).with_columns(
        label.fill_null("–").alias("name")
    )


def _places(labels: pl.Series, names: Sequence[Sequence[str]]) -> pl.Series:
    place = {name: i for i, group in enumerate(names) for name in group}
    return labels.replace_strict(place, default=None, return_dtype=pl.Int64)
