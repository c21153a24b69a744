"""Steps and layers of sources that mark neither: by launches of graphs, and by the repetition of a pass."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.classify.layer_inference import find_last_cycles, has_repeated_block
from capture.import_log import Log
from capture.infer_structure import add_inferred_structure
from capture.load_runs import load
from capture.run import Run, build_run
from capture.step_ends import derive_replay_steps, find_cycle_length
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders.test_chrome_inferred import BLOCK, LAYERS, ROLES
from tests.capture.loaders.test_chrome_steps import annotation, written

PASS = ("vectorized_gather_kernel", *BLOCK * LAYERS, "rms_norm_kernel", "gemm_vocab_256x64", "argmax_kernel")
STEPS = 4


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == "gpu")).sort("t")


def step_rows(run: Run) -> list[tuple[int, int, int]]:
    return run.events.filter(pl.col("kind") == "step").sort("t").select("step", "t", "dur").rows()


def assert_four_passes(run: Run) -> None:
    """Each kernel has the step, layer and op that it was made with."""
    rows = kernels(run)
    outside = [None]
    assert rows["step"].to_list() == [step for step in range(1, STEPS + 1) for _ in PASS]
    layers = [*outside, *(layer for layer in range(LAYERS) for _ in BLOCK), *outside * 3]
    assert rows["layer"].to_list() == layers * STEPS
    ops = ["embed", *ROLES * LAYERS, "norm", "lm_head", "sample"]
    assert rows["op"].cast(pl.String).to_list() == ops * STEPS
    notices = {n.id: n for n in run.log.notices}
    assert notices["inferred_steps"].count == STEPS
    assert run.meta["inferred_steps"] == notices["inferred_steps"].message


def test_graph_replays_of_a_chrome_trace_are_steps(tmp_path: Path) -> None:
    """A step lasts until the next launch, the last one until its last kernel."""
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        start = 10_000 * (step + 1)
        events.append(
            annotation("cudaGraphLaunch", start, 20, cat="cuda_runtime") | {"args": {"correlation": step}}
        )
        for i, name in enumerate(PASS):
            gpu = annotation(name, start + 30 + 20 * i, 10, cat="kernel") | {"pid": 0, "tid": 7}
            events.append(gpu | {"args": {"correlation": step}})
    run = written(tmp_path, *events)
    assert_four_passes(run)
    last = 30 + 20 * (len(PASS) - 1) + 10
    assert step_rows(run) == [
        (n, n * 10_000_000, (10_000 if n < STEPS else last) * 1000) for n in range(1, STEPS + 1)
    ]


def nsys_report(folder: Path, *, graphs: bool) -> Run:
    """Four passes, each launched as a graph that is traced by its nodes, or kernel by kernel."""
    names = list(dict.fromkeys(PASS))
    strings = [
        [i, name] for i, name in enumerate([*names, "cudaGraphLaunch_v10000", "cudaLaunchKernel_v7000"])
    ]
    rows: dict[str, list[list[object]]] = {nsys.KERNEL: [], nsys.RUNTIME: [], "StringIds": strings}
    for step in range(STEPS):
        start = 100_000 * (step + 1)
        if graphs:
            rows[nsys.RUNTIME].append(nsys.call(start, step + 1, 1, 1, len(names)))
        for i, name in enumerate(PASS):
            correlation = step + 1 if graphs else 1000 * step + i + 1
            begin = start + 30 + 20 * i
            if not graphs:
                rows[nsys.RUNTIME].append(nsys.call(begin - 10, correlation, 1, 1, len(names) + 1))
            node = 70 + i if graphs else None
            rows[nsys.KERNEL].append(
                nsys.kernel(begin, begin + 10, correlation, 1, names.index(name), node=node)
            )
    (run,) = load(nsys.write(folder / "report.sqlite", rows), cache=False)
    return run


@pytest.mark.parametrize("graphs", [True, False])
def test_reports_of_nsys_get_steps_and_layers(tmp_path: Path, graphs: bool) -> None:
    run = nsys_report(tmp_path, graphs=graphs)
    assert_four_passes(run)
    begin = 0 if graphs else 30  # a graph's step begins at its launch, a pass at its first kernel
    last = 30 + 20 * (len(PASS) - 1) + 10 - begin
    expected = [(n, 100_000 * n + begin, 100_000 if n < STEPS else last) for n in range(1, STEPS + 1)]
    assert step_rows(run) == expected
    assert run.meta["inferred"].startswith(
        "layers and op names are guessed from a pattern of 10 kernels seen 12 times"
    )


def test_kernels_of_rocprof_get_steps_and_layers(tmp_path: Path) -> None:
    lines = ['"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"']
    for number, name in enumerate(PASS * STEPS):
        start = 1_000_000 + 100 * number
        lines.append(f'"KERNEL_DISPATCH",4,1,"{name}",{number},{start},{start + 60}')
    path = tmp_path / "kernel_trace.csv"
    path.write_text("\n".join(lines) + "\n")
    (run,) = load(path, cache=False)
    assert_four_passes(run)
    length = 100 * len(PASS)
    assert step_rows(run)[0] == (1, 1_000_000, length)
    assert step_rows(run)[-1] == (4, 1_000_000 + 3 * length, length - 40)


def test_a_single_pass_is_no_step(tmp_path: Path) -> None:
    events = [
        annotation(name, 20 * i, 10, cat="kernel") | {"pid": 0, "tid": 7, "args": {"correlation": i}}
        for i, name in enumerate(PASS)
    ]
    run = written(tmp_path, *events)
    assert run.has("layer") and not run.has("step")
    assert "inferred_steps" not in run.meta


def test_steps_that_are_stated_stand(tmp_path: Path) -> None:
    """Two passes within one step that the profiler marks."""
    events = [annotation("ProfilerStep#5", 0, 20 * 2 * len(PASS))]
    for i, name in enumerate(PASS * 2):
        host = annotation("cudaLaunchKernel", 20 * i, 1, cat="cuda_runtime") | {"args": {"correlation": i}}
        gpu = annotation(name, 20 * i + 5, 10, cat="kernel") | {
            "pid": 0,
            "tid": 7,
            "args": {"correlation": i},
        }
        events += [host, gpu]
    run = written(tmp_path, *events)
    assert set(kernels(run)["step"]) == {5}
    assert "inferred_steps" not in run.meta


CYCLES = {
    "one graph": ([4, 4, 4], 1),
    "pieces of a step": ([1, 2, 2, 3, 1, 2, 2, 3, 1], 4),
    "nothing comes again": ([1, 2, 3, 4], 0),
    "the last is another": ([1, 1, 1, 2], 0),
    "one launch": ([1], 0),
    "none": ([], 0),
}


@pytest.mark.parametrize(("graphs", "period"), CYCLES.values(), ids=CYCLES)
def test_after_how_many_launches_the_graphs_come_again(graphs: list[int], period: int) -> None:
    assert find_cycle_length(graphs) == period


def test_several_graphs_are_one_step() -> None:
    """Pieces A B A B A B: three steps, though B alone repeats as often."""
    launches = pl.DataFrame({"t": [0, 10, 100, 110, 200, 210], "key": [1, 2, 3, 4, 5, 6]})
    kernels = pl.DataFrame(
        {
            "key": [1, 2, 3, 4, 5, 6],
            "name": [7, 8, 7, 8, 7, 8],
            "t": [5, 15, 105, 115, 205, 215],
            "dur": [4] * 6,
        }
    )
    assert derive_replay_steps(launches, kernels, Log()).rows() == [(1, 0, 100), (2, 100, 100), (3, 200, 19)]


@pytest.mark.parametrize("critics", [0, 3])
def test_steps_of_training_end_with_those_of_the_optimizer(critics: int, tmp_path: Path) -> None:
    """A wait of the program is in a step; of several optimizers, that of the fewest calls ends one."""
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        start = 10_000 * step + 500 * (step == STEPS - 1)  # the last one waits
        events += [annotation("Optimizer.step#Adam.step", start + 100 * n, 50) for n in range(critics)]
        events.append(annotation("aten::mm", start + 5_000, 900, cat="cpu_op"))
        events.append(annotation("Optimizer.step#SGD.step", start + 8_000, 1_000))
        events.append(annotation("aten::add_", start + 8_100, 100, cat="cpu_op"))
    run = written(tmp_path, *events)
    first = 0 if critics else 5_000
    lengths = [9_000 - first, 10_000, 10_000, 10_500]
    assert [dur for _, _, dur in step_rows(run)] == [length * 1000 for length in lengths]
    work = run.events.filter(kind="kernel", name="aten::mm").sort("t")
    assert work["step"].to_list() == [1, 2, 3, 4]
    assert "optimizer" in run.meta["inferred_steps"]


CYCLES_AT_END = {
    "all": ([1, 2, 3, 2] * 5, (4, 5)),
    "behind a prompt": ([1, 9, 9, 2] + [1, 2, 2] * 4, (3, 4)),
    "behind a prompt of all of it": ([7, 3] + [2, 1] * 9 + [1, 2, 3] * 5, (3, 5)),
    "too few": ([1, 2, 3] * 3, (0, 0)),
    "one value": ([4] * 40, (0, 0)),
    "layers of one pass": ([1] + [2, 3] * 12 + [4], (0, 0)),
    "time steps behind an embedding": ([1] + [2, 3, 4] * 12 + [2], (0, 0)),
    "layers within passes": (([1] + [2, 3] * 12 + [4]) * 4, (26, 4)),
    "nothing": ([], (0, 0)),
}


@pytest.mark.parametrize(("values", "cycles"), CYCLES_AT_END.values(), ids=CYCLES_AT_END)
def test_find_last_cycles_of_sequence(values: list[int], cycles: tuple[int, int]) -> None:
    assert find_last_cycles(np.array(values, dtype=np.int64)) == cycles


@pytest.mark.parametrize(
    ("values", "has_block"),
    [([9, 1, 2, 3, 1, 2, 3, 4], True), ([9, 1, 1, 1, 2, 3], False), ([1, 2, 3, 4, 1, 2], False), ([], False)],
)
def test_has_repeated_block_of_values(values: list[int], has_block: bool) -> None:
    assert has_repeated_block(np.array(values, dtype=np.int64)) == has_block


def test_of_tracks_with_as_many_kernels_the_first_by_name_tells_the_passes() -> None:
    """One of them was taken at random, so that a file had steps or none."""
    passes = ["aten::embedding", "aten::mm", "aten::tanh"] * 8
    row = {"kind": "kernel", "lens": "host", "dur": 1}
    rows = [
        row | {"name": name if track == 0 else "x", "track": f"t{track:02}", "t": 100 * at + track}
        for track in range(24)
        for at, name in enumerate(passes)
    ]
    for order in (rows, rows[::-1]):
        run = add_inferred_structure(build_run("a", {}, pl.DataFrame(order), Log()), Log())
        assert run.has("step") and run.events.filter(pl.col("kind") == "step").height == 8
