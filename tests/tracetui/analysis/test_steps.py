"""Steps beside their wall times, by value."""

import pytest

from tests.tracetui.runs import decode, made
from tracetui.analysis.steps import step_table
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
