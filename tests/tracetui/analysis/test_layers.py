"""Layers: sums, times per token, and the odd one out."""

import polars as pl

from tests.tracetui.runs import decode
from tracetui.analysis.layers import compute_layer_table
from tracetui.look import Look


def test_the_odd_layer_is_found() -> None:
    table = compute_layer_table(decode(steps=5, layers=8, odd=3), Look(), "op")
    odd = table.filter("odd").select("layer", pl.col("op").cast(pl.String)).rows()
    assert odd == [(3, "mlp.down")]
    (cell,) = table.filter((pl.col("layer") == 3) & (pl.col("op") == "mlp.down")).to_dicts()
    assert cell["total_ns"] == 6 * 800_000 and cell["count"] == 6
    assert cell["per_token_ns"] == 6 * 800_000 // (10 + 5 * 2)


def test_layers_by_step_divide_by_the_tokens_of_the_step() -> None:
    table = compute_layer_table(decode(steps=2, layers=4), Look(filter="ffn"), "step")
    assert table.filter(pl.col("layer") == 1)["per_token_ns"].to_list() == [40_000, 200_000, 200_000]
