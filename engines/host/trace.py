"""Runs the ops of a step and writes down when each began and ended.

One clock reading an op: an op ends where the next begins, so that the rows of a step add up to it.
"""

from collections.abc import Callable, Sequence
from operator import sub
from typing import Any

from capture.native.emit import Emitter, now
from engines.plan import Row

Op = Callable[[], None]


class Ledger:
    """Numbers rows and writes the plan that tells what they are, once for every distinct step."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._known: dict[tuple[Row, ...], list[int]] = {}
        self._next = 0

    def numbers(self, rows: tuple[Row, ...]) -> list[int]:
        """The op numbers of a step's rows."""
        if rows not in self._known:
            start, self._next = self._next, self._next + len(rows)
            self._known[rows] = list(range(start, self._next))
            self._emitter.plan(r.as_op(i) for i, r in zip(self._known[rows], rows, strict=True))
        return self._known[rows]


class Ticks:
    """The clock readings of one step: the start, then the end of every row."""

    __slots__ = ("at",)

    def __init__(self, start: int) -> None:
        self.at: list[int] = [start]

    def mark(self) -> None:
        """The row in hand ends here."""
        self.at.append(now())

    def run(self, ops: Sequence[Op]) -> None:
        """Every op, and a reading after each."""
        add = self.at.append
        for op in ops:
            op()
            add(now())

    @property
    def end(self) -> int:
        return self.at[-1]

    @property
    def durations(self) -> list[int]:
        return list(map(sub, self.at[1:], self.at))

    def write(self, emitter: Emitter, numbers: Sequence[int], **facts: Any) -> None:
        """A `columns` line: a row for every reading but the first."""
        emitter.columns(numbers, self.at[:-1], self.durations, **facts)
