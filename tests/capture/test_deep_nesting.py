"""Scopes nested in one another, or that overlap, cost what the file costs; those too deep are counted."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.interval_nesting import compute_self_times, find_enclosing_scopes
from capture.load_runs import load
from capture.native.schema import MAX_PATH_DEPTH, PATH_SEPARATOR
from tests.capture.peak import peak_kib
from tracetui.analysis.frames.nesting import sum_by_path
from tracetui.analysis.timeline import build_timeline
from tracetui.look import Look

MANY = 30_000
SPAN = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}


def write_scopes(path: Path, n: int, *, is_nested: bool, has_kernels: bool = True) -> Path:
    """Write n scopes, each within the one before or overlapping it, and a launch in every tenth."""
    events: list[dict[str, Any]] = [
        {**SPAN, "name": f"scope {i}", "ts": i, "dur": 4 * n - 2 * i if is_nested else n} for i in range(n)
    ]
    for i in range(0, n if has_kernels else 0, 10):
        args = {"correlation": i + 1}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": i + 0.5, "dur": 0.1, "args": args}
        events.append({**SPAN, **launch})
        events.append(
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i + 1, "dur": 3, "args": args}
        )
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.corpus
@pytest.mark.parametrize(("is_nested", "has_kernels"), [(True, True), (False, True), (True, False)])
def test_thirty_thousand_open_scopes_take_less_than_300_mb(
    tmp_path: Path, is_nested: bool, has_kernels: bool
) -> None:
    path = write_scopes(tmp_path / "t.json", MANY, is_nested=is_nested, has_kernels=has_kernels)
    assert peak_kib(path) < 300 * 1024


def test_scopes_beyond_the_depth_of_a_path_are_counted_and_the_outer_ones_stay(tmp_path: Path) -> None:
    (run,) = load(write_scopes(tmp_path / "t.json", 100, is_nested=True), cache=False)
    kernels = run.events.filter(run.events["kind"] == "kernel").sort("t")
    depths = [path.count(PATH_SEPARATOR) + 1 for path in kernels["path"].cast(str)]
    assert depths == [min(i + 1, MAX_PATH_DEPTH) for i in range(0, 100, 10)]
    (notice,) = (n for n in run.log.notices if n.id == "deep_scopes")
    assert notice.count == 100 - MAX_PATH_DEPTH


@pytest.mark.parametrize("is_thread", [True, False])
def test_sums_of_deep_rows_are_whole_and_their_paths_are_bounded(is_thread: bool) -> None:
    spans = pl.DataFrame({"t": range(200), "dur": range(400, 0, -2)}).with_columns(
        name=pl.format("scope {}", "t").cast(pl.Categorical()), kernel=pl.col("t") == 199
    )
    sums = sum_by_path(spans, is_thread=is_thread)
    assert sums["own_ns"].sum() == (400 if is_thread else 2)
    assert max(path.count(PATH_SEPARATOR) for path in sums["path"]) == MAX_PATH_DEPTH
    assert sums.filter(pl.col("path").str.ends_with("scope 199"))["own_ns"].to_list() == [2]


@pytest.mark.parametrize("is_nested", [True, False])
def test_self_times_of_deep_threads_are_those_of_a_plain_stack(is_nested: bool) -> None:
    """Three hundred rows within one another end long after they began, and more begin between the ends."""
    rows = [(i, 3_000 - (4 * i if is_nested else 0)) for i in range(300)]
    rows += [(1_000 + 7 * i, 1_003 + 7 * i) for i in range(280)]
    rows.sort(key=lambda row: (row[0], -row[1]))
    start, end = (np.array(times, dtype=np.int64) for times in zip(*rows, strict=True))
    track = np.zeros(len(rows), dtype=np.int64)
    enclosing = find_enclosing_scopes(track, start, end, np.ones(len(rows), dtype=bool))
    expected = np.zeros(len(rows), dtype=np.int64)
    for instant in range(3_000):
        is_open = np.flatnonzero((start <= instant) & (end > instant))
        expected[is_open.max()] += 1
    assert compute_self_times(track, start, end, enclosing).tolist() == expected.tolist()


def test_sixty_thousand_tracks_cost_what_the_file_costs(tmp_path: Path) -> None:
    """In times of reading the JSON: loading and the slowest view take ten; 1 ms for each track took 400."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": i, "ts": i, "dur": 3}
        for i in range(60_000)
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    began = time.process_time()
    json.loads(path.read_bytes())
    reading, began = time.process_time() - began, time.process_time()
    (run,) = load(path, cache=False)
    timeline = build_timeline(run, Look())
    assert timeline is not None
    assert timeline.lanes["count"].to_list() == [1] * 60_000
    assert time.process_time() - began < 60 * reading


def test_many_kernels_in_deep_scopes_of_proton_take_less_than_300_mb(tmp_path: Path) -> None:
    metrics = {"count": 1, "device_id": "0", "device_type": "CUDA", "time (ns)": 100}
    kernels = [{"frame": {"name": f"k{i}"}, "metrics": metrics, "children": []} for i in range(62)]
    tree: dict[str, Any] = {"frame": {"name": "innermost"}, "metrics": {}, "children": kernels}
    for depth in reversed(range(400)):
        tree = {
            "frame": {"name": f"scope {depth} of the model"}, "metrics": {}, "children": [*kernels, tree],
        }  # fmt: skip
    path = tmp_path / "t.hatchet"
    path.write_text(json.dumps([tree]))
    assert peak_kib(path) < 300 * 1024
    (run,) = load(path, cache=False)
    depths = run.events["path"].cast(str).str.count_matches(PATH_SEPARATOR, literal=True) + 1
    assert (depths.max(), run.events.height) == (MAX_PATH_DEPTH, 401 * 62)
    (notice,) = (n for n in run.log.notices if n.id == "deep_scopes")
    assert notice.count == 401 - MAX_PATH_DEPTH
