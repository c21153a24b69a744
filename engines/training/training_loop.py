"""Build a trainer from its arguments, run its steps and record them: a span per phase, a row per op."""

import argparse
import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

import torch

from capture.errors import EngineError
from capture.native.emit import Emitter, now
from capture.native.schema import PATH_SEPARATOR
from capture.record.profiler_windows import LeafWork, ProfilerWindow, WindowProfiler
from engines.host.engine_commands import Commands, Control, RunningEngine
from engines.host.heartbeat import Heartbeat
from engines.host.measure_roofs import find_device_name, find_roof
from engines.host.op_runners import (
    OpTimestamps,
    PlanWriter,
    explain_no_kernels,
    make_annotations,
    note_window_problems,
)
from engines.plan import PlannedOp, plan_host_op
from engines.startup_choices import find_device
from engines.training.model_sizes import check_fits
from engines.training.phase_memory import MemorySizes, make_gauge
from engines.training.trainer import Op, Trainer
from engines.training.training_options import TrainingOptions, read_options
from engines.training.training_plan import GRADIENTS, UNATTRIBUTED, PlacedOp, StepPlan, plan_training_step
from engines.weights.weight_sources import read_free_bytes

TRAINING_PHASES: Final = ("forward", "backward", "optimizer")
PROFILED_MODES: Final = {"spans": False, "windows": True, "continuous": True}
WARM_UP_STEPS: Final = 5  # until the clocks and the allocator of an accelerator have settled
CPU_WARM_UP_STEPS: Final = 2
BACKWARD_ANNOTATION: Final = "backward"  # around the backward pass: where its first gradient is made
LAUNCH_AND_WAIT: Final = (plan_host_op("launch"), plan_host_op("device_wait"))


