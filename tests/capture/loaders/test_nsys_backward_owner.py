"""Backward operators in Nsight Systems exports: they stand in the module of their forward operator."""

from pathlib import Path

import polars as pl

from capture.load_runs import load
from capture.run import Run
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders._nsys_file import call, kernel, range_, write
from tests.capture.loaders._rows import matching, notices

ENGINE = "autograd::engine::evaluate_function: "


def numbered(folder: Path, *more: list[object]) -> Run:
    """A forward op in a module, its backward op on autograd's thread, and a kernel launched by each."""
    ranges = [
        range_(0, 1000, "step 4", 10, 10),
        range_(10, 300, "forward_pass", 10, 10),
        range_(20, 200, "layers.3", 10, 10),
        range_(30, 100, "aten::linear, seq = 7, op_id = 1", 10, 10),
        range_(40, 50, "aten::t, seq = 7, op_id = 2", 10, 10),
        range_(60, 90, "aten::mm, seq = 8, op_id = 3", 10, 10),
        range_(400, 900, "backward", 10, 10),
        range_(500, 600, f"{ENGINE}MmBackward0, seq = 8, op_id = 9", 10, 99),
        range_(510, 590, "MmBackward0, seq = 8, op_id = 10", 10, 99),
        range_(700, 750, f"{ENGINE}torch::autograd::AccumulateGrad, op_id = 11", 10, 99),
        *more,
    ]
    moments = {1: (70, 10), 2: (520, 99), 3: (710, 99), 4: (810, 99)}
    tables = {
        nsys.KERNEL: [kernel(1000 * n, 1000 * n + 10, n, 10, 1) for n in moments],
        nsys.RUNTIME: [call(at, n, 10, thread) for n, (at, thread) in moments.items()],
        nsys.NVTX: ranges,
    }
    (run,) = load(write(folder / "x.sqlite", tables), cache=False)
    return run


def placed(run: Run) -> list[tuple[object, ...]]:
    work = matching(run, kind="kernel").sort("t")
    return work.select(pl.col("path", "phase").cast(pl.String), "layer", "step").rows()


def test_a_backward_op_stands_in_the_module_of_its_forward_op(tmp_path: Path) -> None:
    run = numbered(tmp_path)
    back = f"step / backward / layers.3 / {ENGINE}MmBackward0 / MmBackward0"
    assert placed(run) == [
        ("step / forward_pass / layers.3 / aten::linear / aten::mm", "forward", 3, 4),
        (back, "backward", 3, 4),
        (f"step / backward / {ENGINE}torch::autograd::AccumulateGrad", "backward", None, 4),
        (None, None, None, 4),
    ]
    (inner,) = (
        matching(run, name="MmBackward0").select(pl.col("path").cast(pl.String), "layer", "step").rows()
    )
    assert inner == (f"step / backward / layers.3 / {ENGINE}MmBackward0", 3, 4)
    assert notices(run)["backward_owners"] == 1


def test_numbers_of_two_threads_or_of_none_name_no_module(tmp_path: Path) -> None:
    twice = numbered(tmp_path, range_(60, 90, "aten::mm, seq = 8, op_id = 30", 10, 55))
    assert placed(twice)[1] == (f"step / backward / {ENGINE}MmBackward0 / MmBackward0", "backward", None, 4)
    assert notices(twice)["backward_strangers"] == 1
    (tmp_path / "x.sqlite").unlink()
    late = numbered(tmp_path, range_(800, 820, f"{ENGINE}TBackward0, seq = 99, op_id = 31", 10, 99))
    assert placed(late)[3] == (f"step / backward / {ENGINE}TBackward0", "backward", None, 4)
    assert (notices(late)["backward_owners"], notices(late)["backward_strangers"]) == (1, 1)


def test_numbers_within_a_backward_op_are_not_the_forward_pass(tmp_path: Path) -> None:
    """What is computed once more on the way back counts in its own thread's numbers."""
    again = [
        range_(520, 580, f"{ENGINE}MulBackward0, seq = 7, op_id = 21", 10, 99),
        range_(515, 518, "aten::mul, seq = 8, op_id = 20", 10, 99),
    ]
    run = numbered(tmp_path, *again)
    assert placed(run)[1][2] == 3
    assert notices(run)["backward_owners"] == 1


def test_a_backward_op_on_the_forwards_own_thread_is_led_as_well(tmp_path: Path) -> None:
    here = [range_(800, 820, f"{ENGINE}TBackward0, seq = 7, op_id = 31", 10, 10)]
    run = numbered(tmp_path, *here)
    (op,) = (
        matching(run, kind="span").filter(pl.col("t") == 800).select(pl.col("path", "phase").cast(str)).rows()
    )
    assert op == ("step / backward / layers.3", "backward")
    steps = matching(run, kind="step")
    assert steps.select("step", "t", "dur").rows() == [(4, 0, 1000)]


def test_the_numbers_of_older_torch_are_read(tmp_path: Path) -> None:
    old = range_(800, 820, "TBackward, stashed seq = 7", 10, 99)
    assert placed(numbered(tmp_path, old))[3] == ("step / backward / layers.3 / TBackward", "backward", 3, 4)
