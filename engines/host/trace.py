"""Run the ops of a step and write down when each began and ended.

One clock reading an op: an op ends where the next begins, so that the rows of a step add up to it.
"""

from collections.abc import Callable, Sequence
from operator import sub
from typing import Any

from capture.native.emit import Emitter, now
from engines.plan import Row

Op = Callable[[], None]


class Ledger:
    """Numbers rows and writes the plan that describes them, once for every distinct step."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._numbers: dict[tuple[Row, ...], list[int]] = {}
        self._next = 0

    def numbers(self, rows: tuple[Row, ...]) -> list[int]:
        """Return the op numbers of a step's rows."""
        if rows not in self._numbers:
            start, self._next = self._next, self._next + len(rows)
            self._numbers[rows] = list(range(start, self._next))
            self._emitter.plan(r.as_op(i) for i, r in zip(self._numbers[rows], rows, strict=True))
        return self._numbers[rows]


class Ticks:
    """The clock readings of one step: the start, then the end of every row."""

    __slots__ = ("at",)

    def __init__(self, start: int) -> None:
        self.at: list[int] = [start]

    def mark(self) -> None:
        """Note that the current row ends here."""
        self.at.append(now())

    def run(self, ops: Sequence[Op]) -> None:
        """Run every op, and read the clock after each."""
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
        """Write a `columns` line: a row for every reading but the first."""
        emitter.columns(numbers, self.at[:-1], self.durations, **facts)
