"""One row entered: its launches, their histogram, its course over steps and layers."""

import polars as pl
import pytest

from capture.import_log import Log
from capture.run import build_run
from tests.tracetui.runs import decode
from tracetui.analysis import detail
from tracetui.look import Look


@pytest.mark.parametrize(
    "values", [[5], [5, 5], [1, 2, 3], list(range(1000)), [1, 10, 100, 1000, 10_000, 100_000]]
)
def test_a_histogram_counts_each_value_once(values: list[int]) -> None:
    bins = detail.compute_histogram(pl.Series(values)).rows()
    assert sum(n for *_, n in bins) == len(values)
    assert bins[0][0] == min(values) and bins[-1][1] == max(values)
    for i, (low, high, n) in enumerate(bins):
        last = i == len(bins) - 1
        assert n == sum(low <= v < high or (last and v == high) for v in values)


def test_detail_of_a_focused_row() -> None:
    run = decode(steps=3, layers=2)
    look = Look(focus=(("op", "mlp.down"),))
    rows = detail.select_launches(run, look)
    assert rows.height == 8 and set(rows["dur_ns"]) == {400_000}
    assert detail.sum_by_layer(run, look)["total_ns"].to_list() == [1_600_000, 1_600_000]
    assert detail.sum_by_step(run, look)["per_token_ns"].to_list() == [80_000, 400_000, 400_000, 400_000]
    assert detail.compute_statistics(run, look)["p95_ns"].to_list() == [400_000]


def test_launches_tell_their_delay_and_their_form() -> None:
    """Two kernels of one form, one of another, one that states nothing; the launch of the last is unknown."""
    events = pl.DataFrame(
        {
            "kind": "kernel", "name": "k", "t": [100, 200, 300, 400], "dur": [10, 20, 70, 5],
            "launch": [40, 130, 299, None],
            "grid": ["4x1x1", "4x1x1", "8x2x1", None], "block": ["128x1x1"] * 3 + [None],
            "registers": [32, 32, 64, None],
        }
    )  # fmt: skip
    rows = detail.select_launches(build_run("r", {}, events, Log()), Look())
    assert rows["delay_ns"].to_list() == [60, 70, 1, None]
    assert detail.group_launch_configs(rows).rows() == [
        ("8x2x1", "128x1x1", 64, 1, 70),
        ("4x1x1", "128x1x1", 32, 2, 30),
    ]
    assert detail.group_launch_configs(rows.drop("grid", "block", "registers")).is_empty()


def test_a_few_launches_far_out_share_the_last_bin() -> None:
    bins = detail.compute_histogram(pl.Series([100 + i % 20 for i in range(1000)] + [700, 1628]))
    assert bins["count"].sum() == 1002 and bins["high_ns"][-1] == 1628
    assert bins["count"].max() < 200 and bins["low_ns"][-1] == 119
    ratios = detail.compute_histogram(pl.Series([5] * 500 + [900]))  # so wide that bins have equal ratios
    assert ratios["high_ns"][0] < 10 and ratios.height == detail.BINS
