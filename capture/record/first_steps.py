"""The first steps of a thread, held until it is known whose they are: a draft is called before its target."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernels import Window
    from .phases import Facts
    from .shared import Shared

MOST: Final = 8  # steps that are held
LONGEST_NS: Final = 2_000_000_000  # from the beginning of the first, so that a screen is not kept waiting


class EndedStep(NamedTuple):
    """A step that is over, with its rows and what a profiler window saw in it."""

    start: int
    took: int
    rows: list[tuple[int, int, int]]
    facts: Facts | None
    seen: Window | None


class FirstSteps:
    """Passes steps on to `write`: the first ones late, all others at once."""

    def __init__(self, write: Callable[[EndedStep], None]) -> None:
        self._write = write
        self._held: list[EndedStep] | None = []

    def add(self, step: EndedStep) -> None:
        """Take a step that is over."""
        if self._held is None:
            self._write(step)
            return
        self._held.append(step)
        if len(self._held) >= MOST or step.start + step.took - self._held[0].start > LONGEST_NS:
            self.settle()

    def settle(self) -> None:
        """Pass on what is held, and hold no more."""
        held, self._held = self._held, None
        for step in held or ():
            self._write(step)

    def take_back(self) -> list[tuple[int, int, int]] | None:
        """Return the rows of what is held, which are no steps after all; None where they are written."""
        if self._held is None:
            return None
        held, self._held = self._held, []
        return [row for step in held for row in step.rows]


def write(step: EndedStep, shared: Shared, track: str | None, lens: str) -> None:
    """Write a step of a thread whose rows are of this lens, and what a profiler window saw in it."""
    recording, seen = shared.recording, step.seen
    number = recording.step(step.start, step.took, step.rows, step.facts, track)
    if seen is None:
        return
    assert recording.emitter is not None  # noqa: S101
    recording.emitter.cost_ns += shared.windows.overhead_ns
    for what, count in seen.problems.items():
        recording.emitter.mark(f"window of step {number}: {count} {what}", "log")
    of_window = "gpu" if lens == "host" else "host"  # what is not written in every step
    recording.window(of_window, seen.rows, number, step.facts, track)
