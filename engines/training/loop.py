"""Run training steps and record them: a span for each phase, a row for each of its ops."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from capture.native.emit import Emitter, now
from capture.record.kernels import MARK, Profiler, Window
from engines.host.commands import Commands, Control
from engines.host.device import why_unwatched, write_problems
from engines.host.heartbeat import Heartbeat
from engines.host.trace import Ledger, Ticks
from engines.plan import Row, host_row
from engines.training.memory import Sizes, gauge
from engines.training.rows import StepRows
from engines.training.trainer import Op, Trainer
from engines.training.window import SEED, Owners, Work

PHASES: Final = ("forward", "backward", "optimizer")
MODES: Final = {"spans": False, "windows": True, "continuous": True}
LAUNCHED: Final = (host_row("launch"), host_row("device_wait"))


class TrainingLoop:
    """Takes a trainer through its steps and hands an emitter what they took.

    On the processor an op of the forward pass or of the optimizer is timed by the clock, and the backward
    pass, one call, by the profiler. On an accelerator calls only queue work: each phase is launched and
    waited for, and the profiler shows its kernels.
    """

    def __init__(
        self, trainer: Trainer, rows: StepRows, emitter: Emitter, heartbeat: Heartbeat, commands: Commands
    ) -> None:
        self._trainer, self._rows, self._emitter = trainer, rows, emitter
        self._heartbeat, self._commands = heartbeat, commands
        self._device = trainer.ids.device
        self._on_host = self._device.type == "cpu"
        self._ops: dict[str, tuple[Op, ...]] = {
            "forward": annotated(trainer.forward, (row.scope for row in rows.forward)),
            "backward": annotated((trainer.backward,), (SEED,)),
            "optimizer": annotated(trainer.optimizer, (row.scope for row in rows.optimizer)),
        }
        self._ledger, self._owners = Ledger(emitter), Owners(rows)
        self._numbers: dict[Row, int] = {}
        self._gauge = gauge(self._device)
        self._sizes: dict[str, Sizes] = {}
        self._profiler = Profiler(gpu=self._device.type == "cuda")
        self._watched = True
        self._step = 0
        self._control = Control(commands, emitter, heartbeat, self.mode, lambda _: "training takes no prompt")

    def mode(self, name: str) -> str:
        """Let the profiler watch every step (windows, continuous) or none (spans); return a sentence."""
        if why := why_unwatched(self._device):
            self._watched = False
            return why
        if name not in MODES:
            return f"there is no mode {name}; there are {', '.join(MODES)}"
        self._watched = MODES[name]
        return "every step is watched by the profiler" if self._watched else "the profiler rests"

    def warm_up(self, steps: int) -> dict[str, int]:
        """Run steps unrecorded; return how long each phase of the last took, without the profiler."""
        took: dict[str, int] = {}
        for number in range(1, steps + 1):
            self._heartbeat.status(f"warming up, step {number} of {steps}")
            ticks, _ = self._run(watched=self._watched and number == 1 < steps)
            took = {phase: each.end - each.at[0] for phase, each in ticks.items()}
        return took

    def run(self, steps: int) -> None:
        """Run so many steps; 0: until told to end."""
        self._heartbeat.status("capturing")
        while not self._control.ended and (not steps or self._step < steps):
            self._step += 1
            self._write(*self._run(watched=self._watched))
            self._control.obey()

    def _run(self, *, watched: bool) -> tuple[dict[str, Ticks], Window | None]:
        """Run a step, each phase of it on its own clock."""
        try:
            if watched:
                self._profiler.start()
            ticks = {phase: self._phase(phase) for phase in PHASES}
            return ticks, self._profiler.stop() if watched else None
        finally:
            self._profiler.abandon()

    def _phase(self, phase: str) -> Ticks:
        """Run a phase: each op is timed on the processor, launch and wait on an accelerator."""
        if self._step:
            self._heartbeat.doing = f"step {self._step}, {phase}"
        self._gauge.reset()
        ticks = Ticks(now())
        with self._trainer.precision(phase):
            for op in self._ops[phase]:
                op()
                if self._on_host:
                    ticks.mark()
                self._commands.check()
        if not self._on_host:
            ticks.mark()
            torch.accelerator.synchronize()
            ticks.mark()
        self._sizes[phase] = self._gauge.read()
        return ticks

    def _write(self, ticks: dict[str, Ticks], window: Window | None) -> None:
        model = self._trainer.size
        begin, end = ticks["forward"].at[0], ticks["optimizer"].end
        for phase, each in ticks.items():
            span = {"t": each.at[0], "dur": each.end - each.at[0], "lens": "wall"}
            self._emitter.event("span", phase, step=self._step, phase=phase, **span)
            self._write_clock(phase, each)
            for what, size in self._sizes[phase].items():
                facts = {"t": each.end, "step": self._step, "phase": phase, "bytes": size}
                self._emitter.event("memory", f"{what}, {phase}", **facts)
        if window is not None:
            self._write_window(window)
        self._emitter.event(
            "step",
            "train",
            t=begin,
            dur=end - begin,
            step=self._step,
            tokens=model.tokens,
            context=model.context,
            batch=model.batch,
        )
        self._emitter.counter("loss", self._trainer.loss)
        self._heartbeat.touch()

    def _write_clock(self, phase: str, ticks: Ticks) -> None:
        """Write what the processor's own clock says of a phase."""
        if not self._on_host:
            numbers = self._ledger.numbers(LAUNCHED)
        elif phase == "backward":
            return
        else:
            numbers = self._ledger.numbers(getattr(self._rows, phase))
        ticks.write(self._emitter, numbers, step=self._step, phase=phase)

    def _write_window(self, window: Window) -> None:
        works = self._owners.backward(window) if self._on_host else self._owners.kernels(window)
        parts: dict[str | None, list[Work]] = defaultdict(list)
        for work in works:
            parts[work.phase].append(work)
        for phase, part in parts.items():
            numbers = self._number([work.row for work in part])
            starts, durations = [w.start for w in part], [w.duration for w in part]
            self._emitter.columns(numbers, starts, durations, step=self._step, phase=phase)
        if not self._on_host:
            write_problems(self._emitter, window)
        self._emitter.cost_ns += self._profiler.overhead_ns

    def _number(self, rows: Sequence[Row]) -> list[int]:
        """Return the numbers of rows that come in no fixed order."""
        new = tuple(dict.fromkeys(row for row in rows if row not in self._numbers))
        if new:
            self._numbers |= zip(new, self._ledger.numbers(new), strict=True)
        return [self._numbers[row] for row in rows]


def annotated(ops: Iterable[Op], scopes: Iterable[str]) -> tuple[Op, ...]:
    """Return each op within an annotation that tells a profiler whose work it is."""
    return tuple(_within(_note(scope), op) for op, scope in zip(ops, scopes, strict=True))


def _within(note: AbstractContextManager[Any], op: Op) -> Op:
    def noted() -> None:
        with note:
            op()

    return noted


def _note(scope: str) -> AbstractContextManager[Any]:
    note: AbstractContextManager[Any] = torch._C._profiler._RecordFunctionFast(f"{MARK}{scope}")
    return note
