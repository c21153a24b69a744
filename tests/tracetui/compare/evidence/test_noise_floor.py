"""The run-to-run spread that is saved with a baseline."""

from typing import Any

import pytest

from tests.tracetui.runs import made
from tracetui.compare.run_sides import NoiseFloor


def test_saved_floor_has_one_degree_less_than_runs() -> None:
    run = made([{"name": "a", "dur": 1}], floor={"spread": 0.02, "runs": 3})
    assert NoiseFloor.from_saved(run) == NoiseFloor(0.02, 2, f"saved with {run.name}, measured on 3 runs")


@pytest.mark.parametrize(
    "saved",
    [None, 3, {}, {"spread": 0.02, "runs": 1}, {"spread": 0.0, "runs": 3}, {"spread": "2", "runs": 3}],
)
def test_saved_floor_that_cannot_be_is_none(saved: Any) -> None:
    assert NoiseFloor.from_saved(made([{"name": "a", "dur": 1}], floor=saved)) is None
