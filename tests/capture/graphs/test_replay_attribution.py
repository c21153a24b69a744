"""Replays of graphs told by their captures: against a maker who knows what each kernel is."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import Run
from tests.capture.graphs import _graphs
from tests.capture.graphs._graphs import FOLDER, HIDDEN, LAYERS, TRACE, Made, Part, Truth
from tests.capture.graphs._replays import files, kernels

__all__ = ["files"]  # a fixture


def replayed(run: Run) -> list[dict[str, Any]]:
    """Return the kernels of graphs: those that the trace does not state by itself."""
    starts = {1000 * truth.start for truth in _graphs.make().truth}
    return [row for row in kernels(run).iter_rows(named=True) if row["t"] in starts]


def true_shape(part: Part, truth: Truth) -> str | None:
    """Return the shape of a kernel as the program states shapes, from the sizes of the model."""
    rows = truth.rows
    if part.part == "attn":
        requests, keys = {1: (3, 300), 2: (8, 900)}[truth.step]
        return f"q={requests} k={keys} h=4/2 d=16"
    if part.operator == "aten::mm":
        k, n = part.dims[1]
        return f"m={rows} n={n} k={k}"
    return {"rmsnorm_kernel": f"{rows}×{HIDDEN}", "act_and_mul_kernel": f"{rows}×{_graphs.WIDE}"}.get(
        part.kernel
    )


def check_truth(run: Run, *, but: Callable[[Truth], bool] = lambda truth: False) -> int:
    """Hold every replayed kernel against what it truly is; return how many were told."""
    truths = _graphs.make().truth
    rows = replayed(run)
    assert [(row["t"], row["name"]) for row in rows] == [(1000 * t.start, t.part.kernel) for t in truths]
    told = 0
    for row, truth in zip(rows, truths, strict=True):
        if but(truth):
            continue
        part = truth.part
        modules = " / ".join(f"nn.Module: {name}" for name in ("Model_0", *part.module.split("/")))
        assert row["path"] == modules, row
        assert row["layer"] == part.layer, row
        assert row["line"] == _graphs.line(part), row
        assert row["shape"] == true_shape(part, truth), row
        if part.operator == "aten::mm":
            assert row["flops"] == 2 * truth.rows * part.dims[1][0] * part.dims[1][1]
        told += 1
    return told


def test_the_fixture_is_what_the_maker_writes() -> None:
    made = _graphs.make()
    assert {name: (FOLDER / name).read_text() for name in made.files} == {
        name: _graphs.document(events) for name, events in made.files.items()
    }


def test_each_replayed_kernel_is_what_its_launch_was() -> None:
    """Two batches, one padded; two streams; one kernel lost; pieces. No name tells product from product."""
    (run,) = load(FOLDER / TRACE, cache=False)
    assert check_truth(run) == len(_graphs.make().truth) == 3 * (9 * LAYERS + 2) - LAYERS - 1
    attention = 4 * 4 * 16 * 900.0  # 4 · heads · size · Σ query·key, of the step and not of the capture
    actual = kernels(run).filter(pl.col("shape").str.starts_with("q=8"))
    assert actual["flops"].to_list() == [attention] * LAYERS


def test_what_was_used_is_said(files: Callable[..., Run]) -> None:
    run = files()
    output = "83 of 83 kernels aligned, 100 % of their time"
    assert output in run.meta["captured"] and "bs_4_rank0.json: full, batch 4" in run.meta["captured"]
    assert [n.count for n in run.log.notices if n.id == "captured_ops"] == [83]


def test_what_the_trace_states_itself_stays(files: Callable[..., Run]) -> None:
    """Attention between the pieces has operators of its own: 50 new tokens, not the 64 of a capture."""
    run = files()
    own = kernels(run).filter(~pl.col("t").is_in([row["t"] for row in replayed(run)]))
    assert own["shape"].to_list() == ["q=50 k=50 h=4/2 d=16"] * LAYERS
    assert (
        own["path"].null_count() == LAYERS and own["flops"].to_list() == [4 * 4 * 16 * (1300 - 1300 / 2)] * 3
    )


@pytest.mark.parametrize("asked", [NO_CAPTURE, None])
def test_without_a_capture_nothing_of_it_is_told(files: Callable[..., Run], asked: str | None) -> None:
    def taken_away(made: Made) -> None:
        if asked is None:
            made.files = {TRACE: made.files[TRACE]}

    run = files(taken_away, capture=asked)
    assert "captured" not in run.meta and not any(n.id.startswith("capture") for n in run.log.notices)
    assert {row["shape"] for row in replayed(run)} == {None} and {row["path"] for row in replayed(run)} == {
        None
    }


def test_a_capture_that_does_not_fit_is_refused(files: Callable[..., Run]) -> None:
    """The graph of eight is of another model: nine of its 29 kernels have other names."""

    def another(made: Made) -> None:
        for event in made.files["capture_traces/bs_8_rank0.json"]:
            if event["args"].get("kernel") in ("rmsnorm_kernel", "act_and_mul_kernel"):
                event["args"]["kernel"] += "_2"

    run = files(another)
    assert {
        row["shape"]
        for row, truth in zip(replayed(run), _graphs.make().truth, strict=True)
        if truth.step == 2
    } == {None}
    assert check_truth(run, but=lambda truth: truth.step == 2) == 2 * (9 * LAYERS + 2) - LAYERS
    (note,) = (n for n in run.log.notices if n.id == "capture_refused")
    assert note.message == (
        "the capture bs_8_rank0.json: full, batch 8 does not match the replayed graph: "
        "69 % aligned, 90 % needed"
    )  # 20 of 29 launches: all but six norms and three activations


def test_a_batch_that_no_graph_serves_is_said(files: Callable[..., Run]) -> None:
    run = files(lambda made: made.files.pop("capture_traces/bs_64_rank0.json"))
    assert check_truth(run, but=lambda truth: truth.step == 3) == 2 * (9 * LAYERS + 2) - 1
    assert [n.count for n in run.log.notices if n.id == "capture_missing"] == [9 * LAYERS + 2 - LAYERS]


def test_grids_tell_the_batch_where_the_step_does_not(files: Callable[..., Run]) -> None:
    """Without annotations, and with the grids of replayed kernels, which CUDA's traces state."""

    def gridded(made: Made) -> None:
        parts = {(truth.start, truth.part.stream): truth.part for truth in made.truth}
        trace = made.files[TRACE]
        trace[:] = [event for event in trace if event["cat"] != "user_annotation"]
        for event in (event for event in trace if event["cat"] == "kernel"):
            if part := parts.get((event["ts"], event["tid"])):
                event["args"] |= {"grid": _graphs.grid(part), "block": [256, 1, 1]}

    truths = _graphs.make().truth
    decoded = [pair for pair in zip(replayed(files(gridded)), truths, strict=True) if pair[1].step < 3]
    known = [(row, truth) for row, truth in decoded if truth.part.part not in ("attn", "embed")]
    assert len(known) == 2 * (8 * LAYERS + 1) - 1
    assert all(row["shape"] == true_shape(truth.part, truth) for row, truth in known)


