"""NVTX ranges of Nsight Systems: how they nest, whose kernels lie in them, and the steps that they make."""

from pathlib import Path

import polars as pl

from capture.load_runs import load
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders._nsys_file import call, kernel, range_, truth, write
from tests.capture.loaders._rows import matching, notices
from tests.conftest import shared


def test_innermost_range_of_every_kernel_equals_a_plain_search() -> None:
    path = shared("samples/nsys/h100_2gpu_1s.sqlite")
    (run,) = load(path)
    launched = truth(
        path,
        "SELECT k.start, k.end, k.globalPid, r.globalTid, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
        "AND r.globalTid / 16777216 = k.globalPid / 16777216",
    )
    ranges = truth(path, "SELECT start, end, globalTid, text FROM NVTX_EVENTS WHERE eventType = 59")
    expected = {}
    for start, end, process, thread, at in launched[::7]:
        around = sorted((s, -e, text) for s, e, t, text in ranges if t == thread and s <= at < e)
        names = [str(text).split(", op_id")[0] for _, _, text in around]
        expected[start, end - start, process] = " / ".join(names) or None
    work = matching(run, kind="kernel", lens="gpu")
    got: dict[tuple[int, int], set[str | None]] = {}
    for t, dur, where in work.select("t", "dur", pl.col("path").cast(pl.String)).iter_rows():
        got.setdefault((t, dur), set()).add(where)
    assert len(expected) > 200
    assert all(where in got[t, dur] for (t, dur, _), where in expected.items())


def test_ranges_that_cross_give_no_path(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.sqlite",
        {
            nsys.KERNEL: [kernel(1000, 1010, i, 10, 1) for i in (1, 2)],
            nsys.RUNTIME: [call(12, 1, 10, 10), call(25, 2, 10, 10)],
            nsys.NVTX: [
                range_(0, 100, "outer", 10, 10),
                range_(10, 20, "push", 10, 10),
                range_(15, 30, "free", 10, 10, style=60),
            ],
        },
    )
    (run,) = load(path)
    assert notices(run)["nvtx_crossing"] == 1
    paths = matching(run, kind="kernel")["path"].cast(pl.String).to_list()
    assert paths == ["outer / push", "outer"]
    (free,) = matching(run, name="free").to_dicts()
    assert (free["path"], free["dur"]) == (None, 15)


def test_equal_and_empty_ranges_nest(tmp_path: Path) -> None:
    same_time = [range_(10, 20, n, 10, 10) for n in ("a", "b")]
    empty = [range_(10, 10, "flash", 10, 10), range_(20, 20, "after", 10, 10)]
    path = write(
        tmp_path / "x.sqlite",
        {
            nsys.KERNEL: [kernel(1000, 1010, 1, 10, 1)],
            nsys.RUNTIME: [call(15, 1, 10, 10)],
            nsys.NVTX: [*same_time, *empty],
        },
    )
    (run,) = load(path)
    assert matching(run, kind="kernel")["path"].cast(pl.String).to_list() == ["a / b"]
    assert "nvtx_crossing" not in notices(run)


def test_ranges_that_end_together_nest_and_those_that_end_before_they_start_are_counted(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "x.sqlite",
        {
            nsys.KERNEL: [kernel(1000, 1010, 1, 10, 1)],
            nsys.RUNTIME: [call(15, 1, 10, 10)],
            nsys.NVTX: [
                range_(0, 20, "outer", 10, 10),
                range_(5, 20, "middle", 10, 10),
                range_(10, 20, "inner", 10, 10),
                range_(30, 25, "backwards", 10, 10),
            ],
        },
    )
    (run,) = load(path)
    paths = matching(run, kind="kernel")["path"].cast(pl.String).to_list()
    assert paths == ["outer / middle / inner"] and "nvtx_crossing" not in notices(run)
    assert notices(run)["bad_range"] == run.log.dropped == 1


def test_prefill_is_step_zero_and_decode_steps_count_from_one(tmp_path: Path) -> None:
    names = ["prefill", "decode", "decode", "decode"]
    ranges = [range_(100 * i, 100 * i + 90, n, 10, 10) for i, n in enumerate(names)]
    path = write(
        tmp_path / "x.sqlite",
        {
            nsys.KERNEL: [kernel(1000 + i, 1001 + i, i, 10, 1) for i in range(4)],
            nsys.RUNTIME: [call(100 * i + 10, i, 10, 10) for i in range(4)],
            nsys.NVTX: ranges,
        },
    )
    (run,) = load(path)
    steps = [(s["step"], s["phase"], s["t"], s["dur"]) for s in matching(run, kind="step").to_dicts()]
    assert steps == [
        (0, "prefill", 0, 90),
        (1, "decode", 100, 90),
        (2, "decode", 200, 90),
        (3, "decode", 300, 90),
    ]
    assert matching(run, kind="kernel")["step"].to_list() == [0, 1, 2, 3]


def test_a_thread_with_its_own_ranges_borrows_only_the_step(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.sqlite",
        {
            nsys.KERNEL: [kernel(1000, 1010, 1, 10, 1), kernel(1100, 1110, 2, 10, 1)],
            nsys.RUNTIME: [call(55, 1, 10, 99), call(75, 2, 10, 99)],
            nsys.NVTX: [
                range_(0, 100, "step 4", 10, 10),
                range_(40, 90, "backward", 10, 10),
                range_(50, 60, "MmBackward0", 10, 99),
            ],
        },
    )
    (run,) = load(path)
    placed = matching(run, kind="kernel").select(pl.col("path").cast(pl.String), "step").rows()
    assert placed == [("MmBackward0", 4), (None, 4)]
    assert "nvtx_lent" not in notices(run)


def test_very_deep_nesting_is_bounded(tmp_path: Path) -> None:
    deep = [range_(i, 10_000 - i, f"r{i}", 10, 10) for i in range(200)]
    (run,) = load(write(tmp_path / "x.sqlite", {nsys.NVTX: deep}))
    assert matching(run, kind="span").height == 200
    assert notices(run)["nvtx_deep"] == 136


def test_pytorch_ranges_lose_their_running_numbers(tmp_path: Path) -> None:
    names = [
        "aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 4]], input_op_ids = [[1,0]]",
        "aten::mm, op_id = 8",
    ]
    ranges = [range_(10 * i, 10 * i + 5, n, 10, 10) for i, n in enumerate(names)]
    (run,) = load(write(tmp_path / "x.sqlite", {nsys.NVTX: ranges}))
    assert run.events["name"].cast(pl.String).to_list() == ["aten::mm", "aten::mm"]
    assert run.events["shape"].cast(pl.String).to_list() == ["[[2, 3], [3, 4]]", None]
    assert notices(run)["torch_numbers"] == 2
