"""The summary against sums worked out in plain lines."""

from collections import defaultdict

import polars as pl

from capture.load_runs import load
from tests.conftest import document
from tests.tracetui.runs import decode, made
from tracetui.analysis.frames import selection
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.analysis.summary import compute_summary_table, describe_metadata
from tracetui.look import Look
from tracetui.views import ask, load_view


def test_time_by_category_is_the_sum_of_its_kernels() -> None:
    run = decode(steps=3)
    expected: dict[str, int] = defaultdict(int)
    for row in run.events.filter(pl.col("kind") == "kernel").iter_rows(named=True):
        expected[row["category"]] += row["dur"]
    table = compute_summary_table(run, Look()).filter(pl.col("part") == "category")
    assert dict(table.select("name", "total_ns").iter_rows()) == expected


def test_a_list_of_the_longest_kernels_has_no_shares() -> None:
    """Matrix products are 54.3 % of the pass, as the report prints; of the kernels it lists they are more."""
    run = next(r for r in load(document("seed 4")) if r.name == "2.7B_ctx1024")
    rows = compute_summary_table(run, Look())
    assert rows.filter(part="category")["share"].to_list() == [None, None]
    assert rows.filter(part="category")["total_ns"].to_list() == [238_651_200, 86_412_200]
    (stated,) = rows.filter(part="run", name="stated shares")["text"]
    assert stated == "matmul 54.3% of the forward pass, matmul 54.1% of a training step"
    assert compute_kernel_table(run, Look())["share"].null_count() == 5
    assert any("lists only the longest kernels" in note for note in selection.note_selection(run, Look()))


def test_a_rate_that_is_stated_in_words_is_shown_as_these() -> None:
    run = made([{"name": "a", "dur": 1}], decode_tokens_per_s="about 20")
    assert [actual for actual in describe_metadata(run.meta).values() if "20" in actual] == ["about 20"]


def test_many_devices_are_added_up() -> None:
    kernels = [
        {"kind": "kernel", "name": "k", "t": t, "dur": 10, "track": f"gpu{device}/stream7", "lens": "gpu"}
        for device in range(8)
        for t in (0, 30)
    ]
    rows = ask(load_view("summary"), [made(kernels)], Look()).rows
    facts = dict(rows.filter(pl.col("part") == "run").select("name", "text").iter_rows())
    assert facts["8 devices busy"] == "50.0% of 320 ns in all"
