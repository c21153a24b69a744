"""The first steps of a thread, held until it is known whose they are: a draft is called before its target."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .calls import EndedStep

MOST: Final = 8  # steps that are held
LONGEST_NS: Final = 2_000_000_000  # from the beginning of the first, so that a screen is not kept waiting


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

    def take_back(self) -> list[int] | None:
        """Return the rows of what is held, which are no steps after all; None where they are written."""
        if self._held is None:
            return None
        held, self._held = self._held, []
        return [row for step in held for row in step.rows]
