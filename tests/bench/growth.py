"""How steady the slope of the engine's attention is: python -m tests.bench.growth record|judge DIR [COUNT].

`record` records each model COUNT times alone and COUNT times beside one, two and four busy loops; `judge`
prints the slope of attention per 1,000 tokens of each recording, its median, how far recordings and the odd
and even steps of one differ, and how many of the other rows, of the same work in every step, are said to
grow. The figures are those of the guide `growth`.
"""

import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median, stdev
from typing import Final

import polars as pl

from capture.load_runs import load
from capture.run import Run
from tracetui.analysis.growth import MOVING_LAWS, compute_growth_lines
from tracetui.look import Look

MODELS: Final = ("gemma-3-270m", "qwen2.5-0.5b", "smollm2-135m")
LOOPS: Final = {"alone": 0, "loaded": 1, "loaded2": 2, "loaded4": 4}  # busy loops by state
STEPS: Final = 128


def record(folder: Path, count: int) -> None:
    """Record all models in turn, alone and beside a busy loop, so that other load meets all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = ["--weights", "random", "--steps", str(STEPS), "--threads", "1", "--quiet"]
    for number in range(count):
        for model in MODELS:
            for state, loops in LOOPS.items():
                out = ["-o", str(folder / f"{model}-{state}-{number}.jsonl")]
                command = [sys.executable, "-c", "while True: pass"]
                busy = [subprocess.Popen(command) for _ in range(loops)]
                command = [sys.executable, "-m", "tracetui", "record", "--model", model, *engine, *out]
                subprocess.run(command, check=True)
                for process in busy:
                    process.kill()
                    process.wait()


def judge(folder: Path) -> None:
    """Print the slopes of attention by model and state, and the share of other rows that grow."""
    slopes, halves = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    false = rows = 0
    for path in sorted(folder.glob("*.jsonl")):
        (run,) = load(path)
        lines = compute_growth_lines(run, Look(), "name")
        is_attention, slope = pl.col("name") == "attention", pl.col("slope_ns_per_1k")
        name = path.stem.rpartition("-")[0]
        slopes[name] += lines.filter(is_attention)["slope_ns_per_1k"].to_list()
        others = lines.filter(~is_attention)
        halves[name.rpartition("-")[0]].append(math.log(measure_half(run, 1) / measure_half(run, 0)) / 2)
        false += others.filter(pl.col("law").is_in(MOVING_LAWS), slope > 0).height
        rows += others.height
    for name, found in slopes.items():
        each = ", ".join(f"{s / 1e6:.2f}" for s in found)
        print(f"{name:24} {median(found) / 1e6:.2f} ms per 1,000 tokens ({each})")
    for model, differences in halves.items():
        logs = [math.log(s) for name, found in slopes.items() if name.startswith(model) for s in found]
        print(f"{model:24} SD of recordings {stdev(logs):.1%}, of the steps of one {stdev(differences):.1%}")
    print(f"other rows that grow: {false} of {rows}")


def measure_half(run: Run, parity: int) -> float:
    """Return the slope of attention over the odd or the even steps alone."""
    step = pl.col("step")
    half = run.with_events(run.events.filter(step.is_null() | (step % 2 == parity)))
    lines = compute_growth_lines(half, Look(), "name")
    return float(lines.filter(pl.col("name") == "attention")["slope_ns_per_1k"].item())


if __name__ == "__main__":
    action, folder, *count = sys.argv[1:]
    record(Path(folder), int(*count or [5])) if action == "record" else judge(Path(folder))
