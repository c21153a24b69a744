"""How steady the slope of the engine's attention is: python -m tests.bench.growth record|judge DIR [COUNT].

`record` records each model COUNT times alone and COUNT times beside a busy loop; `judge` prints the slope of
attention per 1,000 tokens of each recording, its median, and how many of the other rows, whose work is the
same in every step, are said to grow. The figures are those of the guide `growth`.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

import polars as pl

from capture.load_runs import load
from tracetui.analysis.growth import MOVING_LAWS, compute_growth_lines
from tracetui.look import Look

MODELS: Final = ("gemma-3-270m", "qwen2.5-0.5b", "smollm2-135m")
BUSY: Final = {"alone": False, "loaded": True}
STEPS: Final = 128


def record(folder: Path, count: int) -> None:
    """Record all models in turn, alone and beside a busy loop, so that other load meets all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = ["--weights", "random", "--steps", str(STEPS), "--threads", "1", "--quiet"]
    for number in range(count):
        for model in MODELS:
            for state, is_busy in BUSY.items():
                out = ["-o", str(folder / f"{model}-{state}-{number}.jsonl")]
                busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_busy else None
                command = [sys.executable, "-m", "tracetui", "record", "--model", model, *engine, *out]
                subprocess.run(command, check=True)
                if busy:
                    busy.kill()
                    busy.wait()


def judge(folder: Path) -> None:
    """Print the slopes of attention by model and state, and the share of other rows that grow."""
    slopes: dict[str, list[float]] = defaultdict(list)
    false = rows = 0
    for path in sorted(folder.glob("*.jsonl")):
        lines = compute_growth_lines(load(path)[0], Look(), "name")
        is_attention, slope = pl.col("name") == "attention", pl.col("slope_ns_per_1k")
        slopes[path.stem.rpartition("-")[0]] += lines.filter(is_attention)["slope_ns_per_1k"].to_list()
        others = lines.filter(~is_attention)
        false += others.filter(pl.col("law").is_in(MOVING_LAWS), slope > 0).height
        rows += others.height
    for name, found in slopes.items():
        each = ", ".join(f"{s / 1e6:.2f}" for s in found)
        print(f"{name:24} {median(found) / 1e6:.2f} ms per 1,000 tokens ({each})")
    print(f"other rows that grow: {false} of {rows}")


if __name__ == "__main__":
    action, folder, *count = sys.argv[1:]
    record(Path(folder), int(*count or [5])) if action == "record" else judge(Path(folder))
