"""Columns computed of each distinct row once, against the same computed of every row."""

import random

import polars as pl
import pytest

from capture.dense_lookup import evaluate_per_distinct

TOLD = pl.when(pl.col("b") != "").then(pl.lit("gpu") + pl.col("a") + "/" + pl.col("b") + pl.col("c"))


@pytest.mark.parametrize("rows", [0, 1, 500])
@pytest.mark.parametrize("varying", [(), ("a",), ("b", "c"), ("a", "b", "c")])
def test_words_are_those_of_every_row(rows: int, varying: tuple[str, ...]) -> None:
    dice = random.Random(rows)
    words = ["", "1", "2", "Agent 4", "é" * 20]
    columns = {c: [dice.choice(words) if c in varying else "7" for _ in range(rows)] for c in "abc"}
    frame = pl.DataFrame(columns, schema=dict.fromkeys("abc", pl.String))
    actual = evaluate_per_distinct(frame, ("a", "b", "c", "absent"), TOLD)
    assert actual.dtype == pl.Categorical
    assert actual.cast(pl.String).to_list() == frame.select(TOLD).to_series().to_list()


def test_no_row_has_no_word() -> None:
    nothing = pl.DataFrame(schema={"a": pl.String})
    assert evaluate_per_distinct(nothing, ("a",), pl.lit("gpu?")).to_list() == []
