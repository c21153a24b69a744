"""Cycle statistics: how each function and metric changed between two runs, with tests and suspicion."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.look import Look
from tracetui.views import Answer, View, _category

COLUMNS = (
    "function", "metric", "device", "level_a", "level_b", "suspicion", "beta_a", "beta_b", "d_beta", "z_beta",
    "p_beta", "u_beta", "mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu", "p_adjusted", "n_a",
    "n_b", "unit", "time_a_ns", "time_b_ns", "cycles_a", "cycles_b", "constant", "moved",
)  # fmt: skip


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per function, metric and device: from a report, else computed from both runs."""
    from tracetui.compare import cycle_statistics

    reported = cycle_statistics.read_published_statistics(runs)
    table = reported if reported is not None else cycle_statistics.compute_cycle_statistics(runs[0], runs[1])
    if table is None:
        return Answer(pl.DataFrame(), ("the runs share neither cycle metrics nor sampled counters",))
    note = "as reported" if reported is not None else "recomputed from the cycles of both runs"
    rows = _format_levels(table).select([c for c in COLUMNS if c in table.columns])
    scales = "β is a share of the cycle in %, μ the metric while the function ran"
    notes = [f"{rows.height} rows, {note}; {scales}"]
    lone = cycle_statistics.find_one_sided_counters(runs[0], runs[1])
    notes += [f"excluded, sampled in one run only: {', '.join(lone)}"] if lone else []
    notes += [r for run in runs[:1] for r in run.meta.get("comparable", {}).get("reasons", ())]
    ranked, key = _sort_by_magnitude(rows, look.terms.ranking), ("function", "metric", "device")
    table_style = _category.build_style_by_column(runs[:2], "name", "function")
    return Answer(ranked, tuple(notes), key, table_style=table_style)


def _format_levels(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with its levels as text, each in its unit."""
    columns = []
    for c in ("level_a", "level_b"):
        values = table.select(c, "unit").iter_rows()
        texts = [None if v is None else units.format_quantity(v, unit) for v, unit in values]
        columns.append(pl.Series(c, texts, dtype=pl.String))
    return table.with_columns(columns)


def _sort_by_magnitude(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sort by falling magnitude; p-values ascending."""
    rising = by.startswith(("p_", "u_"))
    values = pl.col(by).fill_nan(None)
    order = values if rising else values.abs()
    return rows.sort(order, descending=not rising, nulls_last=True, maintain_order=True)


VIEW = View(
    "cycles",
    "Cycle statistics",
    answer,
    run_count=2,
    columns=("function", "metric", "level_a", "level_b", "p_adjusted", "suspicion", "d_beta", "mu_a", "mu_b"),
)