def test_without_batch_and_grid_the_shapes_stay_unknown(files: Callable[..., Run]) -> None:
    def unannotated(made: Made) -> None:
        trace = made.files[TRACE]
        trace[:] = [event for event in trace if event["cat"] != "user_annotation"]

    run = files(unannotated)
    decode = [row for row, truth in zip(replayed(run), _graphs.make().truth, strict=True) if truth.step < 3]
    assert {row["shape"] for row in decode} == {None}
    assert [row["layer"] for row in decode] == [t.part.layer for t in _graphs.make().truth if t.step < 3]
    assert "no shapes, because the replayed batch size is unknown" in run.meta["captured"]


def test_a_capture_that_names_no_kernels_is_aligned_by_position(files: Callable[..., Run]) -> None:
    """CUDA's captures name none: the first step runs on one stream, the second has two and is left alone."""

    def nameless(made: Made) -> None:
        for name, events in made.files.items():
            for event in events:
                if name != TRACE:
                    event["args"].pop("kernel", None)
                elif event["ts"] < 20_000 and event["tid"] == 2:
                    event["tid"] = 1
        made.files.pop("capture_traces/bs_64_rank0.json")

    made = _graphs.make()
    nameless(made)
    run = files(nameless)
    assert "aligned by position alone" in run.meta["captured"]
    first = [row for row, truth in zip(replayed(run), made.truth, strict=True) if truth.step == 1]
    launches = sorted((t for t in made.truth if t.step == 1), key=lambda t: t.start)
    assert len(first) == len(launches) and all(row["path"] for row in first)
    assert {row["path"] for row, t in zip(replayed(run), made.truth, strict=True) if t.step == 2} == {None}


def test_where_order_does_not_tell_launches_apart_only_the_common_is_told(files: Callable[..., Run]) -> None:
    """The shared product runs the kernel of the next one: which of the two ran on which stream?

    Where the kernel behind them is lost, the one after it may be either of them, too.
    """

    def alike(made: Made) -> None:
        for event in (event for events in made.files.values() for event in events):
            event["name"] = event["name"].replace(_graphs.SIDE, _graphs.GEMM)
            if event["args"].get("kernel") == _graphs.SIDE:
                event["args"]["kernel"] = _graphs.GEMM

    rows = replayed(files(alike))
    for row, truth in zip(rows, _graphs.make().truth, strict=True):
        part = truth.part
        doubtful = part.part in ("shared", "gate_up")
        doubtful |= part.part == "down" and (truth.step, part.layer) == _graphs.LOST[:2]
        assert row["layer"] == part.layer
        assert row["shape"] == (None if doubtful else true_shape(part, truth))


def test_names_that_are_mangled_on_one_side_are_the_same(files: Callable[..., Run]) -> None:
    captured, printed = (
        "_ZN5aiter14rmsnorm_kernelIfLi64EEEvPT_",
        "void aiter::rmsnorm_kernel<float, 64>(float*)",
    )

    def mangled(made: Made) -> None:
        for event in (event for events in made.files.values() for event in events):
            if event["args"].get("kernel") == "rmsnorm_kernel":
                event["args"]["kernel"] = captured
            elif event["name"] == "rmsnorm_kernel":
                event["name"] = printed

    run = files(mangled)
    assert "83 of 83 kernels aligned" in run.meta["captured"]
