"""Whether the ledger finds an op that was slowed down, and the replay says what the step takes without it.

    python -m tests.bench.slow_op [--model smollm2-135m] [--op mlp.gate_up] [--factor 2] [--steps 64]
                                  [--rounds 5] [--threads 0] [--quiet 0.5]

A round records the engine as it is and with `--slow OP:FACTOR`, the order changing from round to round.
Added is what the op takes more in the slowed recording; the ledger's figure is by how much its item of that
op grew, since no op runs at the roof. The replay takes the slowing off the slowed recording, and its step is
set beside that of the other one; `others` is how much longer all other ops took there, which nothing slowed:
what is due to the machine. `alike` is the replay's error once the other recording is taken to have run as
fast or slow as those ops did. All are of the quiet part of the decode steps of each recording. One roof is
used for all: the best that the engine measured at the start of any recording, or what the op itself reached
where that is more, as it is on a machine that others use.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl

from capture.device_roofs import Roof
from capture.load_runs import load
from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.ledger.step_ledger import compute_ledger
from tracetui.analysis.ledger.what_if import predict_changes
from tracetui.look import Look


class Told(NamedTuple):
    """What is told of a decode step of one recording, in ms."""

    step: float
    op: float
    recoverable: float  # in the op, by the ledger
    first: str  # op of the ledger's first item
    without: float  # the step that the replay predicts


def recorded(args: argparse.Namespace, path: Path, factor: float) -> Run:
    """Record the engine, with an op slowed down."""
    command = [sys.executable, "-m", "engines", "--model", args.model, "--weights", "random"]
    command += ["--steps", str(args.steps), "--threads", str(args.threads), "--out", str(path)]
    command += ["--slow", f"{args.op}:{factor}"] if factor != 1 else []
    subprocess.run(command, check=True, capture_output=True)
    (run,) = load(path, cache=False)
    return quiet(run, args.quiet)


def quiet(run: Run, part: float) -> Run:
    """The run with the faster part of its decode steps."""
    steps = run.events.filter((pl.col("kind") == "step") & (pl.col("phase") == "decode")).sort("dur")
    kept = steps["step"].head(max(1, round(part * steps.height)))
    return replace(run, events=run.events.filter(pl.col("step").is_in(kept.implode())))


def best_roof(runs: list[Run], op: str) -> Roof:
    """The best roof of the recordings, raised to what the op reached in a twentieth of its launches."""
    best = max(
        (found for run in runs if (found := roofline.find_roof(run))),
        key=lambda roof: roof.memory_bytes_per_s,
    )
    of_op = [run.events.filter((pl.col("op") == op) & (pl.col("dur") > 0)) for run in runs]
    rates = [rows.select((pl.col("bytes") / pl.col("dur") * 1e9).quantile(0.95)).item() for rows in of_op]
    reached = max(rate for rate in rates if rate is not None)
    if reached <= best.memory_bytes_per_s:
        return best
    return replace(best, read_bytes_per_s=reached, source="reached by the op itself", when="")


def told(run: Run, roof: Roof, op: str, factor: float) -> Told:
    """What the ledger and the replay tell of an op."""
    run = replace(run, meta={**run.meta, "roof": roof.as_meta()})
    book = compute_ledger(run, Look(phase="decode"))
    assert book is not None
    own = book.items.filter(op=op)
    (predicted,) = predict_changes(run, Look(phase="decode", what_if=((op, 1 / factor),)))
    own_ms, recoverable_ms = (float(own[c].sum()) / book.steps / 1e6 for c in ("own_ns", "recoverable_ns"))
    first = str(book.items["op"][0])
    return Told(predicted.step_ns / 1e6, own_ms, recoverable_ms, first, predicted.predicted_ns / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--op", default="mlp.gate_up")
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--quiet", type=float, default=0.5, help="part of the steps that counts")
    args = parser.parse_args()
    pairs: list[tuple[Run, Run]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            order = (1.0, args.factor) if number % 2 else (args.factor, 1.0)
            found = {f: recorded(args, Path(folder) / f"{number}-{f}.jsonl", f) for f in order}
            pairs.append((found[1.0], found[args.factor]))
            print(f"round {number + 1}: load {os.getloadavg()[0]:.1f}", flush=True)
    show(pairs, args)


def show(pairs: list[tuple[Run, Run]], args: argparse.Namespace) -> None:
    """A line a round, and the medians."""
    roof = best_roof([run for pair in pairs for run in pair], args.op)
    print(f"\n{args.model}, {args.op} × {args.factor:g}, {args.steps} steps, {os.cpu_count()} cores")
    print(f"roof: {roofline.describe_roof(roof)}\n")
    heads = [
        "usual",
        "op",
        "slowed",
        "op",
        "added",
        "ledger",
        "error",
        "first",
        "without",
        "error",
        "others",
        "alike",
    ]
    widths = (10, 7, 12, 7, 7, 7, 8, 8, 16, 8, 8, 8)
    print("".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    errors: list[tuple[float, float, float]] = []
    for runs in pairs:
        usual, slow = (told(run, roof, args.op, args.factor) for run in runs)
        added, grown = slow.op - usual.op, slow.recoverable - usual.recoverable
        others = (slow.step - slow.op) / (usual.step - usual.op) - 1
        alike = slow.without / usual.step / (1 + others) - 1
        errors.append((grown / added - 1, slow.without / usual.step - 1, alike))
        print(
            f"{usual.step:10.2f} {usual.op:6.2f} {slow.step:11.2f} {slow.op:6.2f} {added:6.2f} {grown:6.2f}"
            f" {errors[-1][0]:+7.1%}  {slow.first:13}{slow.without:9.2f}"
            f" {errors[-1][1]:+7.1%} {others:+7.1%} {alike:+7.1%}"
        )
    ledger_error, step_error, alike = (median(e) for e in zip(*errors, strict=True))
    print(
        f"median error of what was added {ledger_error:+.1%}, of the step without it {step_error:+.1%}",
        end="",
    )
    print(f", of that beside the ops that nothing slowed {alike:+.1%}")


if __name__ == "__main__":
    main()
