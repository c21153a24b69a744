"""The recording of a watched process: begun with the first module that is called, written step by step."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import os
import secrets
import sys
import threading
from typing import TYPE_CHECKING, Any

from ..native.emit import EVERY_NS, Emitter, emitting, now
from . import account, torchrun
from .account import OUT, RUN
from .kernels import emit_window
from .op_numbers import OpNumbers
from .root import device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .calls import EndedStep
    from .kernels import Row
    from .phases import Facts


class Recording:
    """What one process adds to the file; several threads may call it."""

    def __init__(self) -> None:
        self.emitter: Emitter | None = None
        self.process: str | None = None  # names the process where another one writes to the run too
        self.ops = OpNumbers()
        self.is_refused = False
        self._lock = threading.RLock()
        self._counter = account.StepCounter(shared=False)
        self.steps = self.forwards = 0
        self.tracks: set[str | None] = set()  # of the threads that made steps
        self._waiting: list[EndedStep] = []  # steps that are not written yet
        self._written = 0  # when the last of them were

    def open(self, module: Any) -> bool:
        """Begin to write, with the first module that is called; return whether this process may."""
        return self.open_as(type(module).__name__, lambda: _about(module))

    def open_as(self, name: str, about: Callable[[], dict[str, Any]]) -> bool:
        """Begin to write a run of this name, with what is known about it; return whether this process may."""
        with self._lock:
            if self.emitter is None and not self.is_refused:
                self.is_refused = emitting()  # the program writes a recording by itself
                if not self.is_refused:
                    self._begin(name, about)
            return not self.is_refused

    def later(self, step: EndedStep) -> None:
        """Have one step written together with others: at the latest 100 ms after the call that follows it.

        One with a window is written at once: that is large.
        """
        with self._lock:
            self._waiting.append(step)
            if step.seen is not None or now() - self._written >= EVERY_NS:
                self.write_waiting()

    def write_waiting(self) -> None:
        """Write the steps that wait; their numbers are taken together."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if not waiting or self.emitter is None:
                return
            self._counter.reserve(len(waiting) - self._is_prefill_at_first(waiting[0].facts))
            for step in waiting:
                self._write(step)
            self.emitter.flush()
            self._written = now()

    def step(self, start: int, took: int, rows: Sequence[int], facts: Facts | None, track: str | None) -> int:
        """Write a step with its rows, and return its number; without facts it is one of training.

        `rows` holds op, start and duration of each, flat.
        """
        with self._lock:
            assert self.emitter is not None  # noqa: S101
            number = self._take_number(facts)
            self.tracks.add(track)
            phase = facts.phase if facts else None
            self.rows(rows, number, phase)
            name = phase if phase in ("prefill", "decode") else "step"
            about = {"phase": phase, "track": self._track(track), "step": number}
            if facts:
                about.update(tokens=facts.tokens, batch=facts.batch, context=facts.context)
            self.emitter.event("step", name or "step", t=start, dur=took, **about)
        return number

    def rows(self, rows: Sequence[int], step: int | None, phase: str | None) -> None:
        """Write rows: op, start and duration of each, flat."""
        if not rows or self.emitter is None:
            return
        with self._lock:
            if new := self.ops.take_new():
                self.emitter.plan({**op, "track": self._track(op.get("track"))} for op in new)
            self.emitter.columns(rows[::3], rows[1::3], rows[2::3], step=step, phase=phase)

    def _write(self, step: EndedStep) -> None:
        """Write a step, and what a profiler window saw in it."""
        number, seen = self.step(step.start, step.took, step.rows, step.facts, step.track), step.seen
        if seen is None:
            return
        assert self.emitter is not None  # noqa: S101
        self.emitter.cost_ns += step.cost
        for what, count in seen.problems.items():
            self.emitter.mark(f"window of step {number}: {count} {what}", "log")
        of_window = "gpu" if step.lens == "host" else "host"  # what is not written in every step
        self._write_window(of_window, seen.rows, number, step.facts, step.track)

    def _write_window(
        self, lens: str, rows: Iterable[Row], number: int, facts: Facts | None, track: str | None
    ) -> None:
        """Write the rows that a profiler window saw in a step, and that the step had one."""
        assert self.emitter is not None  # noqa: S101
        inside = facts.phase if facts else "forward"
        with self._lock:
            emit_window(self.emitter, lens, step=number, phase=facts.phase if facts else None)
            told = ((self.ops.of_row(row, inside, track), row.start, row.duration) for row in rows)
            self.rows([value for row in told for value in row], number, None)

    def close(self) -> None:
        """End the recording with the process."""
        with self._lock:
            if self.emitter is None:
                return
            try:
                self.write_waiting()
            finally:
                self.emitter.end()
            self._counter.close()
            account.note(f"seen {self.steps} {self.forwards} {len(self.tracks)}")
            if why := self.emitter.unwritten:
                account.note("gaps " + why)
                sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def forget_after_fork(self) -> None:
        """Begin anew in a forked child; the emitter has let go of the file by itself."""
        self._lock = threading.RLock()
        self.emitter, self.process, self.ops = None, None, OpNumbers()
        self.is_refused, self.steps, self.forwards, self.tracks = False, 0, 0, set()
        self._waiting = []

    def _begin(self, name: str, about: Callable[[], dict[str, Any]]) -> None:
        run_id, rank = account.setting(RUN), torchrun.of_environment(os.environ)
        stated = os.environ.get("RANK", "")
        number = rank.number if rank else int(stated) if stated.isdecimal() else None
        joins = number is None and bool(run_id) and not account.is_first()
        if joins:
            self.process = f"process {os.getpid()}"
        self._counter = account.StepCounter(shared=number is None)
        self.emitter = Emitter(
            account.setting(OUT) or os.devnull, rank=number, writer=os.getpid() if joins else None
        )
        if not run_id:
            run_id = torchrun.run_id(os.environ, rank) if rank else secrets.token_hex(8)
            os.environ[RUN] = run_id
        self.emitter.run(name, about(), id=run_id)
        account.note("watched")

    def _take_number(self, facts: Facts | None) -> int:
        """Return the number of the next step: 0 for a prefill that comes first of all, else from 1."""
        is_first = self._is_prefill_at_first(facts)
        self.steps += 1
        return 0 if is_first else self._counter.take()

    def _is_prefill_at_first(self, facts: Facts | None) -> bool:
        return bool(facts and facts.phase == "prefill" and self.steps == 0 and self.process is None)

    def _track(self, track: str | None) -> str | None:
        """Return a track under the name of the process."""
        return " / ".join(filter(None, (self.process, track))) or None


def _about(module: Any) -> dict[str, Any]:
    torch = sys.modules["torch"]
    return {
        "model": type(module).__name__,
        "driver": "PyTorch, attached",
        "torch": str(getattr(torch, "__version__", "")),
        "device": device_of(module),
        "argv": list(getattr(sys, "argv", [])),
        "pid": os.getpid(),
    }
