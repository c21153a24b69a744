"""Steps, layers, shapes, scopes, time, memory, counters and detail against sums worked out in plain lines."""

from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from capture.run import Run
from tests.tracetui.runs import aggregates, decode, made, nested, scopes
from tracetui.analysis import detail, select
from tracetui.analysis.layers import layer_table
from tracetui.analysis.series import counter_table, memory_table
from tracetui.analysis.shapes import shape_table
from tracetui.analysis.steps import step_table
from tracetui.analysis.timeline import CELLS, timeline
from tracetui.analysis.tree import tree_table
from tracetui.look import Look


def test_a_step_is_set_beside_its_wall_time() -> None:
    rows = step_table(decode(steps=3, layers=2), Look()).to_dicts()
    kernels = [2 * (100 + 10 * c + 400 + 20) * 1000 for c in (10, 12, 14, 16)]
    assert [r["total_ns"] for r in rows] == kernels
    assert [r["wall_ns"] for r in rows] == [k + 500_000 for k in kernels]
    assert [r["gap_ns"] for r in rows] == [500_000] * 4
    assert [r["per_token_ns"] for r in rows] == [k // n for k, n in zip(kernels, (10, 2, 2, 2), strict=True)]
    assert rows[1]["tokens_per_s"] == pytest.approx(2e9 / rows[1]["wall_ns"])
    assert [r["phase"] for r in rows] == ["prefill", "decode", "decode", "decode"]


def test_lenses_of_a_step_stand_beside_each_other() -> None:
    run = made(
        [{"name": "a", "dur": d, "lens": x, "step": 1} for d, x in ((5, "gpu"), (9, "wall"), (2, "wait"))]
    )
    (row,) = step_table(run, Look()).to_dicts()
    assert (row["total_ns"], row["wall_total_ns"], row["wait_total_ns"]) == (5, 9, 2)


def test_kernels_that_outlast_the_wall_leave_no_gap() -> None:
    run = made(
        [
            {"kind": "step", "name": "s", "step": 1, "dur": 10},
            {"kind": "kernel", "name": "a", "dur": 12, "step": 1},
        ]
    )
    (row,) = step_table(run, Look()).to_dicts()
    assert (row["wall_ns"], row["gap_ns"], row["gap_share"]) == (10, None, None)


def test_the_odd_layer_is_found() -> None:
    table = layer_table(decode(steps=5, layers=8, odd=3), Look(), "op")
    odd = table.filter("odd").select("layer", pl.col("op").cast(pl.String)).rows()
    assert odd == [(3, "mlp.down")]
    (cell,) = table.filter((pl.col("layer") == 3) & (pl.col("op") == "mlp.down")).to_dicts()
    assert cell["total_ns"] == 6 * 800_000 and cell["count"] == 6
    assert cell["per_token_ns"] == 6 * 800_000 // (10 + 5 * 2)


def test_layers_by_step_divide_by_the_tokens_of_the_step() -> None:
    table = layer_table(decode(steps=2, layers=4), Look(filter="ffn"), "step")
    assert table.filter(pl.col("layer") == 1)["per_token_ns"].to_list() == [40_000, 200_000, 200_000]


def test_shapes_know_a_rate_only_where_all_rows_know_their_work() -> None:
    gemm, softmax = shape_table(aggregates(), Look()).to_dicts()
    assert (gemm["shape"], gemm["count"], gemm["total_ns"], gemm["flops"]) == ("m=1 n=2 k=3", 4, 1000, 1600)
    assert gemm["flop_per_s"] == pytest.approx(1600 / 1000e-9)
    assert softmax["flops"] is None and softmax["flop_per_s"] is None and softmax["byte_per_s"] is None
    assert gemm["share"] == pytest.approx(1000 / 1500)


def test_a_tree_of_stated_paths() -> None:
    rows = {r["path"]: r for r in tree_table(scopes(), Look()).to_dicts()}
    times = {path: (r["inclusive_ns"], r["self_ns"]) for path, r in rows.items()}
    assert times == {
        "forward": (75, 0),
        "forward / layer 0": (50, 0),
        "forward / layer 0 / gemv": (50, 50),
        "forward / layer 1": (25, 15),  # measured itself: more than what is in it
        "forward / layer 1 / add": (10, 10),
        "sample": (5, 5),
    }
    assert rows["forward / layer 0 / gemv"]["count"] == 2
    assert next(iter(rows)) == "forward" and rows["forward / layer 1"]["scope"] == "  layer 1"


def test_a_tree_nested_by_time() -> None:
    rows = tree_table(nested(), Look()).to_dicts()
    assert [(r["path"], r["inclusive_ns"], r["self_ns"], r["count"]) for r in rows] == [
        ("run", 105, 25, 2),
        ("run / step", 50, 20, 1),
        ("run / step / gemm", 30, 30, 2),
        ("run / load", 30, 30, 1),
    ]


def test_a_timeline_adds_no_overlap_up() -> None:
    found = timeline(nested(), Look())
    assert found is not None
    busy = {lane: (count, ns, share) for lane, _, count, ns, share, *_ in found.lanes.iter_rows()}
    assert busy == {"main": (5, 100, 1.0), "other": (1, 5, 0.05)}
    assert found.whole == found.window == (0, 100)


def test_the_cells_of_a_timeline_hold_the_busy_time() -> None:
    random = np.random.default_rng(1)
    starts = np.cumsum(random.integers(10, 500, 400))
    durs = np.minimum(random.integers(1, 400, 400), np.append(np.diff(starts), 100))
    run = made(
        [{"name": "k", "track": "gpu", "t": int(t), "dur": int(d)} for t, d in zip(starts, durs, strict=True)]
    )
    for zoom in (None, (int(starts[50]), int(starts[60])), (int(starts[50]), int(starts[50]) + 7)):
        found = timeline(run, Look(zoom=zoom))
        assert found is not None
        low, high = found.window
        inside = np.minimum(starts + durs, high) - np.maximum(starts, low)
        width = (high - low) / CELLS
        assert found.cells["busy"].sum() * width == pytest.approx(inside[inside > 0].sum(), rel=1e-6)
        assert found.lanes["busy_ns"].sum() == inside[inside > 0].sum()


def test_counters_and_memory_keep_their_range_and_order() -> None:
    run = made(
        [
            {"kind": "counter", "name": "clock", "t": t, "value": v, "unit": "MHz"}
            for t, v in ((3, 30.0), (1, 10.0), (2, 50.0))
        ]
        + [{"kind": "memory", "name": "heap", "t": t, "bytes": b} for t, b in ((1, 100.0), (2, 50.0))]
    )
    (clock,) = counter_table(run, Look()).to_dicts()
    assert (clock["first"], clock["last"], clock["min"], clock["max"], clock["mean"]) == (10, 30, 10, 50, 30)
    assert clock["trend"] == [10, 50, 30] and clock["unit"] == "MHz"
    (heap,) = memory_table(run, Look()).to_dicts()
    assert (heap["first_bytes"], heap["last_bytes"], heap["max_bytes"], heap["mean_bytes"]) == (
        100,
        50,
        100,
        75,
    )


@pytest.mark.parametrize(
    "values", [[5], [5, 5], [1, 2, 3], list(range(1000)), [1, 10, 100, 1000, 10_000, 100_000]]
)
def test_a_histogram_counts_each_value_once(values: list[int]) -> None:
    bins = detail.histogram(pl.Series(values)).rows()
    assert sum(n for *_, n in bins) == len(values)
    assert bins[0][0] == min(values) and bins[-1][1] == max(values)
    for i, (low, high, n) in enumerate(bins):
        last = i == len(bins) - 1
        assert n == sum(low <= v < high or (last and v == high) for v in values)


def test_detail_of_a_focused_row() -> None:
    run = decode(steps=3, layers=2)
    look = Look(focus=(("op", "mlp.down"),))
    rows = detail.launches(run, look)
    assert rows.height == 8 and set(rows["dur_ns"]) == {400_000}
    assert detail.by_layer(run, look)["total_ns"].to_list() == [1_600_000, 1_600_000]
    assert detail.by_step(run, look)["per_token_ns"].to_list() == [80_000, 400_000, 400_000, 400_000]
    assert detail.statistics(run, look)["p95_ns"].to_list() == [400_000]


def test_time_by_category_is_the_sum_of_its_kernels() -> None:
    run = decode(steps=3)
    expected: dict[str, int] = defaultdict(int)
    for row in run.events.filter(pl.col("kind") == "kernel").iter_rows(named=True):
        expected[row["category"]] += row["dur"]
    from tracetui.analysis.summary import summary_table

    table = summary_table(run, Look()).filter(pl.col("part") == "category")
    assert dict(table.select("name", "total_ns").iter_rows()) == expected


def test_lens_notes_name_what_is_not_added() -> None:
    run = made([{"name": "a", "dur": 1, "lens": x} for x in ("wall", "gpu", "wait")])
    assert select.notes(run, Look()) == [
        "gpu times; those of wall, wait cover the same time and are not added"
    ]


def test_a_fact_is_found_once_for_each_run() -> None:
    asked = []

    @select.once
    def height(run: Run) -> int:
        asked.append(run)
        return run.events.height

    one, two = made([{"name": "a", "dur": 1}]), made([{"name": "a", "dur": 1}, {"name": "b", "dur": 2}])
    assert [height(r) for r in (one, two, one, two)] == [1, 2, 1, 2]
    assert len(asked) == 2
