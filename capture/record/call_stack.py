"""Open calls of a recorded thread, its log of finished calls, and the steps that they form."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .call_phases import (
    CallFacts,
    find_length,
    find_sizes,
    is_assisted,
    is_cache,
    needs_search,
    select_input,
)  # fmt: skip
from .op_ids import LogShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .call_phases import CallReader, InputLength, PhaseTracker
    from .launch_order import LaunchOrder
    from .op_ids import ModuleOps
    from .profiler_windows import ProfilerWindow
    from .served_batch import ServedBatch

FIRST_TURN: Final = 32  # steps after which some have no rows of their modules
TURN_STEPS: Final = (16, 128)  # of which one is such a step: until there are MANY_TURNS of them, and then
MANY_TURNS: Final = 24
ROW_COST_NS: Final = 2_500  # of a row of a module, until it is measured
ROW_COST_RANGE_NS: Final = 1_000, 8_000
ROW_COST_CHANGE_NS: Final = 25  # by each pair of steps: 1 % of it
MIN_SHAPED: Final = 8  # entries of a log that is compared with the next: two calls
MANY_ROWS: Final = 8  # of a step, from which on they are what its writing takes
MAX_ROWS_SHARES: Final = {"full": 0.01, "layers": 0.003}  # of the time of all steps, for the rows of modules
_GOLDEN_RATIO: Final = 0.618033988749895  # its multiples avoid every period of a program
SKIP: Final[list[Any]] = []  # instead of a log, while calls within a module are not recorded
NO_CACHE: Final = -1, 0
MAX_SEARCHED_CALLS: Final = 8  # calls whose inputs are searched for the tokens of a step


class ModuleCall:
    """An open call of a module, or of another part of the program."""

    __slots__ = ("annotation", "has_failed", "inner_ns", "module", "part", "recorder", "start")

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.module: Any = None  # None for a part of the program
        self.part = ""
        self.annotation: Any = None
        self.inner_ns = 0  # time in the calls that it made
        self.has_failed = False  # whether it was left by an error
        self.start = 0  # read from the clock last, after our own work


class RecordedStep:
    """A step in progress: from the start of one step to the start of the next."""

    __slots__ = (
        "call_sizes", "calls", "encodes", "generates", "has_gradients", "is_complete", "is_open",
        "is_training", "length", "orders", "searches", "served", "sizes", "start",
    )  # fmt: skip

    def __init__(self, start: int, *, is_training: bool) -> None:
        self.start, self.is_training = start, is_training
        self.is_complete = not is_training  # whether the next call of the step module starts another step
        self.has_gradients = is_training  # whether its model was called for them, in a program that trains
        self.encodes = False  # whether it began with the model's encoder, which is called alone
        self.is_open = True  # whether the step module is still to be called
        self.length: InputLength | None = None
        self.sizes: tuple[int, ...] = ()  # of the first input that has several
        self.calls = 1  # of the step module; several, of as many parts of a batch, make a step of training
        # as `sizes`, also where the tokens are known; none if calls differ
        self.call_sizes: tuple[int, ...] = ()
        self.served: ServedBatch | None = None  # what the engine that calls the model says of its batch
        self.searches = 0  # calls whose inputs were searched for its tokens
        self.generates = False
        self.orders: list[LaunchOrder] = []  # of the graphs replayed in it

    @property
    def needs_length(self) -> bool:
        """Whether the inputs of inner modules are still searched for tokens."""
        is_image = len(self.sizes) > 3
        is_searched = not (self.length or self.served or self.is_open or is_image)
        return is_searched and self.searches < MAX_SEARCHED_CALLS

    def has_room(self, *, has_gradients: bool) -> bool:
        """Whether the next call of the step module, or of its encoder, belongs to this step."""
        return self.is_open or (has_gradients and not self.is_complete)

    def begin_training(self) -> bool:
        """Make this a training step, as backward or the optimizer ran in it; return whether it was none.

        The mode of its model tells nothing. A decode step without gradients stays one: another model learns.
        """
        is_decode = self.length is not None and self.length.tokens == 1 and not self.has_gradients
        if self.is_training or is_decode:
            return False
        self.is_training, self.is_complete = True, False
        return True

    def read_call(
        self, reader: CallReader, module: Any, args: Any, kwargs: Any, served: ServedBatch | None
    ) -> None:
        """Note what a call of the step module, and the engine that makes it, say of the tokens."""
        self.is_open = False
        self.generates = hasattr(type(module), "generate") and kwargs.get("labels") is None
        self.served = served
        if served is not None:
            self.length = served.length
        else:
            self.search_length(reader, args, kwargs)
        if self.has_gradients or self.length is None:
            self.call_sizes = find_sizes(args, kwargs)
        if self.length is None:
            self.sizes = self.call_sizes

    def add_call(self, args: Any, kwargs: Any) -> None:
        """Note another call of the step module in a step of training."""
        self.calls += 1
        if self.call_sizes and find_sizes(args, kwargs) != self.call_sizes:
            self.call_sizes = ()

    def search_length(self, reader: CallReader, args: Any, kwargs: Any) -> None:
        """Search the inputs of a call for the tokens."""
        self.searches += 1
        self.length = reader.read_length(args, kwargs, generates=self.generates)

    @property
    def following_part(self) -> str:
        """The part of the program that follows a call of its model."""
        return "loss" if self.is_training else "sampling" if self.length is not None else "host"

    @property
    def is_single(self) -> bool:
        """Whether it is of one token a sequence."""
        return self.length is not None and self.length.tokens == 1

    def is_followed_by_text(self, args: Any, kwargs: Any, tokens: int = 2) -> bool:
        """Return whether these inputs begin a text of so many tokens or more, after a single one."""
        if not self.is_single or is_assisted():
            return False
        coming = find_length(args, kwargs)
        return coming is not None and coming.tokens >= tokens

    @property
    def open_facts(self) -> CallFacts | None:
        """What is known of it before the next call comes: enough if the process is killed now."""
        if self.is_training:
            return None
        if self.served is not None:
            return self.served.facts
        if self.length is None or (self.length.tokens > 1 and not self.generates):
            return CallFacts("forward", batch=self.length.forward_batch if self.length else None)
        phase = "decode" if self.length.tokens == 1 and not self.encodes else "prefill"
        return CallFacts(phase, self.length.batch // self.length.beams, self.length.batch)

    @property
    def training_facts(self) -> CallFacts | None:
        """The sequences, images or rows of a step of training, and their sizes, over all its calls."""
        if not self.call_sizes:
            return None
        batch, *sizes = self.call_sizes
        batch *= self.calls
        return CallFacts("", batch=batch, shape="x".join(map(str, (batch, *sizes))))

    def infer_facts(self, phases: PhaseTracker, coming: InputLength | None) -> CallFacts:
        """Return phase, tokens, sequences and context, before a call with these inputs follows."""
        facts = phases.infer_facts(self.length, coming, generates=self.generates)
        if self.served is not None:
            return self.served.facts
        if not (self.is_single and facts.phase == "decode"):
            facts = self._add_shape(facts)
        return facts._replace(phase="prefill") if self.encodes and facts.phase == "decode" else facts

    def _add_shape(self, facts: CallFacts) -> CallFacts:
        length, is_forward = self.length, facts.phase == "forward"
        if length is None:
            shape = "x".join(map(str, self.sizes)) or None
            return facts._replace(batch=self.sizes[0], shape=shape) if shape and is_forward else facts
        if not is_forward and length.tokens == 1:  # it reads no more than it produces
            return facts
        return facts._replace(shape="x".join(map(str, length.sizes if is_forward else length[:2])))


class StepDetail:
    """Which calls of a step have rows: at `full` every module, at `layers` few, at `steps` the model.

    Except at `steps`, a few steps have no rows of modules inside others: their time tells what rows cost. Of
    short steps only so many have rows that these take their share (MAX_ROWS_SHARES) of the time. What a row
    costs is the median over pairs of an unwatched step and the next, followed by small changes.
    """

    def __init__(self, detail: str, layers: set[int]) -> None:
        """`layers` has the ids of the modules that are layers, or in none."""
        self._detail, self._layers = detail, layers
        self.is_unwatched = detail == "steps"  # whether modules inside others have no rows in this step
        self._turns = self._steps = 0  # steps that have none, and all steps so far
        self._watched_share = 1.0  # of the steps, as far as rows are affordable
        self.has_turns = detail != "steps"  # whether steps differ
        self._max_share = MAX_ROWS_SHARES.get(detail, 0.0)
        self._unwatched_ns = 0  # of the step before, if it had no rows
        self._row_cost_ns = ROW_COST_NS
        self._writing_ns = 0.0  # of a row, after its step

    def begin_step(self) -> bool:
        """Begin a step; return whether a profiler window may open in it."""
        self._steps += 1
        if self.has_turns:
            period = TURN_STEPS[self._turns >= MANY_TURNS]
            is_turn = self._steps % period == period // 2
            is_dear = self._steps * _GOLDEN_RATIO % 1 >= self._watched_share
            self.is_unwatched = self._steps > FIRST_TURN and (is_turn or is_dear)
            self._turns += self.is_unwatched
        return self._detail == "full" and not self.is_unwatched

    def note_step(self, duration: int, rows: int) -> None:
        """Note the time of a step that has ended, and its rows, which decide how many steps have rows."""
        before, self._unwatched_ns = self._unwatched_ns, duration if self.is_unwatched else 0
        if not rows or self.is_unwatched:
            return
        if before:
            is_dearer = duration - before > rows * self._row_cost_ns
            cost_ns = self._row_cost_ns + (ROW_COST_CHANGE_NS if is_dearer else -ROW_COST_CHANGE_NS)
            low, high = ROW_COST_RANGE_NS
            self._row_cost_ns = min(max(cost_ns, low), high)
        self._watched_share = self._max_share * duration / (rows * (self._row_cost_ns + self._writing_ns))

    def note_writing(self, spent_ns: int, steps: list[EndedStep]) -> None:
        """Note what it took to make these steps and to write them: if they have many rows, it is theirs."""
        rows = sum([len(step.rows) for step in steps]) // 3
        if rows > MANY_ROWS * len(steps):
            self._writing_ns += (spent_ns / rows - self._writing_ns) / 8

    def has_row(self, module: Any) -> bool:
        """Whether a module inside another one has a row in this step."""
        return not self.is_unwatched and (self._detail == "full" or id(module) in self._layers)

    @property
    def part(self) -> str:
        """The part of the program that a whole call of the model is; empty if it is a row of its own."""
        return "unwatched" if self.is_unwatched and self._detail != "steps" else ""


class CallForm:
    """The form of a call of the step module: of calls of one form little is to be noted."""

    def __init__(
        self, module: Any, step: RecordedStep, tensor: Any, name: str, args: Any, kwargs: Any
    ) -> None:
        """`tensor` is the input that was measured, of this name, or without one the first input."""
        self.find_module: Callable[[], Any] = weakref.ref(module)
        self.length, self.sizes, self.generates = step.length, step.sizes, step.generates
        self.facts = step.open_facts
        self._name, self._arg_count, self._kwarg_count = name, len(args), len(kwargs)
        self._others = _list_others(args, kwargs)  # inputs after the first one
        self._dtype, self._shape, self._type = tensor.dtype, tensor.shape, type(tensor)
        self._cache_name = next((key for key, value in kwargs.items() if is_cache(value)), "")
        self._cache_type = type(kwargs.get(self._cache_name))
        batch, tokens = (1, 1) if step.length is None else step.length[:2]
        self._needs_past = step.generates and batch > 1  # else beams are counted
        self._needs_no_past = step.generates and tokens > 1  # else it may verify a draft

    @classmethod
    def find(
        cls, module: Any, step: RecordedStep, args: Any, kwargs: Any, tensor_type: Any
    ) -> CallForm | None:
        """Return the form of the call that began a step; None if its inputs must be searched each time."""
        if step.is_training or step.encodes or step.served is not None or step.needs_length:
            return None
        name, value = select_input(args, kwargs)
        has_size = step.length or (step.sizes and (len(args), len(kwargs)) == (1, 0))
        if type(value) is not tensor_type or not has_size or needs_search(args, kwargs):
            return None
        measured = find_length((value,), {})
        is_other = measured != (step.length and step.length._replace(past=None, cache=0, beams=1))
        return None if is_other else cls(module, step, value, name, args, kwargs)

    def match(self, args: Any, kwargs: Any) -> tuple[int, int] | None:
        """Return of a call the tokens read before (-1: unknown) and the id of its cache, or None.

        None is returned for a call of another form.
        """
        if len(kwargs) != self._kwarg_count or len(args) != self._arg_count:
            return None
        value = kwargs.get(self._name) if self._name else args[0]
        if type(value) is not self._type or value.dtype is not self._dtype or value.shape != self._shape:
            return None
        if self._others and _list_others(args, kwargs) != self._others:
            return None
        if self._cache_name:
            return self._read_past(kwargs)
        return None if self._needs_past else NO_CACHE

    def _read_past(self, kwargs: Any) -> tuple[int, int] | None:
        cache = kwargs.get(self._cache_name)
        if type(cache) is not self._cache_type:
            return None
        with suppress(Exception):  # a cache of the program may not be ready
            past = cache.get_seq_length()
            is_other = type(past) is not int or (self._needs_no_past if past else self._needs_past)
            return None if is_other else (past, id(cache))
        return None


def _list_others(args: Any, kwargs: Any) -> list[Any]:
    """Return the types of the inputs after a first one without a name, and their names; else nothing."""
    return [*map(type, (*args[1:], *kwargs.values())), *kwargs] if args else []


class EndedStep(NamedTuple):
    """A finished step: its rows, and the profiler window opened in it."""

    start: int
    duration: int
    rows: Sequence[int]  # op, start and duration of each, flat
    facts: CallFacts | None  # None for a training step of unknown inputs
    track: str | None
    lens: str  # of the rows
    window: ProfilerWindow | None = None
    window_cost_ns: int = 0  # time taken by the window


def trim_trailing_gap(rows: list[int], last: int | None, end: int, gaps: Sequence[int]) -> int:
    """Return the end of a step that is not followed at once: its work, to `last`, plus the typical gap."""
    if last is None or end <= last:
        return end
    typical = sorted(gaps)[len(gaps) // 2] if gaps else 0
    gap = min(end - last, typical)
    if rows and rows[-2] == last:
        rows[-3:] = [*rows[-3:-1], gap] if gap else []
    return last + gap


def find_innermost_module(calls: list[ModuleCall]) -> Any:
    """Return the innermost module being called, or None."""
    return next((call.module for call in reversed(calls) if call.module is not None), None)


def find_training_phase(calls: list[ModuleCall]) -> str:
    """Return the phase of the open calls: backward calls modules again under activation checkpointing."""
    parts = (call.part for call in calls if call.part in ("backward", "optimizer"))
    return next(parts, "forward")


class CompleteLog(NamedTuple):
    """A complete log without its modules: its shape, and starts and ends of its calls; or else its rows."""

    shape: LogShape | None
    times: tuple[Any, Any]

    def build_rows(self) -> tuple[Sequence[int], int]:
        """Return its rows, and the time in its outermost calls."""
        return self.times if self.shape is None else self.shape.build_rows(*self.times)

    @property
    def row_count(self) -> int:
        """The number of its rows."""
        return len(self.times[0]) // (3 if self.shape is None else 1)


NO_LOG: Final = CompleteLog(None, ((), 0))


class CallStack:
    """Open calls of modules and other parts of the program, innermost last.

    Calls within another module may instead append module and time to the log (a negative time on leaving):
    this is cheap, and the log is read only when needed.
    """

    def __init__(self, recorder: Any, ops: ModuleOps) -> None:
        self._recorder, self._ops = recorder, ops
        self.log: list[Any] = []
        self._shape: LogShape | None = None  # of the last complete log
        self.calls: list[ModuleCall] = []
        self.module_count = 0  # number of open calls of modules
        self._spare: list[ModuleCall] = []  # finished calls, for reuse

    def push(self, module: Any, part: str, at: int = 0) -> ModuleCall:
        """Return a new innermost call."""
        call = self._spare.pop() if self._spare else ModuleCall(self._recorder)
        call.module, call.part, call.start, call.inner_ns, call.has_failed = module, part, at, 0, False
        self.module_count += module is not None
        self.calls.append(call)
        return call

    def pop(self, call: ModuleCall, end: int) -> bool:
        """Remove a finished call, and calls within it that were never left.

        Return whether it was there; `release` it when its data is no longer needed.
        """
        calls = self.calls
        if calls and calls[-1] is call:
            calls.pop()
            self.module_count -= call.module is not None
        elif call in calls:
            del calls[calls.index(call) :]
            self.module_count = sum(open_call.module is not None for open_call in calls)
        else:
            return False
        if calls:
            calls[-1].inner_ns += end - call.start
        return True

    def release(self, call: ModuleCall) -> None:
        """Free a finished call for reuse, without keeping its module alive."""
        call.module = None
        self._spare.append(call)

    def read_log(self, phase: str | None) -> list[int]:
        """Return the finished calls of the log as rows: op, start and duration of each, flat."""
        read = self.read_complete_log(self.log, phase)
        if read is None:
            return self._read_partial_log(phase)
        rows, inner_ns = read
        self.log.clear()
        if self.calls:
            self.calls[-1].inner_ns += inner_ns
        return rows

    def pop_complete_log(self) -> CompleteLog | None:
        """Take a log in which each call was also left, as usual; None of another one, which stays.

        Most logs have the calls of the one before: then their times are enough, of which rows are made later.
        """
        log, shape = self.log, self._shape
        times = None if shape is None else shape.read_times(log)
        if times is not None:
            log.clear()
            return CompleteLog(shape, times)
        read = self.read_complete_log(log, None)
        if read is None:
            return None
        self._shape = LogShape(log, read[0][::3]) if len(log) >= MIN_SHAPED else None
        log.clear()
        return CompleteLog(None, read)

    def forget_shape(self) -> None:
        """Compare the next log with none before it: its modules may be others at the same addresses."""
        self._shape = None

    def read_complete_log(self, log: list[Any], phase: str | None) -> tuple[list[int], int] | None:
        """Return the rows of a log in which each call was also left, and the time in its outermost calls.

        This loop is the main cost per call besides the log itself. None is returned for another log.
        """
        rows: list[int] = []
        modules, starts, inners = [], [], [0]
        ids = self._ops.select_phase(phase)
        pairs = iter(log)
        if len(log) % 2 or set(map(type, log[1::2])) - {int}:  # an error came between
            return None
        for module, time in zip(pairs, pairs):
            if time > 0:
                modules.append(module)
                starts.append(time)
                inners.append(0)
            elif not modules or modules.pop() is not module:
                return None
            else:
                start, inner = starts.pop(), inners.pop()
                inners[-1] -= time + start
                entry = ids[inner > 0].get(id(module))
                if entry is None or entry[0]() is not module:
                    op = self._ops.find_id(module, has_inner=inner > 0, phase=phase)
                else:
                    op = entry[1]
                rows += op, start, -time - start - inner
        return None if modules else (rows, inners[0])

    def _read_partial_log(self, phase: str | None) -> list[int]:
        """Return the rows of calls that began or ended outside the log, or were never left."""
        rows: list[int] = []
        log = self.log[:]
        self.log.clear()
        for module, time in zip(log, log[1:]):  # noqa: RUF007 - of Python 3.10
            if type(time) is not int or type(module) is int:
                continue  # between two pairs, or an error came between a module and its time
            if time > 0:
                self.push(module, "", time)
                continue
            call = next((call for call in reversed(self.calls) if call.module is module), None)
            if call is not None and self.pop(call, -time):
                op = self._ops.find_id(module, has_inner=call.inner_ns > 0, phase=phase)
                rows += op, call.start, -time - call.start - call.inner_ns
                self.release(call)
        return rows

    def clear(self) -> None:
        """Forget all calls."""
        self.log.clear()
        self.calls, self.module_count = [], 0
