"""What a summary sends a reader to, by hand: each thing only where it is to be seen."""

import pytest

from capture.run import Run
from tests.tracetui.analysis.test_gap_causes import kernel
from tests.tracetui.runs import decode, launch_bound, made
from tracetui.analysis.next_looks import next_looks
from tracetui.look import Look
from tracetui.report import report
from tracetui.views import view


def looks(run: Run) -> dict[str, str]:
    return dict(next_looks(run))


def test_what_grows_is_told_by_its_time_a_token_at_both_ends() -> None:
    """Of 40 steps the first ten have contexts of 21 on average, the last ten of 81; a step has two tokens."""
    first, last = (4 * (100 + 10 * context) / 2 for context in (21, 81))
    told = f"attn.core grows: {first:.1f} µs a token at first, {last / 1000:.3f} ms at last"
    assert looks(decode())["growth"] == told


@pytest.mark.parametrize("steps", [4, 6])
def test_of_few_steps_or_a_level_op_no_growth_is_told(steps: int) -> None:
    assert "growth" not in looks(decode(steps=steps))
    level = [
        {**row, "dur": 400_000} if row["kind"] == "kernel" else row
        for row in decode().events.drop("op", "category").to_dicts()
    ]
    assert "growth" not in looks(made(level))


def test_the_largest_kernel_is_told_with_its_share() -> None:
    rows = [{"name": "gemm", "dur": 750}, {"name": "norm", "dur": 250}]
    assert next_looks(made([{"kind": "kernel", **row} for row in rows])) == [
        ("kernels", "gemm takes 75.0% of the time")
    ]


def test_a_device_that_idles_is_told_and_one_that_works_is_not() -> None:
    idle, busy = ([kernel(0, 10, -5, 3), kernel(start, 10, start - 5, 3)] for start in (30, 11))
    assert looks(made(idle))["timeline"] == "when gpu0 idles: 50.0% of the time"
    assert "timeline" not in looks(made(busy))


def test_at_most_three_are_told_and_each_has_its_key() -> None:
    run = launch_bound()
    found = next_looks(run)
    assert 1 <= len(found) <= 3 and found[0].view == "fix"
    lines = report(view("summary"), [decode()], Look(), width=80).splitlines()
    assert [line[5:6] for line in lines if line[5:6].strip() and line[:5] in ("next ", "     ")][:2] == [
        "3",
        "2",
    ]


def test_what_cannot_be_told_stands_with_what_to_record() -> None:
    run = made([{"kind": "kernel", "name": "gemm", "dur": 5}])
    text = report(view("summary"), [run], Look(), width=100)
    assert "growth, steps" in text and text.count("needs step\n") == 1
    assert "call prof.step() in the loop" in text
