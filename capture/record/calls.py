"""Calls of a watched thread while they last, and the steps that they make."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from .inputs import Length
    from .kernels import Window
    from .launch_order import LaunchOrder
    from .phases import Facts

LOOKED_AT: Final = 8  # modules whose inputs are searched for the tokens of a step


class Call:
    """A call of a module, or of another part of the program, while it lasts."""

    __slots__ = ("inner", "mark", "module", "part", "start", "watch")

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.module: Any = None  # None of a part
        self.part = ""
        self.mark: Any = None
        self.inner = 0  # ns within the calls that it made
        self.start = 0  # by the clock, read last of all


class Step:
    """What lies between the beginning of one step and the next."""

    __slots__ = (
        "batch",
        "generates",
        "is_complete",
        "length",
        "looked_at",
        "orders",
        "start",
        "training",
    )

    def __init__(self, start: int, *, training: bool) -> None:
        self.start, self.training = start, training
        self.is_complete = not training  # whether the next call of the root begins another one
        self.length: Length | None = None
        self.batch: int | None = None
        self.looked_at = 0
        self.generates = False
        self.orders: list[LaunchOrder] = []  # of the graphs that were replayed in it

    @property
    def looks_for_length(self) -> bool:
        """Whether inputs of the modules within are searched for tokens still."""
        return self.length is None and self.looked_at < LOOKED_AT

    @property
    def goes_on(self) -> bool:
        """Whether a further call of the root in training belongs to it."""
        return self.training and not self.is_complete


class EndedStep(NamedTuple):
    """A step that is over, with its rows and what a profiler window saw in it."""

    start: int
    took: int
    rows: list[int]  # op, start and duration of each, flat
    facts: Facts | None  # None of training
    track: str | None
    lens: str  # of the rows
    seen: Window | None = None
    cost: int = 0  # ns that the window took


def innermost(calls: list[Call]) -> Any:
    """Return the innermost module that is called; None where none is."""
    return next((call.module for call in reversed(calls) if call.module is not None), None)


def part_around(calls: list[Call]) -> str:
    """Return what the calls lie in: backward calls modules again where activations were not kept."""
    parts = (call.part for call in calls if call.part in ("backward", "optimizer"))
    return next(parts, "forward")
