"""Build a trainer from its arguments and run it; what was chosen stands in the run's meta."""

import argparse
import platform
from dataclasses import replace
from typing import Any, Final

import torch

from capture.errors import EngineError
from capture.native.emit import Emitter
from engines.choices import find_device
from engines.host.commands import Commands
from engines.host.device import why_unwatched
from engines.host.heartbeat import Heartbeat
from engines.host.roofs import device_name, roof_of
from engines.training.loop import TrainingLoop
from engines.training.memory import gauge
from engines.training.options import TrainingOptions, read_options
from engines.training.rows import step_rows
from engines.training.sizes import Size, refuse_beyond
from engines.training.trainer import Trainer
from engines.weights.sources import free_bytes

WARM_UP: Final = 5  # until the clocks and the allocator of an accelerator have settled
WARM_UP_ON_CPU: Final = 2


def run(
    args: argparse.Namespace, emitter: Emitter, id: str, heartbeat: Heartbeat, commands: Commands
) -> None:
    """Train until the end; torch is imported by now."""
    commands.check()
    if args.threads:
        torch.set_num_threads(args.threads)
    wanted, device = read_options(args), find_device(args.device)
    wanted = replace(wanted, size=replace(wanted.size, on_host=device.type == "cpu"))
    refuse_beyond(wanted.size, free_bytes(device), wanted.optimizer)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True  # as the course's own runs
    emitter.run(wanted.size.name, about(args, wanted, device), id=id)
    trainer = build(wanted, device, args.seed, heartbeat, commands)
    rows = step_rows(wanted.size, wanted.optimizer)
    training = TrainingLoop(trainer, rows, emitter, heartbeat, commands)
    answer = training.mode(args.capture)
    if why_unwatched(device):
        emitter.mark(answer, "note")
    unwatched = training.warm_up(warm_up_steps(wanted, device))
    if unwatched:
        emitter.run(wanted.size.name, {"unprofiled_ns": unwatched}, id=id)
    training.run(args.steps)


def warm_up_steps(wanted: TrainingOptions, device: torch.device) -> int:
    usual = WARM_UP_ON_CPU if device.type == "cpu" else WARM_UP
    return usual if wanted.warm_up is None else wanted.warm_up


def build(
    wanted: TrainingOptions, device: torch.device, seed: int, heartbeat: Heartbeat, commands: Commands
) -> Trainer:
    """Build the model and its optimizer, and report the progress."""

    def progress(share: float) -> None:
        commands.check()
        heartbeat.progress("building weights", share)

    try:
        return Trainer(wanted.size, device, optimizer=wanted.optimizer, seed=seed, progress=progress)
    except torch.OutOfMemoryError as e:
        raise EngineError(f"{wanted.size.name} does not fit after all", why=str(e)[:200]) from None


def products(size: Size, device: torch.device) -> str:
    """Return what matrix products are computed in."""
    if size.mixed:
        return "bf16 by autocast"
    return "tf32" if device.type == "cuda" else "fp32"


def about(args: argparse.Namespace, wanted: TrainingOptions, device: torch.device) -> dict[str, Any]:
    """Return the run's meta: what a reader must know to judge its numbers."""
    size, roof = wanted.size, roof_of(device)
    facts: dict[str, Any] = {
        "mode": "train", "model": size.name, "device": device_name(device),
        "dtype": "bfloat16" if size.mixed else "float32", "products": products(size, device),
        "weights_in": "fp32", "weights": f"random({args.seed})",
        "d_model": size.width, "d_ff": size.ffn, "layers": size.layers, "heads": size.heads,
        "vocab": size.vocab, "context": size.context, "batch": size.batch, "parameters": size.parameters,
        "attention": wanted.attention, "optimizer": wanted.optimizer, "roof": roof and roof.as_meta(),
        "bytes_before": gauge(device).held, "bytes_of_states": size.states(),
        "bytes_needed": size.bytes_needed(wanted.optimizer),
        "warm_up": warm_up_steps(wanted, device), "threads": torch.get_num_threads(), "capture": args.capture,
        "producer": "tracetui engines", "torch": torch.__version__, "python": platform.python_version(),
    }  # fmt: skip
    return {key: value for key, value in facts.items() if value is not None}
