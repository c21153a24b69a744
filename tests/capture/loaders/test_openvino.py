"""Reports of OpenVINO's benchmark_app, as 2026.4 wrote them, against the totals that they state."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.run import Run
from tests.conftest import document

REPORT = "openvino/detailed_counters.json"
WITHOUT_COUNTERS = {
    "json": '{"cmd_options": {"-m": "model.onnx"}, "configuration_setup": {"topology": "Model1"}}',
    "csv": "Command line parameters\n-m;model.onnx\n-niter;8\n\nConfiguration setup\ntopology;Model1\n",
}


def sum_steps(run: Run) -> dict[int, int]:
    return dict(run.events.group_by("step").agg(pl.col("dur").sum()).iter_rows())


def read_totals(requests: list[dict[str, Any]]) -> dict[int, int]:
    """The total that the report states of each request, in ns."""
    totals = (round(1e6 * float(request["total_real_time"])) for request in requests)
    return dict(enumerate(totals, 1))


def write_as_cpp(requests: list[dict[str, Any]]) -> str:
    """The same report as benchmark_app in C++ writes it: sorted keys, numbers, states without a class."""
    for request in requests:
        for node in request["nodes"]:
            node |= {key: float(node[key]) for key in ("real_time", "cpu_time")}
            node["status"] = node["status"].removeprefix("Status.")
    return json.dumps({"report_type": "detailed", "detailed_performance": requests}, sort_keys=True, indent=4)


@pytest.mark.parametrize("language", ["python", "c++"])
def test_nodes_of_each_request_add_up_to_its_total(language: str, tmp_path: Path) -> None:
    path = document(REPORT)
    requests = json.loads(path.read_text())["detailed_performance"]
    totals, count = read_totals(requests), sum(len(request["nodes"]) for request in requests)
    if language == "c++":
        path = tmp_path / "report.json"
        path.write_text(write_as_cpp(requests))
    (run,) = load(path, cache=False)
    sums = sum_steps(run)
    assert sums.keys() == totals.keys() == {1, 2} and run.log.read == run.events.height == count
    assert all(abs(sums[step] - total) <= 500 * count for step, total in totals.items())
    assert "each step is the last inference of one" in run.log.notices[0].message


def test_tables_of_several_requests_are_steps_without_headings_and_totals() -> None:
    """Two inferences were said to take twice as long: each table ends with its own total."""
    path = document("plain/openvino_requests.csv")
    rows = list(csv.reader(path.read_text().splitlines(), delimiter=";"))
    totals = [round(1e6 * float(row[4])) for row in rows if row[:1] == ["Total"]]
    nodes = Counter(row[0] for row in rows if row and row[0] not in ("Total", "layerName"))
    (run,) = load(path, cache=False)
    sums = sum_steps(run)
    assert len(totals) == 2
    assert all(abs(sums[step] - total) <= 500 * 28 for step, total in enumerate(totals, 1))
    assert run.events.height == nodes.total() and run.log.lost_data is False


def test_sorted_counters_are_read_without_their_totals(tmp_path: Path) -> None:
    """As benchmark_app writes them with -pcsort: a heading that ends in the next line, and two totals."""
    lines = [
        'layerName,execStatus,layerType,execType,realTime (ms),cpuTime (ms),"proportion (%)\n"\r\n',
        "/layers.0/q_proj/MatMul,Status.EXECUTED,FullyConnected,brgemm_avx512_bf16,0.762,0.762,60.05%\r\n",
        "/layers.0/k_proj/MatMul,Status.EXECUTED,FullyConnected,brgemm_avx512_bf16,0.507,0.507,39.95%\r\n",
        "\nTotal time: 1.27 milliseconds\r\nTotal CPU time: 1.27 milliseconds\r\n\n\n",
    ]
    path = tmp_path / "benchmark_sorted_report.csv"
    path.write_bytes("".join(lines).encode())
    (run,) = load(path, cache=False)
    assert run.events["dur"].to_list() == [762_000, 507_000] and not run.log.lost_data


def test_average_of_one_node_is_said_to_be_no_model(tmp_path: Path) -> None:
    """benchmark_app of Python writes only the first node of its average into JSON."""
    (node, *_) = json.loads(document(REPORT).read_text())["detailed_performance"][0]["nodes"]
    average = {"nodes": [node], "total_real_time": "0.000", "total_cpu_time": "0.000"}
    path = tmp_path / "benchmark_average_counters_report.json"
    path.write_text(json.dumps({"report_type": "average", "avg_performance": average}, indent=4))
    (run,) = load(path, cache=False)
    assert run.events.height == 1 and run.log.lost_data
    assert "one node" in run.log.notices[-1].message


@pytest.mark.parametrize("suffix", WITHOUT_COUNTERS)
def test_report_without_counters_is_named(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"benchmark_report.{suffix}"
    path.write_text(WITHOUT_COUNTERS[suffix])
    with pytest.raises(UnreadableError, match=r"OpenVINO.*without counters.*-report_type detailed_counters"):
        load(path, cache=False)


def test_the_report_beside_counters_states_batch_and_options(tmp_path: Path) -> None:
    """Four images took 2.5 times as long as one, and the counters alone do not say how many they are."""
    counters = tmp_path / "benchmark_detailed_counters_report.csv"
    counters.write_bytes(document("plain/openvino_requests.csv").read_bytes())
    (alone,) = load(counters, cache=False)
    assert not {"batch", "argv"} & alone.meta.keys()
    options = "-m;model.onnx\n-shape;x[4,3,64,64]\n-report_folder;/tmp/b"
    report = f"Command line parameters\n{options}\n\nConfiguration setup\nbatch size;4\n"
    (tmp_path / "benchmark_report.csv").write_text(report)
    (run,) = load(counters, cache=False)
    assert run.meta["batch"] == 4 and run.events.equals(alone.events)
    assert run.meta["program inputs"] == {"4x3x64x64": 1}
    assert run.meta["argv"] == ["benchmark_app", "-m", "model.onnx", "-shape", "x[4,3,64,64]"]


def test_the_report_beside_counters_in_json_states_the_same(tmp_path: Path) -> None:
    """Three sequences were compared with one as the same work: only the report of CSV was read."""
    nodes = [{"name": f"n{at}", "node_type": "MatMul", "real_time": 0.5, "cpu_time": 0.5} for at in range(3)]
    counters = tmp_path / "benchmark_detailed_counters_report.json"
    counters.write_text(
        json.dumps({"report_type": "detailed", "detailed_performance": [{"nodes": nodes}] * 2})
    )
    options = {"-m": "/a/m.onnx", "-shape": "[3,48]", "-nthreads": "2", "-report_folder": "reports"}
    report = {"cmd_options": options, "configuration_setup": {"batch size": "3"}}
    (tmp_path / "benchmark_report.json").write_text(json.dumps(report))
    (run,) = load(counters, cache=False)
    assert (run.meta["batch"], run.meta["threads"], run.meta["program inputs"]) == (3, 2, {"3x48": 1})
    assert run.meta["argv"] == ["benchmark_app", "-m", "m.onnx", "-shape", "[3,48]", "-nthreads", "2"]
    (tmp_path / "benchmark_report.json").write_text(json.dumps({"cmd_options": {"-infer_precision": "f32"}}))
    assert load(counters, cache=False)[0].meta["dtype"] == "fp32"