class TrainingLoop:
    """Runs the steps of a trainer and writes their times to an emitter.

    On the CPU ops of the forward pass and the optimizer are timed by the clock, and the backward pass, a
    single call, by the profiler. On an accelerator calls only queue work: each phase is launched and awaited,
    and the profiler shows its kernels.
    """

    def __init__(
        self, trainer: Trainer, plan: StepPlan, emitter: Emitter, heartbeat: Heartbeat, commands: Commands
    ) -> None:
        self._trainer, self._plan, self._emitter = trainer, plan, emitter
        self._heartbeat, self._commands = heartbeat, commands
        self._device = trainer.ids.device
        self._is_on_cpu = self._device.type == "cpu"
        self._ops: dict[str, tuple[Op, ...]] = {
            "forward": annotate_ops(trainer.forward, (row.scope for row in plan.forward)),
            "backward": annotate_ops((trainer.backward,), (BACKWARD_ANNOTATION,)),
            "optimizer": annotate_ops(trainer.optimizer, (row.scope for row in plan.optimizer)),
        }
        self._plan_writer, self._owners = PlanWriter(emitter), OpOwners(plan)
        self._ids: dict[PlannedOp, int] = {}
        self._gauge = make_gauge(self._device)
        self._sizes: dict[str, MemorySizes] = {}
        self._profiler = WindowProfiler(gpu=self._device.type == "cuda")
        self._is_profiled = True
        self._step = 0
        self._control = Control(
            commands, emitter, heartbeat, self.set_mode, lambda _: "training accepts no prompts"
        )

    def set_mode(self, name: str) -> str:
        """Profile every step (windows, continuous) or none (spans); return a message."""
        if reason := explain_no_kernels(self._device):
            self._is_profiled = False
            return reason
        if name not in PROFILED_MODES:
            return f"unknown capture mode {name}; modes: {', '.join(PROFILED_MODES)}"
        self._is_profiled = PROFILED_MODES[name]
        return "every step is profiled" if self._is_profiled else "no step is profiled"

    def warm_up(self, steps: int) -> dict[str, int]:
        """Run steps unrecorded; return the nanoseconds per phase of the last one, without the profiler."""
        durations: dict[str, int] = {}
        for number in range(1, steps + 1):
            self._heartbeat.write_status(f"warming up, step {number} of {steps}")
            timestamps, _ = self._run_step(is_profiled=self._is_profiled and number == 1 < steps)
            durations = {phase: each.end - each.times[0] for phase, each in timestamps.items()}
        return durations

    def run(self, steps: int) -> None:
        """Run so many steps; 0: until told to end."""
        self._heartbeat.write_status("capturing")
        while not self._control.has_ended and (not steps or self._step < steps):
            self._step += 1
            self._write_step(*self._run_step(is_profiled=self._is_profiled))
            self._control.run_commands()

    def _run_step(self, *, is_profiled: bool) -> tuple[dict[str, OpTimestamps], ProfilerWindow | None]:
        """Run a step; return the timestamps of each phase, and the profiler window."""
        try:
            if is_profiled:
                self._profiler.start()
            timestamps = {phase: self._run_phase(phase) for phase in TRAINING_PHASES}
            return timestamps, self._profiler.stop() if is_profiled else None
        finally:
            self._profiler.discard()

    def _run_phase(self, phase: str) -> OpTimestamps:
        """Run a phase: each op is timed on the CPU, launch and wait on an accelerator."""
        if self._step:
            self._heartbeat.activity = f"step {self._step}, {phase}"
        self._gauge.reset()
        timestamps = OpTimestamps(now())
        with self._trainer.enter_precision(phase):
            for op in self._ops[phase]:
                op()
                if self._is_on_cpu:
                    timestamps.mark()
                self._commands.check_signals()
        if not self._is_on_cpu:
            timestamps.mark()
            torch.accelerator.synchronize()
            timestamps.mark()
        self._sizes[phase] = self._gauge.read()
        return timestamps

    def _write_step(self, timestamps: dict[str, OpTimestamps], window: ProfilerWindow | None) -> None:
        model = self._trainer.size
        start, end = timestamps["forward"].times[0], timestamps["optimizer"].end
        for phase, each in timestamps.items():
            span = {"t": each.times[0], "dur": each.end - each.times[0], "lens": "wall"}
            self._emitter.event("span", phase, step=self._step, phase=phase, **span)
            self._write_clock(phase, each)
            for what, size in self._sizes[phase].items():
                facts = {"t": each.end, "step": self._step, "phase": phase, "bytes": size}
                self._emitter.event("memory", f"{what}, {phase}", **facts)
        if window is not None:
            self._write_window(window)
        sizes = {"tokens": model.tokens, "context": model.context, "batch": model.batch}
        self._emitter.event("step", "train", t=start, dur=end - start, step=self._step, **sizes)
        self._emitter.counter("loss", self._trainer.loss)
        self._heartbeat.touch()

    def _write_clock(self, phase: str, timestamps: OpTimestamps) -> None:
        """Write the times of a phase by the host's clock."""
        if not self._is_on_cpu:
            ids = self._plan_writer.assign_ids(LAUNCH_AND_WAIT)
        elif phase == "backward":
            return
        else:
            ids = self._plan_writer.assign_ids(getattr(self._plan, phase))
        timestamps.write(self._emitter, ids, step=self._step, phase=phase)

    def _write_window(self, window: ProfilerWindow) -> None:
        finished_ops = (
            self._owners.collect_backward(window) if self._is_on_cpu else self._owners.collect_kernels(window)
        )
        parts: dict[str | None, list[FinishedOp]] = defaultdict(list)
        for work in finished_ops:
            parts[work.phase].append(work)
        for phase, ops in parts.items():
            ids = self._assign_ids([work.row for work in ops])
            starts, durations = [w.start for w in ops], [w.duration for w in ops]
            self._emitter.columns(ids, starts, durations, step=self._step, phase=phase)
        if not self._is_on_cpu:
            note_window_problems(self._emitter, window)
        self._emitter.cost_ns += self._profiler.overhead_ns

    def _assign_ids(self, rows: Sequence[PlannedOp]) -> list[int]:
        """Return the ids of rows that come in no fixed order."""
        new_rows = tuple(dict.fromkeys(row for row in rows if row not in self._ids))
        if new_rows:
            self._ids |= zip(new_rows, self._plan_writer.assign_ids(new_rows), strict=True)
        return [self._ids[row] for row in rows]


def annotate_ops(ops: Iterable[Op], scopes: Iterable[str]) -> tuple[Op, ...]:
    """Wrap each op in a profiler annotation, so that its work can be attributed to it."""
    scopes = tuple(scopes)
    annotations = make_annotations(scopes)
    return tuple(_run_within(annotations[scope], op) for op, scope in zip(ops, scopes, strict=True))


def _run_within(annotation: AbstractContextManager[Any], op: Op) -> Op:
    def run_annotated() -> None:
        with annotation:
            op()

    return run_annotated


def run(engine: RunningEngine) -> None:
    """Train until the end. torch must be imported."""
    args, emitter, _, heartbeat, commands, _ = engine
    commands.check_signals()
    if args.threads:
        torch.set_num_threads(args.threads)
    options, device = read_options(args), find_device(args.device)
    options = replace(options, size=replace(options.size, is_on_cpu=device.type == "cpu"))
    check_fits(options.size, read_free_bytes(device), options.optimizer)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True  # as the CS336 course does
    warm_up_steps = options.warm_up
    if warm_up_steps is None:
        warm_up_steps = CPU_WARM_UP_STEPS if device.type == "cpu" else WARM_UP_STEPS
    name = options.size.name
    engine.write_meta(name, build_meta(args, options, device, warm_up_steps))
    try:
        trainer = Trainer(options.size, device, options.optimizer, args.seed, engine.report_built)
    except torch.OutOfMemoryError as e:
        raise EngineError(f"{name} does not fit into memory", why=str(e)[:200]) from None
    rows = plan_training_step(options.size, options.optimizer)
    training = TrainingLoop(trainer, rows, emitter, heartbeat, commands)
    message = training.set_mode(args.capture)
    if explain_no_kernels(device):
        emitter.mark(message, "note")
    if unprofiled_ns := training.warm_up(warm_up_steps):
        engine.write_meta(name, {"unprofiled_ns": unprofiled_ns})
    training.run(args.steps)


