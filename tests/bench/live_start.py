"""How soon `tracetui live` shows something, and how soon gemma-3-1b takes its first decode step.

    python -m tests.bench.live_start [--rounds N] [--model gemma-3-1b]

The screen: seconds to its first frame and to the first word of the engine's status, beside a Textual app
that imports polars. The engine: seconds to its first decode step from random weights, beside a process that
imports torch and fills as many bytes as the weights have; and what it said it was doing for how long.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import polars as pl

from capture.load_runs import load
from capture.run import Run
from engines.models.catalogue import find_preset
from engines.models.spec import count_parameters
from tests.bench._screen import Screen
from tests.bench.startup import BARE, seconds

FILL = """
import torch
torch.empty({size}, dtype=torch.bfloat16).fill_(0.02)
"""
STATUS = ("importing", "choosing", "building")


def screen(model: str, folder: Path) -> tuple[float, float]:
    """Seconds to the first frame and to the engine's first word on it."""
    shown = Screen("live", "--model", model, "--weights", "random", "-o", str(folder / "screen.jsonl"))
    try:
        frame = shown.wait(lambda text: "tracetui" in text)
        status = shown.wait(lambda text: any(word in text for word in STATUS))
    finally:
        shown.close()
    return frame, status


def timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return time.monotonic() - began


def engine(model: str, path: Path) -> tuple[float, Run]:
    """Seconds to the end of the first decode step, by the file's clock, and the recording."""
    began = time.time_ns()
    options = ["--model", model, "--weights", "random", "--steps", "1", "--out", str(path)]
    timed([sys.executable, "-m", "engines", *options])
    (run,) = load(path, cache=False)
    mono, unix = run.meta["clock"]
    first = run.events.filter((pl.col("kind") == "step") & (pl.col("phase") == "decode")).row(0, named=True)
    return (first["t"] + first["dur"] - mono + unix - began) / 1e9, run


def words(run: Run, began: int) -> list[tuple[str, float]]:
    """What the engine said it was doing, and for how many seconds."""
    marks = run.events.filter((pl.col("kind") == "mark") & (pl.col("path") == "status"))
    said = [(str(name).split(" ")[0], t) for name, t in marks.select("name", "t").iter_rows()]
    starts = [said[0], *(b for a, b in pairwise(said) if a[0] != b[0])]
    ends = [*(t for _, t in starts[1:]), starts[-1][1]]
    return [("started", (starts[0][1] - began) / 1e9)] + [
        (word, (end - t) / 1e9) for (word, t), end in zip(starts, ends, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="gemma-3-1b")
    args = parser.parse_args()
    fill = [sys.executable, "-c", FILL.format(size=count_parameters(find_preset(args.model)))]
    names = (
        "bare app + polars",
        "first frame",
        "the engine's status",
        "import torch + fill",
        "first decode step",
    )
    took: dict[str, list[float]] = {name: [] for name in names}
    for n in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare = seconds(["-c", BARE], "kernel_00")
            frame, status = screen(args.model, Path(folder))
            filled = timed(fill)
            step, run = engine(args.model, Path(folder) / f"{n}.jsonl")
            for name, figure in zip(names, (bare, frame, status, filled, step), strict=True):
                took[name].append(figure)
    for name, peer in zip(names, (0, 0, 1, 3, 3), strict=True):
        figure, beside = median(took[name]), median(took[names[peer]])
        print(f"{name:22}{figure:7.3f} s {figure / beside:6.2f}× {names[peer]}")
    for word, spent in words(run, run.meta["clock"][0]):
        print(f"    {word:18}{spent:7.3f} s")


if __name__ == "__main__":
    sys.exit(main())
