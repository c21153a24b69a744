"""What makes two runs hard to compare, from their rows."""

from dataclasses import replace

import pytest

from tests.tracetui.runs import made, recording
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.comparability import _check_matched_share
from tracetui.compare.pairing.row_matching import RowMatch
from tracetui.look import Look


def test_matched_share_is_that_of_the_run_of_which_more_is_matched() -> None:
    """New rows beside all of the other run are a change; rows that replaced most of it may be a program."""
    matches = [RowMatch((0,), (1,), "exact"), RowMatch((1,), (0,), "role"), RowMatch((), (2,), "new")]
    assert list(_check_matched_share(matches, ([60, 40], [40, 60, 10]))) == []
    assert list(_check_matched_share(matches, ([60, 40], [40, 60, 400]))) == []
    gone = [RowMatch(match.b, match.a, match.how) for match in matches]
    assert list(_check_matched_share(gone, ([40, 60, 400], [60, 40]))) == []
    ((factor, reason),) = _check_matched_share(matches[:1], ([50, 50], [20, 60, 120]))
    assert (factor, reason) == (0.5, "only 50% and 30% of the time is in rows that both runs have")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_code_that_one_run_compiled_is_no_other_program(is_compiled: bool) -> None:
    """Most of the time is in rows of one run only; both have the input."""
    name = "## Call CompiledFxGraph f2ka ##" if is_compiled else "other::sum"
    runs = [
        made([{"kind": "kernel", "name": n, "dur": dur} for n, dur in rows], work="operators")
        for rows in ([("aten::randn", 10), ("aten::index", 90)], [("aten::randn", 10), (name, 80)])
    ]
    compared = compare_runs(runs, Look()).comparability
    assert compared.ok == is_compiled and "only 10% and 11% of the time" in compared.reasons[0]


@pytest.mark.parametrize(
    ("meta", "score", "is_comparable"),
    [
        ({"model": "other"}, 0.4, False),
        ({"mode": "train"}, 0.4, False),
        ({"weights": "random", "driver": "2"}, 0.81, True),
        (
            {"dtype": "fp16", "quant": "int4", "device": "other", "weights": "random", "driver": "2"},
            0.59049,
            True,
        ),
    ],
)
def test_one_reason_of_another_kind_decides_and_doubts_add_up(
    meta: dict[str, str], score: float, is_comparable: bool
) -> None:
    common = {
        "mode": "run",
        "weights": "real",
        "driver": "1",
        "dtype": "fp32",
        "quant": "none",
        "device": "cpu",
    }
    run = recording("a")
    a, b = (replace(run, meta={**run.meta, **common, **own}) for own in ({}, meta))
    actual = compare_runs((a, b), Look()).comparability
    assert actual.score == pytest.approx(score) and actual.ok == is_comparable
    assert len(actual.reasons) == len(meta)