def build_meta(
    args: argparse.Namespace, options: TrainingOptions, device: torch.device, warm_up_steps: int
) -> dict[str, Any]:
    """Build the run's meta: what a reader needs to judge its numbers."""
    size, roof = options.size, find_roof(device)
    products = "tf32" if device.type == "cuda" else "fp32"
    facts: dict[str, Any] = {
        "mode": "train", "model": size.name, "device": find_device_name(device),
        "dtype": "bfloat16" if size.is_mixed_precision else "float32",
        "products": "bf16 by autocast" if size.is_mixed_precision else products,
        "weights_in": "fp32", "weights": f"random({args.seed})",
        "d_model": size.width, "d_ff": size.ffn, "layers": size.layers, "heads": size.heads,
        "vocab": size.vocab, "context": size.context, "batch": size.batch, "parameters": size.parameters,
        "attention": options.attention, "optimizer": options.optimizer, "roof": roof and roof.as_meta(),
        "bytes_before": make_gauge(device).held_bytes, "bytes_of_states": size.count_state_bytes(),
        "bytes_needed": size.estimate_bytes(options.optimizer),
        "warm_up": warm_up_steps, "threads": torch.get_num_threads(),
        "capture": args.capture,
        "producer": "tracetui engines", "torch": torch.__version__, "python": platform.python_version(),
    }  # fmt: skip
    return {key: value for key, value in facts.items() if value is not None}


class FinishedOp(NamedTuple):
    """An op that was run."""

    row: PlacedOp
    phase: str | None
    start: int
    duration: int


class OpOwners:
    """Finds the op that work belongs to, by the annotation around it or around its forward op.

    Autograd uses its own thread; the sequence number of a forward op links its backward work to it.
    """

    def __init__(self, rows: StepPlan) -> None:
        self._forward_owners = {row.scope: row for row in (*rows.forward, *rows.optimizer)}
        self._forward_owners |= {BACKWARD_ANNOTATION: rows.backward[0], "optimizer": rows.optimizer[0]}
        scopes = (row.scope for row in rows.forward)
        self._backward_owners = dict(zip(scopes, reversed(rows.backward), strict=True))
        self._backward_owners["gradients"] = GRADIENTS

    def collect_backward(self, window: ProfilerWindow) -> list[FinishedOp]:
        """Return the backward pass on the CPU: one entry per op, with all its time."""
        pieces: dict[PlacedOp, list[LeafWork]] = defaultdict(list)
        for work in window.rows:
            if work.phase == "backward" or work.owner == BACKWARD_ANNOTATION:
                pieces[self._find_owner(work)].append(work)
        finished = [
            FinishedOp(row, "backward", min(w.start for w in works), sum(w.duration for w in works))
            for row, works in pieces.items()
        ]
        return sorted(finished, key=attrgetter("start"))

    def collect_kernels(self, window: ProfilerWindow) -> list[FinishedOp]:
        """Return kernels under the device's names; the longest kernel of an op carries its work."""
        pairs = [(kernel, self._find_owner(kernel)) for kernel in window.rows if kernel.lens == "gpu"]
        longest: dict[PlacedOp, LeafWork] = {}
        for kernel, row in pairs:
            if row not in longest or kernel.duration > longest[row].duration:
                longest[row] = kernel
        finished = [_place_kernel(kernel, row, longest[row] is kernel) for kernel, row in pairs]
        return sorted(finished, key=attrgetter("start"))

    def _find_owner(self, work: LeafWork) -> PlacedOp:
        if work.phase == "backward":
            return self._backward_owners.get(work.owner or "", UNATTRIBUTED)
        return self._forward_owners.get(work.owner or "", replace(UNATTRIBUTED, path=""))


def _place_kernel(kernel: LeafWork, owner: PlacedOp, has_work: bool) -> FinishedOp:
    path = PATH_SEPARATOR.join(part for part in (owner.path, owner.name) if part)
    row = replace(owner, name=kernel.name, path=path, lens="gpu")
    row = row if has_work else replace(row, flops=(0.0, 0.0), bytes=(0.0, 0.0))
    phase = owner.path.partition(PATH_SEPARATOR)[0] or None
    return FinishedOp(row, phase, kernel.start, kernel.duration)
