"""What watching a training step costs, and how much of its backward pass is told under a module.

    python -m tests.bench.training [--layers 2] [--context 128] [--rounds 5]

Steps of cs336-small with and without the profiler take turns; every figure is a median over the rounds.
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from capture.load_runs import load
from capture.native.emit import Emitter, now
from engines.host.engine_commands import Commands
from engines.host.heartbeat import Heartbeat
from engines.training.model_sizes import find_size
from engines.training.trainer import Trainer
from engines.training.training_loop import TrainingLoop
from engines.training.training_plan import plan_training_step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    size = replace(find_size("small").with_layers(args.layers), context=args.context)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prof.jsonl"
        emitter = Emitter(path)
        emitter.run(size.name, {})
        trainer = Trainer(size, torch.device("cpu"))
        course = TrainingLoop(
            trainer, plan_training_step(size, "cs336"), emitter, Heartbeat(emitter), Commands()
        )
        course.warm_up(2)
        took: dict[str, list[int]] = {"spans": [], "windows": []}
        for number in range(1, args.rounds + 1):
            for mode in took:
                course.set_mode(mode)
                began = now()
                course.run(2 * number - (mode == "spans"))
                took[mode].append(now() - began)
        emitter.end()
        _tell(size.name, took, load(path, cache=False)[0].events)


def _tell(name: str, took: dict[str, list[int]], events: pl.DataFrame) -> None:
    bare, watched = (statistics.median(took[mode]) for mode in ("spans", "windows"))
    backward = events.filter(kind="kernel", phase="backward")
    named = pl.col("op").cast(pl.String).is_in(["loss", "embed", "grad_accum", "unattributed"])
    own = backward.filter(~named)["dur"].sum() / backward["dur"].sum()
    steps = backward["step"].unique().implode()
    spans = events.filter(pl.col("step").is_in(steps)).filter(kind="span", phase="backward")
    told = backward["dur"].sum() / spans["dur"].sum()
    print(f"{name}: a step {bare / 1e6:,.0f} ms")
    print(f"watched and written {watched / 1e6:,.0f} ms: {watched / bare:.3f}×")
    print(f"of the backward pass {told:.1%} is told, {own:.1%} of that by module")


if __name__ == "__main__":
    main()
