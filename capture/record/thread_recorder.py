"""Record one thread of a program: its calls as rows, grouped into steps."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import WRITE_INTERVAL_NS, now
from .call_phases import CallReader, InputLength, PhaseTracker
from .call_stack import (
    NO_CACHE,
    NO_LOG,
    SKIP,
    CallForm,
    CallStack,
    EndedStep,
    ModuleCall,
    RecordedStep,
    StepDetail,
    find_innermost_module,
    find_training_phase,
    trim_trailing_gap,
)
from .launch_order import assign_replay_owners
from .op_ids import DRAFT, ModuleOps
from .process_notes import SAVED_STEPS
from .profiler_windows import ANNOTATION_PREFIX
from .served_batch import find_served_batch
from .step_module import DeviceLookup, StepModule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .captured_graphs import GraphRecord
    from .process_notes import LastSteps
    from .process_state import ProcessState

MAX_HELD_STEPS: Final = 8
MAX_HELD_NS: Final = 2_000_000_000  # since the start of the first, so that a screen need not wait long
MAX_REPEATS: Final = 6 * (SAVED_STEPS // 2 - 4)  # values of calls of which no step is made yet, six of each
MAX_WAITING_ROWS: Final = 8192  # waiting for the end of their step
RECENT_GAPS: Final = 9  # the typical gap between two steps is the median of so many


class StepBuffer:
    """Holds the first steps of a thread until its step module is certain, then passes steps on at once.

    A draft model, for example, is called before its target.
    """

    def __init__(self, write: Callable[[EndedStep], None], last_steps: LastSteps) -> None:
        self._write, self._last_steps = write, last_steps
        self._held: list[EndedStep] | None = []

    def save_open(self, step: RecordedStep | None, end: int) -> None:
        """Save the step in progress, whose last call has ended, or (None) forget it: see LastSteps."""
        if step is None:
            self._last_steps.forget()
        elif step.is_complete and not step.is_open:
            self._last_steps.save(step.start, end - step.start, step.open_facts, is_over=False)

    def add(self, step: EndedStep) -> None:
        """Add a finished step."""
        self._last_steps.save(step.start, step.duration, step.facts, is_over=True)
        if self._held is None:
            self._write(step)
            return
        self._held.append(step)
        held_ns = step.start + step.duration - self._held[0].start
        if len(self._held) >= MAX_HELD_STEPS or held_ns > MAX_HELD_NS:
            self.flush()

    def flush(self) -> None:
        """Pass on all held steps, and hold no more."""
        steps, self._held = self._held, None
        for step in steps or ():
            self._write(step)

    @property
    def has_flushed(self) -> bool:
        """Whether steps are passed on at once."""
        return self._held is None

    def withdraw_rows(self) -> list[int] | None:
        """Return the rows of the held steps, which are not steps after all, or None if they are written."""
        if self._held is None:
            return None
        steps, self._held = self._held, []
        self._last_steps.forget(all_steps=True)
        return [row for step in steps for row in step.rows]


class RepeatRecorder:
    """The rows and steps of one thread; its calls of one form are noted first, and made steps later."""

    def __init__(self, shared: ProcessState, track: str | None) -> None:
        self.track = track
        self._shared, self._graphs, self._windows = shared, shared.graphs, shared.windows
        self._ops = ModuleOps(shared.recording.ops, shared.names, track)
        self.stack = CallStack(self, self._ops)
        # op, start, duration of each, flat: a list of integers costs the garbage collector nothing
        self._rows: list[int] = []
        self._step_module = StepModule()
        self._device = DeviceLookup()
        self._last_steps = shared.recording.build_last_steps(track)
        self._step_buffer = StepBuffer(shared.recording.queue_step, self._last_steps)
        self._step: RecordedStep | None = None
        self._phases = PhaseTracker()
        self._reader = CallReader()
        self._gaps: deque[int] = deque(maxlen=RECENT_GAPS)
        self._last_end: int | None = None  # of the last call that was not inside another
        self._last_part = ""
        self._trains_in_eval = False  # whether a step was found to be of training by its backward alone
        self._detail = StepDetail(shared.detail, shared.names.layers)
        self._form: CallForm | None = None  # of the last call that began a step
        self._form_until = self._catch_up_at = 0
        self._op_ids: dict[tuple[bool, bool], int] = {}  # of its calls: whether unwatched, with rows within
        self._repeats: list[Any] = []  # calls of that form: six values of each, flat
        self._repeat = ModuleCall(self)  # the one in progress, if it has a module
        self._repeated_at, self._repeated_past = 0, (0, 0)
        self.log_again: list[Any] = SKIP  # for calls within the one that `enter_again` returned

    def enter_again(self, module: Any, args: Any, kwargs: Any) -> ModuleCall | None:
        """Note a top-level call of the same form as the last one; return None for all others.

        Little is read and noted: most of what our code costs is that the program's own work has thrown it
        out of the caches. Steps are made of many such calls together.
        """
        form, at = self._form, now()
        if form is None or not self._can_repeat(form, module, at):
            return None
        past = form.match(args, kwargs)
        if past is None:
            return None
        detail, call = self._detail, self._repeat
        if self._repeats and detail.has_turns:
            detail.note_step(at - self._repeated_at, self._repeats[-1].row_count)
        if at >= self._catch_up_at or len(self._repeats) >= MAX_REPEATS:
            self._catch_up_at = at + WRITE_INTERVAL_NS
            self.catch_up()
            if self._device.find_lens(module) != self._ops.lens:
                return None
        detail.begin_step()
        self.log_again = SKIP if detail.is_unwatched else self.stack.log
        self._repeated_at, self._repeated_past = at, past
        call.start, call.inner_ns = at, 0
        call.module = module  # from here on it is in progress
        call.start = now()
        return call

    def _can_repeat(self, form: CallForm, module: Any, at: int) -> bool:
        """Return whether a call of a module may be noted as one like the last."""
        if at >= self._form_until or form.find_module() is not module or self.stack.calls:
            return False
        shared = self._shared
        return not (shared.is_training or shared.find_tracing() is not None or shared.has_function_mode())

    def leave_again(self, call: ModuleCall) -> bool:
        """Note the end of a call of `enter_again`; return False if it is to be left as others are."""
        if call is not self._repeat:
            return False
        end = now()
        if call.module is None:
            return True
        log = self.stack.pop_complete_log() if self.stack.log else NO_LOG
        if log is None:
            self.catch_up()
            return False
        key = self._detail.is_unwatched, log.row_count > 0
        op_id = self._op_ids.get(key)
        if op_id is None:
            call.inner_ns = log.row_count
            op_id = self._op_ids[key] = self._find_op_id(call)
        call.module = None
        if not self._repeats:
            self._last_steps.settle()
        self._repeats += self._repeated_at, call.start, end, self._repeated_past, op_id, log
        if self._form is not None:
            self._last_steps.save(self._repeated_at, end - self._repeated_at, self._form.facts, is_over=True)
        return True

    def catch_up(self) -> None:
        """Make steps of the calls that were noted by `enter_again`, and rows of their logs."""
        form, call, began = self._form, self._repeat, now()
        if form is None or not (self._repeats or call.module is not None):
            return
        own_op = self._shared.recording.ops.assign_part("recording", self._ops.lens, self.track)
        steps, values = [], iter(self._repeats)
        for at, start, end, past, op_id, log in zip(*[values] * 6):
            steps.append(self._repeat_step(form, at, past))
            rows, inner_ns = log.build_rows()
            self._rows += (own_op, at, start - at, *rows, op_id, start, end - start - inner_ns)
            self._last_end, self._last_part = end, "forward"
        if call.module is not None:
            steps.append(self._repeat_step(form, self._repeated_at, self._repeated_past))
            self._rows += own_op, self._repeated_at, call.start - self._repeated_at
            self.stack.calls.append(call)
            self.stack.module_count += 1
            self._repeat = ModuleCall(self)
        self._repeats.clear()
        self._windows.add_plain_step(steps[-1].duration)
        self._shared.recording.queue_steps(steps)
        self._detail.note_writing(now() - began, steps)

    def _repeat_step(self, form: CallForm, at: int, past: tuple[int, int]) -> EndedStep:
        """Begin a step as the last one, and return that one."""
        self._shared.recording.forwards += 1
        self._add_gap_row(at)
        step, length = self._step, form.length
        assert step is not None  # noqa: S101
        if length is not None and past is not NO_CACHE:
            length = length._replace(past=past[0], cache=past[1])
        end, facts = self._find_end(step, at, length), step.infer_facts(self._phases, length)
        ended = EndedStep(step.start, end - step.start, self._pop_rows(), facts, self.track, self._ops.lens)
        step.start, step.length = at, length
        return ended

    def _find_form(self, step: RecordedStep, module: Any, args: Any, kwargs: Any) -> None:
        """Find the form of a call of the step module, by which the next ones are recognised."""
        shared, at = self._shared, now()
        self.stack.forget_shape()
        self._catch_up_at = at + WRITE_INTERVAL_NS
        self._form_until = self._windows.find_next_time(self) if shared.detail == "full" else sys.maxsize
        is_late = at >= self._form_until or not self._step_buffer.has_flushed
        if not (is_late or shared.is_training or self._graphs.is_capturing):
            self._form = CallForm.find(module, step, args, kwargs, shared.tensor_type)
            self._op_ids.clear()

    @property
    def is_in_call(self) -> bool:
        """Whether the thread is in a call of a module."""
        return bool(self.stack.calls) or self._repeat.module is not None

    def forget_form(self) -> None:
        """Note the next call as if it were the first of its form."""
        self.catch_up()
        self._form = None

    def _read_log(self) -> None:
        """Turn the finished calls of the log into rows."""
        if self.stack.log:
            self._rows += self.stack.read_log(self._find_phase())

    def _find_op_id(self, call: ModuleCall) -> int:
        if part := call.part or self._detail.part:
            return self._shared.recording.ops.assign_part(part, self._ops.lens, self.track)
        return self._ops.find_id(call.module, has_inner=call.inner_ns > 0, phase=self._find_phase())

    def _find_phase(self) -> str | None:
        """Return the phase of the training step that the thread is in, draft in that model, else None."""
        if self._reader.is_draft:
            return DRAFT
        step = self._step
        is_training = step and (step.is_training or (step.has_gradients and self._trains_in_eval))
        return find_training_phase(self.stack.calls) if is_training else None

    def _add_gap_row(self, at: int) -> None:
        """Add the time since the last call as a row of its own."""
        if self._last_end is None or self._step is None or at <= self._last_end:
            return
        part = self._step.following_part if self._last_part == "forward" else "host"
        op_id = self._shared.recording.ops.assign_part(part, self._ops.lens, self.track)
        self._rows += op_id, self._last_end, at - self._last_end

    def _find_end(
        self, step: RecordedStep, end: int, coming: InputLength | None, *, is_last: bool = False
    ) -> int:
        """Return the end of a step: the start of the next, or less if that one does not follow at once."""
        if is_last or (not step.is_training and self._phases.is_new_text(coming)):
            return trim_trailing_gap(self._rows, self._last_end, end, self._gaps)
        if self._last_end is not None:
            self._gaps.append(end - self._last_end)
        return end

    def _end_step(self, end: int, coming: InputLength | None, *, is_last: bool) -> EndedStep:
        step, self._step = self._step, None
        assert step is not None  # noqa: S101
        end = self._find_end(step, end, coming, is_last=is_last)
        facts = step.training_facts if step.is_training else step.infer_facts(self._phases, coming)
        duration, count, windows = end - step.start, len(self._rows) // 3, self._windows
        window = windows.close_window(duration, count) if windows.owner is self else None
        if window is None:
            windows.add_plain_step(duration)
            self._detail.note_step(duration, count)
        elif step.orders:
            window = assign_replay_owners(window, step.orders)
        cost_ns = 0 if window is None else windows.overhead_ns
        rows, lens = self._pop_rows(), self._ops.lens
        return EndedStep(step.start, duration, rows, facts, self.track, lens, window, cost_ns)

    def _pop_rows(self) -> list[int]:
        rows, self._rows = self._rows, []
        return rows


class ThreadRecorder(RepeatRecorder):
    """Receives every call on one thread, from the outside in."""

    def enter_outermost(
        self, module: Any, args: Any, kwargs: Any, begun: int = 0, *, is_compiled: bool = False
    ) -> ModuleCall:
        """Note a top-level call of a module, which has `begun` now or before; it may start a step.

        Of compiled code the time until now is that of the call, of others our own.
        """
        self.forget_form()
        with self._shared.bypass_torch_functions():
            self._begin_outermost_call(module, args, kwargs, begun, is_compiled=is_compiled)
        return self._push_module(module)

    def enter_inner(self, module: Any, args: Any, kwargs: Any) -> ModuleCall | None:
        """Note a call of a module inside another one; return None if it has no row."""
        self.forget_form()
        step = self._step
        if step is not None and step.needs_length and not self._shared.is_traced():
            with self._shared.bypass_torch_functions():
                step.search_length(self._reader, args, kwargs)
        has_row = self._windows.owner is self or self._detail.has_row(module)
        return self._push_module(module) if has_row else None

    def open_log(self) -> list[Any] | None:
        """Return the log for calls inside the one just entered, or None if each must be reported at once."""
        looks = self._step is not None and self._step.needs_length
        if looks or self._graphs.is_capturing or self._windows.owner is self:
            return None
        return SKIP if self._detail.is_unwatched else self.stack.log

    def _push_module(self, module: Any) -> ModuleCall:
        self._read_log()
        if self._graphs.is_capturing:
            caller = find_innermost_module(self.stack.calls)
            self._graphs.mark_boundary(None if caller is None else self._shared.names.find_name(caller))
            self._graphs.enter_module(module)
        call = self.stack.push(module, "")
        if self._windows.is_open(self):
            call.annotation = self._shared.annotate(ANNOTATION_PREFIX + self._shared.names.find_name(module))
        call.start = now()
        return call

    def enter_replay(self, module: Any, record: GraphRecord | None) -> ModuleCall:
        """Note a graph replay; at top level it counts as a call of the module captured first."""
        self.forget_form()
        if self.stack.module_count == 0 and module is not None:
            with self._shared.bypass_torch_functions():
                self._begin_outermost_call(module, (), {})
        call = self.enter_part("replay")
        if self._step is not None and record is not None and record.order is not None:
            self._step.orders.append(record.order)
        return call

    def enter_part(self, part: str) -> ModuleCall:
        """Note that the thread runs backward, the optimizer or data loading."""
        self.forget_form()
        self._read_log()
        if not self.stack.calls:
            self._add_gap_row(now())
        call = self.stack.push(None, part)
        call.start = now()
        return call

    def leave(self, call: ModuleCall) -> None:
        """Note the end of a call; calls inside it that were never left are forgotten."""
        end, part, mark = now(), call.part, call.annotation
        self._read_log()
        if self._graphs.is_capturing and call.module is not None:
            self._graphs.mark_boundary(self._shared.names.find_name(call.module))
        if not self.stack.pop(call, end):
            return
        if mark is not None:
            call.annotation = None
            mark.__exit__(None, None, None)
        self._rows += self._find_op_id(call), call.start, end - call.start - call.inner_ns
        is_failed = call.has_failed and call.module is self._step_module.module
        self.stack.release(call)
        self.note_part(part)
        if not self.stack.calls:
            self._last_end, self._last_part = end, "forward" if part in ("", "replay") else part
            if is_failed:
                self.drop_failed_step()
            self._step_buffer.save_open(self._step, end)
            if len(self._rows) > 3 * MAX_WAITING_ROWS:
                self._shared.recording.write_rows(self._pop_rows(), None, None)

    def close(self, at: int | None) -> None:
        """End the step in progress, at the end of the thread or (None) of its last call."""
        self.forget_form()
        if self._step is not None and self._last_end is not None and not self.stack.calls:
            if at is not None:
                self._add_gap_row(at)
            step = self._end_step(self._last_end if at is None else at, None, is_last=True)
            self._step_buffer.add(step)
        self._step_buffer.flush()
        self.stack.clear()
        self._last_end = None

    def flush(self) -> None:
        """Write the steps that have ended."""
        self.catch_up()
        self._step_buffer.flush()

    def note_part(self, part: str) -> None:
        """Note a part of the program that has ended: one of training makes a training step of a forward."""
        if part in ("backward", "optimizer"):
            self.forget_form()
        if self._step is not None and part in ("backward", "optimizer"):
            self._trains_in_eval |= self._step.begin_training()
            self._step.is_complete |= part == "optimizer" or not self._shared.has_optimizer

    def _begin_outermost_call(
        self, module: Any, args: Any, kwargs: Any, begun: int = 0, *, is_compiled: bool = False
    ) -> None:
        """Begin a top-level call; one of the step module may start a step."""
        calls = self.stack.calls
        if any(call.part == "backward" for call in calls):
            return
        self._shared.recording.forwards += 1
        enclosing = calls[0] if calls else None  # an optimizer that calls the model itself
        at = enclosing.start if enclosing else begun or now()
        if not enclosing:
            self._add_gap_row(at)
        is_begun = self._step is not None and self._step.start == at
        is_step_call = self._is_step_call(module, args, kwargs)
        self._reader.note_call(module, args, is_step=is_step_call)
        if not is_begun and (is_step_call or self._step_module.has_encoder(module)):
            self._start_step_if_needed(at, module, args, kwargs, is_own=not (enclosing or is_compiled))

    def _start_step_if_needed(self, at: int, module: Any, args: Any, kwargs: Any, *, is_own: bool) -> None:
        """Start the next step, unless a training step continues; our own work becomes a row of the step.

        The encoder of a text begins the step of the model's first call for that text.
        """
        has_gradients = self._shared.is_training and self._shared.torch.is_grad_enabled()
        encodes, step = self._step_module.has_encoder(module), self._step
        if step is None or not step.has_room(has_gradients=has_gradients):
            step = RecordedStep(at, is_training=has_gradients and module.training)
            step.encodes, step.has_gradients = encodes, has_gradients
        if step.is_open and not encodes:
            step.read_call(self._reader, module, args, kwargs, find_served_batch())
            self._shared.recording.note_cache(args, kwargs)
        elif step.has_gradients and not encodes:
            step.add_call(args, kwargs)
        if step is not self._step:
            self._start_step(step, is_own=is_own)
            if is_own:
                self._find_form(step, module, args, kwargs)

    def _start_step(self, step: RecordedStep, *, is_own: bool) -> None:
        if self._step is not None:
            is_last = step.encodes and not step.is_training
            self._step_buffer.add(self._end_step(step.start, step.length, is_last=is_last))
        elif self._rows:
            self._shared.recording.write_rows(self._pop_rows(), None, None)
        self._step = step
        if self._detail.begin_step():
            self._windows.open_window(self, gpu=self._ops.lens == "host")
        if is_own:
            op = self._shared.recording.ops.assign_part("recording", self._ops.lens, self.track)
            self._rows += op, step.start, now() - step.start

    def _is_step_call(self, module: Any, args: Any, kwargs: Any) -> bool:
        """Return whether a top-level call of a module is one of the step module."""
        size, outgrown = self._shared.names.measure_size(module), self._step_module.outgrown_count
        former, step = self._step_module.module, self._step
        if step and self._step_module.resume_text(module, size, step, args, kwargs):
            self._drop_step()
        learns = self._shared.is_training and self._shared.torch.is_grad_enabled()
        if not self._step_module.is_step_call(module, size, learns=learns):
            return False
        if self._step_module.outgrown_count > outgrown:
            self._shared.recording.rename(module)
            self._ops.rename_inner(module)
            self._withdraw_first_steps(encodes=self._step_module.has_encoder(former))
        self._ops.set_lens(self._device.find_lens(module))
        return True

    def _withdraw_first_steps(self, *, encodes: bool) -> None:
        """Turn the held steps into rows without a step, but the one in progress if it `encodes`."""
        rows = self._step_buffer.withdraw_rows()
        if rows is None:
            return
        self._phases = PhaseTracker()
        self._gaps.clear()
        if encodes and self._step is not None:
            self._step.encodes = self._step.is_open = True
            self._shared.recording.write_rows(rows, None, None)
        else:
            self._drop_step(rows)

    def drop_failed_step(self) -> None:
        """A call of the model that ended in an error is no step: it made no tokens."""
        if self._step is not None and not self._step.is_training:
            self._drop_step()

    def _drop_step(self, rows: Sequence[int] = ()) -> None:
        """Write the rows of the step in progress, after others, but no step."""
        if self._windows.owner is self:
            self._windows.drop_window()
        self._step = self._form = None
        self._shared.recording.write_rows([*rows, *self._pop_rows()], None, None)
