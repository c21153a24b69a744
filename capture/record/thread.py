"""One thread of a watched program: its calls as rows, and the steps that they make."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from .calls import Call, Step, innermost, part_around
from .first_steps import EndedStep, FirstSteps, write
from .inputs import Length, find_length, first_batch
from .kernels import MARK
from .launch_order import with_owners
from .op_numbers import ModuleOps
from .phases import Phases
from .root import Device, Root

if TYPE_CHECKING:
    from .graphs import Known
    from .shared import Shared

LOOKED_AT: Final = 8  # modules whose inputs are searched for the tokens of a step
HELD: Final = 8192  # rows that wait for the end of their step
GAPS: Final = 9  # of the last steps, whose median is the usual one


class ThreadWatch:
    """Is told of every call on one thread, from the outside in."""

    def __init__(self, shared: Shared, track: str | None) -> None:
        self.track = track
        self._shared = shared
        self._ops = ModuleOps(shared.recording.ops, track)
        self._calls: list[Call] = []
        self._modules = 0  # of the calls, how many are of modules
        self._rows: list[tuple[int, int, int]] = []  # op, start, duration
        self._root = Root()
        self._device = Device()
        self._first = FirstSteps(self._write_later)
        self._step: Step | None = None
        self._phases = Phases()
        self._gaps: deque[int] = deque(maxlen=GAPS)
        self._last_end: int | None = None  # of the last call that was not within another one
        self._last_part = ""

    def enter_module(self, module: Any, args: Any, kwargs: Any) -> Call:
        """Note that a module is called; a call of the root may begin a step."""
        if self._modules == 0:
            with self._shared.unseen():
                self._enter_outermost(module, args, kwargs)
        elif self._step is not None and self._step.length is None and self._step.looked_at < LOOKED_AT:
            with self._shared.unseen():
                self._look_for_length(self._step, args, kwargs)
        if self._shared.graphs.capturing:
            around = innermost(self._calls)
            self._shared.graphs.border(None if around is None else self._shared.names.of(around))
            self._shared.graphs.enter(module)
        self._modules += 1
        call = Call(self, module, "")
        if self._shared.windows.owner is self:
            call.mark = self._shared.annotate(MARK + self._shared.names.of(module))
        self._calls.append(call)
        call.start = now()
        return call

    def enter_replay(self, root: Any, known: Known | None) -> Call:
        """Note that a graph is replayed: outside of any module, a call of the one it was captured from."""
        if self._modules == 0 and root is not None:
            with self._shared.unseen():
                self._enter_outermost(root, (), {})
        call = self.enter_part("replay")
        if self._step is not None and known is not None and known.order is not None:
            self._step.orders.append(known.order)
        return call

    def enter_part(self, part: str) -> Call:
        """Note that the thread goes backward, or into the optimizer or its data."""
        if not self._calls:
            self._end_gap(now())
        call = Call(self, None, part)
        self._calls.append(call)
        call.start = now()
        return call

    def leave(self, call: Call) -> None:
        """Note that a call is over; those within it that were never left are forgotten."""
        end = now()
        calls = self._calls
        if self._shared.graphs.capturing and call.module is not None:
            self._shared.graphs.border(self._shared.names.of(call.module))
        if calls and calls[-1] is call:
            calls.pop()
            self._modules -= call.module is not None
        elif not self._drop_above(call):
            return
        if call.mark is not None:
            call.mark.__exit__(None, None, None)
        took = end - call.start
        if calls:
            calls[-1].inner += took
        self._rows.append((self._number(call), call.start, took - call.inner))
        if call.part:
            self.note_part(call.part)
        if not calls:
            self._last_end, self._last_part = end, "forward" if call.part in ("", "replay") else call.part
            if len(self._rows) > HELD:
                self._shared.recording.rows(self._take_rows(), None, None)

    def close(self, at: int | None) -> None:
        """End the step that is open: with the thread, when that is, or with its last call."""
        if self._step is not None and self._last_end is not None and not self._calls:
            if at is not None:
                self._end_gap(at)
            self._end_step(self._last_end if at is None else at, None, is_last=True)
        self._first.settle()
        self._calls, self._modules, self._last_end = [], 0, None

    def settle(self) -> None:
        """Have the steps that have ended written."""
        self._first.settle()

    def _drop_above(self, call: Call) -> bool:
        """Forget a call with those within it that were never left; return whether it is known."""
        if call not in self._calls:
            return False
        del self._calls[self._calls.index(call) :]
        self._modules = sum(other.module is not None for other in self._calls)
        return True

    def _number(self, call: Call) -> int:
        if call.module is None:
            return self._shared.recording.ops.of_part(call.part, self._ops.lens, self.track)
        training = self._step is not None and self._step.training
        phase = part_around(self._calls) if training else None
        return self._ops.of(call.module, self._shared.names, has_inner=call.inner > 0, phase=phase)

    def note_part(self, part: str) -> None:
        """Take from a part of a training step whether the step is complete."""
        if self._step is not None and self._step.training:
            has_optimizer = self._shared.has_optimizer
            if part == "optimizer" or (part == "backward" and not has_optimizer):
                self._step.is_complete = True

    def _enter_outermost(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take a call from outside of any module; one of the root may begin a step."""
        if self._calls and any(call.part == "backward" for call in self._calls):
            return
        self._shared.recording.forwards += 1
        within = self._calls[0] if self._calls else None  # an optimizer that calls the model by itself
        at = within.start if within else now()
        if not within:
            self._end_gap(at)
        if self._is_root(module) and not self._is_begun(at):
            self._step_over(at, module, args, kwargs, is_own=within is None)

    def _is_begun(self, at: int) -> bool:
        return self._step is not None and self._step.start == at

    def _goes_on(self) -> bool:
        """Return whether a further call of the root in training belongs to the step."""
        return self._step is not None and self._step.training and not self._step.is_complete

    def _step_over(self, at: int, module: Any, args: Any, kwargs: Any, *, is_own: bool) -> None:
        """Begin the next step, unless this is a further forward of the same training step.

        It holds what the recorder does then, as a row: the last step is written, a window begun or read.
        """
        training = self._shared.trains and module.training and self._shared.torch.is_grad_enabled()
        if training and self._goes_on():
            return
        self._begin_step(at, module, args, kwargs, training=training)
        if is_own:
            op = self._shared.recording.ops.of_part("recording", self._ops.lens, self.track)
            self._rows.append((op, at, now() - at))

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
        self._shared.windows.open(self, gpu=self._ops.lens == "host")

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
        if self._shared.windows.owner is self:
            self._shared.windows.drop()
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
        self._rows.append((number, self._last_end, at - self._last_end))

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
        took, windows = end - step.start, self._shared.windows
        seen = windows.close(took, len(self._rows)) if windows.owner is self else None
        if seen is None:
            windows.add_plain_step(took)
        elif step.orders:
            seen = with_owners(seen, step.orders)
        self._first.add(EndedStep(step.start, took, self._take_rows(), facts, seen))

    def _write_later(self, step: EndedStep) -> None:
        """Have a step written with the others of its time; one with a window at once: that is large."""
        done = partial(write, step, self._shared, self.track, self._ops.lens)
        self._shared.recording.later(step.facts, done, at_once=step.seen is not None)

    def _cut_gap(self, end: int) -> int:
        """Return the end of a step that no other follows at once: as long after its work as is usual."""
        last = self._last_end
        if last is None or end <= last:
            return end
        usual = sorted(self._gaps)[len(self._gaps) // 2] if self._gaps else 0
        kept = min(end - last, usual)
        if self._rows and self._rows[-1][1] == last:
            op = self._rows.pop()[0]
            if kept:
                self._rows.append((op, last, kept))
        return last + kept

    def _take_rows(self) -> list[tuple[int, int, int]]:
        rows, self._rows = self._rows, []
        return rows
