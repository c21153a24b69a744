"""Profiles of onnxruntime, against the same files read in plain Python."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from tests.capture.loaders._host_spans import read_events
from tests.conftest import document

FILES = ("chrome/onnxruntime.json", "samples/real_onnxruntime/profile.json.gz")


def list_nodes(path: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(path) if event["cat"] == "Node"]


@pytest.mark.parametrize("name", FILES)
def test_nodes_are_the_work_and_the_session_is_not(name: str) -> None:
    path = document(name)
    (run,) = load(path, cache=False)
    work = run.events.filter(pl.col("kind") == "kernel")
    expected = Counter[str]()
    for node in list_nodes(path):
        title = node["name"].removesuffix("_kernel_time").rstrip("/")
        operator = node["args"]["op_name"]
        expected[title if operator in title else f"{title} ({operator})"] += node["dur"] * 1000
    actual = dict(work.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur").sum()).iter_rows())
    assert actual == expected
    spans = set(run.events.filter(pl.col("kind") == "span")["name"].cast(pl.String))
    assert "session_initialization" in spans


def test_threads_are_those_that_its_pool_lists(tmp_path: Path) -> None:
    """Two of a pool and the caller; one without a pool; unknown where nodes differ."""
    path = document(FILES[0])
    (run,) = load(path, cache=False)
    assert run.meta["threads"] == 1
    pool = '{"main_thread": {"core": 0}, "sub_threads": {"7": {"num_run": 2}, "8": {"num_run": 1}}}'
    text = path.read_text()
    for count, expected in ((-1, 3), (1, None)):
        copy = tmp_path / "profile.json"
        copy.write_text(
            text.replace('"thread_scheduling_stats" : ""', f'"thread_scheduling_stats" : {pool}', count)
        )
        (run,) = load(copy, cache=False)
        assert run.meta.get("threads") == expected


@pytest.mark.parametrize("others", ["5", "null", "[]", '"seven"'])
def test_a_pool_that_lists_no_threads_tells_of_one(others: str, tmp_path: Path) -> None:
    text = document(FILES[0]).read_text()
    pool = f'"thread_scheduling_stats" : {{"sub_threads": {others}}}'
    path = tmp_path / "profile.json"
    path.write_text(text.replace('"thread_scheduling_stats" : ""', pool))
    assert load(path, cache=False)[0].meta["threads"] == 1


@pytest.mark.parametrize("name", FILES)
def test_each_run_of_the_model_is_a_step(name: str) -> None:
    path = document(name)
    (run,) = load(path, cache=False)
    runs = [event for event in read_events(path) if event["name"] == "model_run"]
    steps = run.events.filter(pl.col("kind") == "step").sort("step")
    assert steps["dur"].to_list() == [event["dur"] * 1000 for event in runs]
    work = run.events.filter(pl.col("kind") == "kernel")
    assert work["step"].null_count() == 0 and work["step"].n_unique() == len(runs)


@pytest.mark.parametrize("name", FILES)
def test_products_have_the_sizes_of_their_operands(name: str) -> None:
    """A constant operand is not listed: its sizes are those between the operand and the result."""
    path = document(name)
    (run,) = load(path, cache=False)
    flops = Counter[str]()
    for node in list_nodes(path):
        inputs, (result,) = (node["args"][f"{k}put_type_shape"] for k in ("in", "out"))
        (left,), (out,) = inputs[0].values(), result.values()
        if node["args"]["op_name"] in ("MatMul", "Gemm"):
            flops[node["name"].removesuffix("_kernel_time")] += 2 * math.prod(left) * out[-1]
    work = run.events.filter(pl.col("kind") == "kernel").group_by(pl.col("name").cast(pl.String))
    actual = dict(work.agg(pl.col("flops").sum()).iter_rows())
    assert len(flops) > 2 and {n: actual[n] for n in flops} == flops


@pytest.mark.parametrize("length", [128, 384])
def test_context_of_attention_is_that_of_its_scores_whose_keys_may_be_transposed(
    length: int, tmp_path: Path
) -> None:
    """One step of a decode with a cache: its products had no sizes, and another context was the same work."""
    shapes = {
        "q/MatMul": ([1, 1, 256], [256, 256], [1, 1, 256]),
        "qk/MatMul": ([1, 4, 1, 64], [1, 4, length + 1, 64], [1, 4, 1, length + 1]),
        "pv/MatMul": ([1, 4, 1, length + 1], [1, 4, length + 1, 64], [1, 4, 1, 64]),
    }
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 1}]
    for step in range(8):
        events.append({"cat": "Session", "name": "model_run", "ts": 1000 * step + 9, "dur": 900})
        for at, (name, (left, right, out)) in enumerate(shapes.items()):
            args = {"op_name": "MatMul", "input_type_shape": [{"float": left}, {"float": right}],
                    "output_type_shape": [{"float": out}]}  # fmt: skip
            node = {"cat": "Node", "name": f"/layers.0.{name}_kernel_time", "args": args}
            events.append(node | {"ts": 1000 * step + 100 * at + 9, "dur": 90})
    path = tmp_path / "profile.json"
    events = [{"ph": "X", "pid": 1, "tid": 1} | event for event in events]
    path.write_text(json.dumps(events))
    (run,) = load(path, cache=False)
    shape = dict(run.events.filter(pl.col("step") == 3).select("name", "shape").cast(pl.String).iter_rows())
    assert shape["/layers.0.qk/MatMul"] == f"m=1 n={length + 1} k=64 b=4"
    assert shape["/layers.0.pv/MatMul"] == f"m=1 n=64 k={length + 1} b=4"
