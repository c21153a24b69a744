"""The calls of a watched thread that have not ended, and the log of those that nobody has looked at yet."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Any

from .calls import Call

if TYPE_CHECKING:
    from .op_numbers import ModuleOps


class CallStack:
    """Calls of modules and of other parts of the program, the innermost last.

    Whoever calls modules within others may put module and time of each into the log instead, the time below
    zero where one is left: that is cheap, and is read when somebody asks.
    """

    def __init__(self, watch: Any, ops: ModuleOps) -> None:
        self._watch, self._ops = watch, ops
        self.log: list[Any] = []
        self.calls: list[Call] = []
        self.modules = 0  # of the calls, how many are of modules
        self._spare: list[Call] = []  # that are over, to be used again

    def push(self, module: Any, part: str, at: int = 0) -> Call:
        """Return a call that begins, as the innermost."""
        call = self._spare.pop() if self._spare else Call(self._watch)
        call.module, call.part, call.start, call.inner = module, part, at, 0
        self.modules += module is not None
        self.calls.append(call)
        return call

    def pop(self, call: Call, end: int) -> bool:
        """Take away a call that has ended, and those within it that were never left, which are forgotten.

        Return whether it was there; `release` it when all is known of it.
        """
        calls = self.calls
        if calls and calls[-1] is call:
            calls.pop()
            self.modules -= call.module is not None
        elif call in calls:
            del calls[calls.index(call) :]
            self.modules = sum(other.module is not None for other in calls)
        else:
            return False
        if calls:
            calls[-1].inner += end - call.start
        return True

    def release(self, call: Call) -> None:
        """Let a call that is over be used again; what the program drops of its modules is gone."""
        call.module = None
        self._spare.append(call)

    def read_log(self, phase: str | None) -> list[int]:
        """Return the calls of the log that are over as rows: op, start and duration of each, flat."""
        rows = self._read_whole(phase)
        return self._read_singly(phase) if rows is None else rows

    def _read_whole(self, phase: str | None) -> list[int] | None:
        """Return the rows where each call in the log was also left in it, as is usual; None elsewhere.

        This is what most calls cost besides their place in the log.
        """
        rows: list[int] = []
        modules, starts, inners = [], [], [0]
        known = self._ops.known(phase)
        pairs = iter(self.log)
        for module, at in zip(pairs, pairs):
            if at > 0:
                modules.append(module)
                starts.append(at)
                inners.append(0)
            elif not modules or modules.pop() is not module:
                return None
            else:
                start, inner = starts.pop(), inners.pop()
                inners[-1] -= at + start
                entry = known[inner > 0].get(id(module))
                if entry is None or entry[0]() is not module:
                    op = self._ops.of(module, has_inner=inner > 0, phase=phase)
                else:
                    op = entry[1]
                rows += op, start, -at - start - inner
        if modules:
            return None
        self.log.clear()
        if self.calls:
            self.calls[-1].inner += inners[0]
        return rows

    def _read_singly(self, phase: str | None) -> list[int]:
        """Return the rows of calls that began or end elsewhere, or were never left."""
        rows: list[int] = []
        entries = self.log[:]
        self.log.clear()
        pairs = iter(entries)
        for module, at in zip(pairs, pairs):
            if at > 0:
                self.push(module, "", at)
                continue
            call = next((call for call in reversed(self.calls) if call.module is module), None)
            if call is not None and self.pop(call, -at):
                op = self._ops.of(module, has_inner=call.inner > 0, phase=phase)
                rows += op, call.start, -at - call.start - call.inner
                self.release(call)
        return rows

    def clear(self) -> None:
        """Forget all calls."""
        self.log.clear()
        self.calls, self.modules = [], 0
