"""Calls of a watched thread while they last, and the steps that they make."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inputs import Length
    from .launch_order import LaunchOrder


class Call:
    """A call of a module, or of another part of the program, while it lasts."""

    __slots__ = ("inner", "mark", "module", "part", "start", "watch")

    def __init__(self, watch: Any, module: Any, part: str) -> None:
        self.watch, self.module, self.part = watch, module, part
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


def innermost(calls: list[Call]) -> Any:
    """Return the innermost module that is called; None where none is."""
    return next((call.module for call in reversed(calls) if call.module is not None), None)


def part_around(calls: list[Call]) -> str:
    """Return what the calls lie in: backward calls modules again where activations were not kept."""
    parts = (call.part for call in calls if call.part in ("backward", "optimizer"))
    return next(parts, "forward")
