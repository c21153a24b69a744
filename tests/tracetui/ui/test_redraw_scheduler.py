"""The pace of pictures: which of the steps that come every tenth of a second are shown at once."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tracetui.ui.workers.follow_file import (
    COST_FACTOR,
    COST_REDRAWS,
    MOST_INTERVAL_S,
    POLL_INTERVAL_S,
    REDRAW_INTERVAL_S,
    STEP_WAIT_S,
    RedrawScheduler,
)


class Machine:
    """A clock that stands still but for what is let pass; steps come at full tenths of a second."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0
        self.pace = RedrawScheduler(lambda: self.now, lambda: self.spent)
        self._read = -1

    def pictures(self, costs: list[float], every: float = 0.1) -> Iterator[float]:
        """Yield when each picture is made, of which each costs what is given."""
        for cost in costs:
            while not self.pace.is_due(self._grown(every)):
                self.now += self.pace.compute_wait()
            yield self.now
            self.spent += cost
            self.pace.record_redraw(leisurely=True)
            self.now += cost

    def _grown(self, every: float) -> bool:
        came, self._read = self._read, int((self.now + 1e-9) / every)
        return self._read > came


def waits(costs: list[float], every: float = 0.1) -> list[float]:
    """Return the seconds between pictures, the first ones left out."""
    times = list(Machine().pictures(costs, every))
    return [b - a for a, b in pairwise(times[3:])]


def test_every_third_of_ten_steps_a_second_is_shown_as_soon_as_it_is_there() -> None:
    assert all(wait == pytest.approx(0.3, abs=2 * POLL_INTERVAL_S) for wait in waits([0.015] * 40))


def test_pictures_take_no_more_than_their_part_of_the_time() -> None:
    apart = waits([0.03] * 60, every=0.001)
    assert apart[-1] == pytest.approx(COST_FACTOR * 0.03, abs=2 * POLL_INTERVAL_S)
    assert waits([0.2] * 60, every=0.001)[-1] == pytest.approx(MOST_INTERVAL_S, abs=2 * POLL_INTERVAL_S)
    assert waits([0.001] * 20, every=0.001)[-1] == pytest.approx(REDRAW_INTERVAL_S, abs=2 * POLL_INTERVAL_S)


def test_one_costly_picture_delays_the_next_by_its_share_alone() -> None:
    costs = [0.03] * 40
    costs[20] = 0.03 + 0.04
    times = list(Machine().pictures(costs, every=0.001))
    assert times[21] - times[20] == pytest.approx(
        COST_FACTOR * (0.03 + 0.04 / COST_REDRAWS), abs=3 * POLL_INTERVAL_S
    )


def test_what_has_come_is_shown_with_patience_where_nothing_follows() -> None:
    machine = Machine()
    assert machine.pace.is_due(fresh=False) is False
    machine.now = 10.0
    assert machine.pace.is_due(fresh=True)
    machine.pace.record_redraw(leisurely=False)
    machine.now = 10.1
    assert not machine.pace.is_due(fresh=True)  # it is too soon
    machine.now = 10.0 + REDRAW_INTERVAL_S + STEP_WAIT_S / 2
    assert not machine.pace.is_due(fresh=False)
    machine.now = 10.0 + REDRAW_INTERVAL_S + STEP_WAIT_S + POLL_INTERVAL_S
    assert machine.pace.is_due(fresh=False)


def test_nobody_looks_while_no_picture_may_be_made() -> None:
    machine = Machine()
    machine.now = 5.0
    assert machine.pace.is_due(fresh=True)
    machine.pace.record_redraw(leisurely=False)
    assert machine.pace.compute_wait() == pytest.approx(REDRAW_INTERVAL_S - POLL_INTERVAL_S)
    machine.now += 1.0
    assert machine.pace.compute_wait() == POLL_INTERVAL_S
