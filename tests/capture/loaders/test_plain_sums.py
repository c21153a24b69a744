"""Tables of sums: counters of OpenVINO and sheets of TraceLens, against the totals of the files."""

import csv
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import document
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.look import Look

SHEET = """name,op category,operation_count,total_duration_us,Kernel Time (µs)_mean,Kernel Time (µs)_sum
aten::mm,GEMM,36,56613.924,67.157,2417.652
aten::mm,GEMM,4,20.5,10.25,41.0
aten::add,elementwise,10,990.1,3.3,33.0
"""


def sum_work(run: Run) -> tuple[float, int]:
    table = compute_kernel_table(run, Look())
    return float(table["total_ns"].sum()), int(table["count"].sum())


@pytest.mark.parametrize(
    "name", ["plain/openvino_counters.csv", "samples/real_openvino/benchmark_detailed_counters_report.csv"]
)
def test_counters_of_openvino_add_up_to_their_total(name: str) -> None:
    """The last row is that sum, and no operation."""
    rows = list(csv.DictReader(document(name).read_text().splitlines(), delimiter=";"))
    total = float(rows[-1]["realTime (ms)"])
    assert rows[-1]["layerName"] == "Total"
    (run,) = load(document(name), cache=False)
    time_ns, count = sum_work(run)
    assert count == len(rows) - 1 == run.log.read
    assert abs(time_ns - total * 1e6) <= 500 * len(rows)  # each row is rounded to 1 µs
    assert "Total" not in run.events["name"].cast(pl.String).to_list()


def test_openvino_types_of_nodes_name_what_their_names_leave_open() -> None:
    """Every product and norm has its category, whatever the node is called."""
    path = document("samples/real_openvino/benchmark_detailed_counters_report.csv")
    types = {
        row["layerName"]: row["layerType"]
        for row in csv.DictReader(path.read_text().splitlines(), delimiter=";")
    }
    (run,) = load(path, cache=False)
    rows = run.events.select(pl.col("name", "op", "category").cast(pl.String)).rows()
    categories = {name.partition(" (")[0]: (op, category) for name, op, category in rows}
    expected = {"FullyConnected": "matmul", "MVN": "norm", "Reorder": "copy", "Parameter": "other"}
    for node, kind in types.items():
        if kind in expected:
            assert categories[node][1] == expected[kind], node
    assert categories["logits"] == ("lm_head", "matmul")


def test_a_sheet_counts_time_of_kernels_and_operations(tmp_path: Path) -> None:
    """Not the time of the host, and no percentiles of sums."""
    file = tmp_path / "unified_perf_summary.csv"
    file.write_text(SHEET)
    (run,) = load(file, cache=False)
    table = compute_kernel_table(run, Look()).select("name", "total_ns", "count", "mean_ns", "p50_ns").rows()
    assert table == [("aten::mm", 2_458_652, 40, 61_466, None), ("aten::add", 33_000, 10, 3300, None)]


@pytest.mark.parametrize("folder", ["sglang_qwen3_8b_decode", "vllm_gptoss_decode"])
@pytest.mark.parametrize(
    ("sheet", "count"), [("unified_perf_summary", "operation_count"), ("GEMM", "name_count")]
)
def test_sheets_of_tracelens_have_their_sums(folder: str, sheet: str, count: str) -> None:
    path = document(f"samples/serving/{folder}/{sheet}.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    (run,) = load(path, cache=False)
    time_ns, launches = sum_work(run)
    assert time_ns == pytest.approx(
        1000 * sum(float(row["Kernel Time (µs)_sum"] or 0) for row in rows), rel=1e-6
    )
    assert launches == sum(int(row[count]) for row in rows)


def test_a_row_named_total_that_is_no_sum_stays(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("name,duration_us\na,1\nb,2\ntotal,9\n")
    (run,) = load(file, cache=False)
    assert sum_work(run) == (12_000, 3)


DIFF_SHEET = """name,cpu_op_name,source,Input Dims,kernel_time,busy_time
gemm_a,aten::mm,trace1,"((2, 4), (4, 8))",10.5,10.5
norm_a,aten::rms_norm,trace1,"((2, 4),)",2.0,2.0
gemm_b,aten::mm,trace2,"((2, 4), (4, 8))",30.25,30.25
"""


def test_the_two_traces_of_a_sheet_of_differences_are_two_runs(tmp_path: Path) -> None:
    """TraceLens writes the rows of both into one table; they are never added."""
    file = tmp_path / "diff_stats.csv"
    file.write_text(DIFF_SHEET)
    runs = load(file, cache=False)
    assert [sum_work(run) for run in runs] == [(12_500, 2), (30_250, 1)]
    assert [run.name for run in runs] == ["trace1", "trace2"]
