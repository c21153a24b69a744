"""One thread of a watched program: its calls as rows, and the steps that they make."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from .calls import Call, EndedStep, Step, innermost, part_around
from .first_steps import FirstSteps
from .inputs import Length, find_length, first_batch
from .kernels import MARK
from .launch_order import with_owners
from .op_numbers import ModuleOps
from .phases import Phases
from .root import Device, Root
from .stack import CallStack

if TYPE_CHECKING:
    from .graphs import Known
    from .shared import Shared

HELD: Final = 8192  # rows that wait for the end of their step
GAPS: Final = 9  # of the last steps, whose median is the usual one


class ThreadWatch:
    """Is told of every call on one thread, from the outside in."""

    def __init__(self, shared: Shared, track: str | None) -> None:
        self.track = track
        self._shared, self._graphs, self._windows = shared, shared.graphs, shared.windows
        self._ops = ModuleOps(shared.recording.ops, shared.names, track)
        self.stack = CallStack(self, self._ops)
        self._rows: list[int] = []  # op, start, duration of each, flat: for the collector
        self._root = Root()
        self._device = Device()
        self._first = FirstSteps(shared.recording.later)
        self._step: Step | None = None
        self._phases = Phases()
        self._gaps: deque[int] = deque(maxlen=GAPS)
        self._last_end: int | None = None  # of the last call that was not within another one
        self._last_part = ""

    def enter_outermost(self, module: Any, args: Any, kwargs: Any) -> Call:
        """Note that a module is called from outside of any; a call of the root may begin a step."""
        with self._shared.unseen():
            self._take_outermost(module, args, kwargs)
        return self._enter(module)

    def enter_inner(self, module: Any, args: Any, kwargs: Any) -> Call:
        """Note that a module is called within another one."""
        step = self._step
        if step is not None and step.looks_for_length and not self._shared.is_traced():
            with self._shared.unseen():
                self._look_for_length(step, args, kwargs)
        return self._enter(module)

    def open_log(self) -> list[Any] | None:
        """Return where calls within the one that was just entered may be noted until it is left: module and
        time each, the time below zero where one is left. None where each is to be told as it is made.
        """
        looks = self._step is not None and self._step.looks_for_length
        return None if looks or self._graphs.capturing or self._windows.owner is self else self.stack.log

    def _enter(self, module: Any) -> Call:
        self._read_log()
        if self._graphs.capturing:
            around = innermost(self.stack.calls)
            self._graphs.border(None if around is None else self._shared.names.of(around))
            self._graphs.enter(module)
        call = self.stack.push(module, "")
        if self._windows.is_open(self):
            call.mark = self._shared.annotate(MARK + self._shared.names.of(module))
        call.start = now()
        return call

    def enter_replay(self, root: Any, known: Known | None) -> Call:
        """Note that a graph is replayed: outside of any module, a call of the one it was captured from."""
        if self.stack.modules == 0 and root is not None:
            with self._shared.unseen():
                self._take_outermost(root, (), {})
        call = self.enter_part("replay")
        if self._step is not None and known is not None and known.order is not None:
            self._step.orders.append(known.order)
        return call

    def enter_part(self, part: str) -> Call:
        """Note that the thread goes backward, or into the optimizer or its data."""
        self._read_log()
        if not self.stack.calls:
            self._end_gap(now())
        call = self.stack.push(None, part)
        call.start = now()
        return call

    def leave(self, call: Call) -> None:
        """Note that a call is over; those within it that were never left are forgotten."""
        end, part, mark = now(), call.part, call.mark
        self._read_log()
        if self._graphs.capturing and call.module is not None:
            self._graphs.border(self._shared.names.of(call.module))
        if not self.stack.pop(call, end):
            return
        if mark is not None:
            call.mark = None
            mark.__exit__(None, None, None)
        self._rows += self._number(call), call.start, end - call.start - call.inner
        self.stack.release(call)
        if part:
            self.note_part(part)
        if not self.stack.calls:
            self._last_end, self._last_part = end, "forward" if part in ("", "replay") else part
            if len(self._rows) > 3 * HELD:
                self._shared.recording.rows(self._take_rows(), None, None)

    def _read_log(self) -> None:
        """Take the calls of the log that are over as rows."""
        if self.stack.log:
            self._rows += self.stack.read_log(self._phase())

    def close(self, at: int | None) -> None:
        """End the step that is open: with the thread, when that is, or with its last call."""
        if self._step is not None and self._last_end is not None and not self.stack.calls:
            if at is not None:
                self._end_gap(at)
            self._end_step(self._last_end if at is None else at, None, is_last=True)
        self._first.settle()
        self.stack.clear()
        self._last_end = None

    def settle(self) -> None:
        """Have the steps that have ended written."""
        self._first.settle()

    def _number(self, call: Call) -> int:
        if call.module is None:
            return self._shared.recording.ops.of_part(call.part, self._ops.lens, self.track)
        return self._ops.of(call.module, has_inner=call.inner > 0, phase=self._phase())

    def _phase(self) -> str | None:
        """Return the part of a training step that the thread is in; None in other steps."""
        training = self._step is not None and self._step.training
        return part_around(self.stack.calls) if training else None

    def note_part(self, part: str) -> None:
        """Take from a part of a training step whether the step is complete."""
        if self._step is not None and self._step.training:
            has_optimizer = self._shared.has_optimizer
            if part == "optimizer" or (part == "backward" and not has_optimizer):
                self._step.is_complete = True

    def _take_outermost(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take a call from outside of any module; one of the root may begin a step."""
        calls = self.stack.calls
        if any(call.part == "backward" for call in calls):
            return
        self._shared.recording.forwards += 1
        within = calls[0] if calls else None  # an optimizer that calls the model by itself
        at = within.start if within else now()
        if not within:
            self._end_gap(at)
        is_begun = self._step is not None and self._step.start == at
        if self._is_root(module) and not is_begun:
            self._step_over(at, module, args, kwargs, is_own=within is None)

    def _step_over(self, at: int, module: Any, args: Any, kwargs: Any, *, is_own: bool) -> None:
        """Begin the next step, unless this is a further forward of the same training step.

        It holds what the recorder does then, as a row: the last step is written, a window begun or read.
        """
        training = self._shared.trains and module.training and self._shared.torch.is_grad_enabled()
        if training and self._step is not None and self._step.goes_on:
            return
        self._begin_step(at, module, args, kwargs, training=training)
        if is_own:
            op = self._shared.recording.ops.of_part("recording", self._ops.lens, self.track)
            self._rows += op, at, now() - at

    def _begin_step(self, at: int, module: Any, args: Any, kwargs: Any, *, training: bool) -> None:
        step = Step(at, training=training)
        step.generates = hasattr(type(module), "generate")
        self._look_for_length(step, args, kwargs)
        if step.length is None:
            step.batch = first_batch(args, kwargs)
        if self._step is not None:
            self._end_step(at, step.length, is_last=False)
        elif self._rows:
            self._shared.recording.rows(self._take_rows(), None, None)
        self._step = step
        self._windows.open(self, gpu=self._ops.lens == "host")

    def _look_for_length(self, step: Step, args: Any, kwargs: Any) -> None:
        step.looked_at += 1
        step.length = find_length(args, kwargs)

    def _is_root(self, module: Any) -> bool:
        """Return whether a call of a module from outside of any is one of the root."""
        size, outgrown = self._shared.names.size(module), self._root.outgrown
        if not self._root.is_called(module, size):
            return False
        if self._root.outgrown > outgrown:
            self._forget_first_steps()
        lens = "wall" if self._device.of(module) == "cpu" else "host"
        if lens != self._ops.lens:
            self._ops.forget()
            self._ops.lens = lens
        return True

    def _forget_first_steps(self) -> None:
        """Make rows of no step of the steps that are held: a larger model makes the steps."""
        rows = self._first.take_back()
        if rows is None:
            return
        if self._windows.owner is self:
            self._windows.drop()
        self._step, self._phases = None, Phases()
        self._gaps.clear()
        self._shared.recording.rows([*rows, *self._take_rows()], None, None)

    def _end_gap(self, at: int) -> None:
        """Add what lay between the last call and this moment as a row of its own."""
        if self._last_end is None or self._step is None or at <= self._last_end:
            return
        part = "host"
        if self._last_part == "forward":
            part = "loss" if self._step.training else "sampling" if self._answers else "host"
        number = self._shared.recording.ops.of_part(part, self._ops.lens, self.track)
        self._rows += number, self._last_end, at - self._last_end

    @property
    def _answers(self) -> bool:
        """Whether the step takes tokens, of which the next is chosen after it."""
        return self._step is not None and self._step.length is not None

    def _end_step(self, end: int, coming: Length | None, *, is_last: bool) -> None:
        step, self._step = self._step, None
        assert step is not None  # noqa: S101
        if is_last or (not step.training and self._phases.begins_anew(coming)):
            end = self._cut_gap(end)
        elif self._last_end is not None:
            self._gaps.append(end - self._last_end)
        facts = None
        if not step.training:
            facts = self._phases.facts(step.length, coming, generates=step.generates)
            if facts.batch is None and step.batch is not None:
                facts = facts._replace(batch=step.batch)
        took, windows = end - step.start, self._windows
        seen = windows.close(took, len(self._rows) // 3) if windows.owner is self else None
        if seen is None:
            windows.add_plain_step(took)
        elif step.orders:
            seen = with_owners(seen, step.orders)
        cost = 0 if seen is None else windows.overhead_ns
        rows, lens = self._take_rows(), self._ops.lens
        self._first.add(EndedStep(step.start, took, rows, facts, self.track, lens, seen, cost))

    def _cut_gap(self, end: int) -> int:
        """Return the end of a step that no other follows at once: as long after its work as is usual."""
        last = self._last_end
        if last is None or end <= last:
            return end
        usual = sorted(self._gaps)[len(self._gaps) // 2] if self._gaps else 0
        kept = min(end - last, usual)
        if self._rows and self._rows[-2] == last:
            if kept:
                self._rows[-1] = kept
            else:
                del self._rows[-3:]
        return last + kept

    def _take_rows(self) -> list[int]:
        rows, self._rows = self._rows, []
        return rows
