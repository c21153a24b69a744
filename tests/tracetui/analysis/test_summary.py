"""The summary against sums worked out in plain lines."""

from collections import defaultdict

import polars as pl

from tests.tracetui.runs import decode
from tracetui.look import Look


def test_time_by_category_is_the_sum_of_its_kernels() -> None:
    run = decode(steps=3)
    expected: dict[str, int] = defaultdict(int)
    for row in run.events.filter(pl.col("kind") == "kernel").iter_rows(named=True):
        expected[row["category"]] += row["dur"]
    from tracetui.analysis.summary import summary_table

    table = summary_table(run, Look()).filter(pl.col("part") == "category")
    assert dict(table.select("name", "total_ns").iter_rows()) == expected
