"""Cycle statistics: how each function and metric moved between two runs, with tests and suspicion."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.look import Look
from tracetui.views import Answer, View, _category

COLUMNS = (
    "function",
    "metric",
    "device",
    "level_a",
    "level_b",
    "suspicion",
    "beta_a",
    "beta_b",
    "d_beta",
    "z_beta",
    "p_beta",
    "u_beta",
    "mu_a",
    "mu_b",
    "d_mu",
    "z_mu",
    "z_log_mu",
    "p_mu",
    "u_mu",
    "p_adjusted",
    "n_a",
    "n_b",
    "unit",
    "time_a_ns",
    "time_b_ns",
    "cycles_a",
    "cycles_b",
    "constant",
    "moved",
)


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a function, metric and device: stated by a report, else computed from both runs."""
    from tracetui.analysis.compare.cycles import cycle_statistics, lone_counters, published

    stated = published(runs)
    table = stated if stated is not None else cycle_statistics(runs[0], runs[1])
    if table is None:
        return Answer(
            pl.DataFrame(), ("neither cycles with metrics nor sampled counters stand in both runs",)
        )
    note = "as the report states them" if stated is not None else "recomputed from the cycles of both runs"
    rows = _written(table).select([c for c in COLUMNS if c in table.columns])
    notes = [
        f"{rows.height} rows, {note}; β is a share of the cycle in %, μ the metric while the function ran"
    ]
    lone = lone_counters(runs[0], runs[1])
    notes += [f"sampled in one run alone, and so left out: {', '.join(lone)}"] if lone else []
    notes += [r for run in runs[:1] for r in run.meta.get("comparable", {}).get("reasons", ())]
    ranked, key = _ranked(rows, look.terms.ranking), ("function", "metric", "device")
    return Answer(ranked, tuple(notes), key, dress=_category.by(runs[:2], "name", "function"))


def _written(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with its levels as text, each in its unit."""
    return table.with_columns(
        pl.Series(
            c,
            [None if v is None else units.quantity(v, u) for v, u in table.select(c, "unit").rows()],
            dtype=pl.String,
        )
        for c in ("level_a", "level_b")
    )


def _ranked(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return the rows with the largest magnitude first; for p-values the smallest."""
    rising = by.startswith(("p_", "u_"))
    order = pl.col(by).fill_nan(None)
    return rows.sort(
        order if rising else order.abs(), descending=not rising, nulls_last=True, maintain_order=True
    )


VIEW = View(
    "cycles",
    "Cycle statistics",
    answer,
    runs=2,
    columns=("function", "metric", "level_a", "level_b", "p_adjusted", "suspicion", "d_beta", "mu_a", "mu_b"),
)
