"""When the next picture of a growing file is made: soon after a step has come, at a small part of a core."""

import time
from collections.abc import Callable
from typing import Final

EVERY: Final = 0.01  # seconds between two looks at the file, where a picture of it may be made
REFRESH: Final = 0.25  # seconds between two pictures of it
PATIENCE: Final = 0.1  # seconds that a picture which is due waits for a step, so that it shows a new one
LEISURE: Final = 10  # of all the time, the part that making pictures takes is one in so many at most
LAST: Final = 8  # pictures whose mean is what one costs
SLOWEST: Final = 0.5  # seconds between two pictures, whatever they cost


class Pace:
    """When the next picture is due: rarely enough that pictures take but a part of a core."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.process_time
    ) -> None:
        """`clock` tells seconds, `spent` those of the processor that this program has taken."""
        self._clock, self._spent = clock, spent
        self._news = False  # that no picture shows yet
        self._due, self._began, self._before = 0.0, 0.0, spent()
        self._cost = 0.0  # of a picture, as the last ones were: one in which steps are folded delays no other

    def is_due(self, fresh: bool) -> bool:
        """Return whether to show what is there: at once when something has just come, else with patience."""
        self._began, self._news = self._clock(), self._news or fresh
        since = self._began - self._due
        return (fresh and since >= 0) or (self._news and since >= PATIENCE)

    def shown(self, *, leisurely: bool) -> None:
        """Plan the next picture after one was shown, later where they are costly."""
        before, self._before = self._before, self._spent()
        if leisurely:
            self._cost += (self._before - before - self._cost) / LAST
        self._news, self._due = False, self._began + min(SLOWEST, max(REFRESH, LEISURE * self._cost))

    def rest(self) -> float:
        """Return the seconds until the next look: one comes just before a picture is due."""
        return max(EVERY, self._due - EVERY - self._clock())
