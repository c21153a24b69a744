"""A few kills of engine and explorer; `python -m tests.kills --kills 300` does it as often as one likes."""

import sys
from pathlib import Path

import pytest

from tests.kills import Left, faults, storm, table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.terminal,
    pytest.mark.skipif(sys.platform != "linux", reason="the parent's death is a signal on Linux"),
]


def test_a_kill_costs_at_most_a_tenth_of_a_second_and_leaves_nobody(tmp_path: Path) -> None:
    actual = storm(2, 7, tmp_path)
    assert {victim: len(lefts) for victim, lefts in actual.items()} == {
        "engine": 2,
        "explorer": 2,
        "start": 2,
    }
    assert not faults(actual), table(actual)


def test_what_a_kill_may_not_cost_is_a_fault() -> None:
    good, late, torn, orphan = Left(90, 0, 0, 0), Left(10**9, 0, 0, 0), Left(0, 1, 0, 0), Left(0, 0, 0, 1)
    assert faults({"engine": [good, late], "explorer": [torn, orphan]}) == [late, torn, orphan]
