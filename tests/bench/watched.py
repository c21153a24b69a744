"""What a screen costs the engine that it watches: tokens a second without one, with one, with a stopped one.

    python -m tests.bench.watched [--model smollm2-135m] [--rounds N] [--seconds S]

One engine decodes all the while. A round goes through the three ways in some order and then back, so that the
growing context costs each of them alike.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

import polars as pl

from capture.load_runs import load
from tests.bench._screen import Screen

SETTLE = 2.0  # seconds after a change that count for none of the ways
WAYS = ("no screen", "a screen", "a stopped screen")


def turn(way: str, path: Path, seconds: float) -> tuple[int, int]:
    """Begin and end of a stretch of one way, by the clock of the recording."""
    screen = Screen("open", "--follow", str(path), "--view", "kernels") if way != "no screen" else None
    if screen is not None:
        screen.wait(lambda _: screen.steps)
        if way == "a stopped screen":
            os.kill(screen.child.pid, signal.SIGSTOP)
    time.sleep(SETTLE)
    begin = time.perf_counter_ns()
    time.sleep(seconds)
    end = time.perf_counter_ns()
    if screen is not None:
        os.kill(screen.child.pid, signal.SIGCONT)
        screen.close()
    return begin, end


def rate(steps: pl.DataFrame, spans: list[tuple[int, int]]) -> float:
    """Tokens a second of the decode steps that lie within the stretches."""
    inside = pl.concat(steps.filter(pl.col("t") >= a, pl.col("t") + pl.col("dur") <= b) for a, b in spans)
    return 1e9 * inside.height / float(inside["dur"].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    args = parser.parse_args()
    rng = Random(3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prof.jsonl"
        options = ["--model", args.model, "--weights", "random", "--capacity", "32000", "--out", str(path)]
        engine = subprocess.Popen([sys.executable, "-m", "engines", *options], stdin=subprocess.PIPE)
        try:
            while not path.exists() or b'"phase":"decode"' not in path.read_bytes():
                time.sleep(0.1)
            rounds: list[dict[str, list[tuple[int, int]]]] = []
            for _ in range(args.rounds):
                there = rng.sample(WAYS, len(WAYS))
                rounds.append({way: [] for way in WAYS})
                for way in (*there, *reversed(there)):
                    rounds[-1][way].append(turn(way, path, args.seconds))
        finally:
            engine.terminate()
            engine.wait()
        (run,) = load(path, cache=False)
    steps = run.events.filter((pl.col("kind") == "step") & (pl.col("phase") == "decode"))
    rates = {way: [rate(steps, spans[way]) for spans in rounds] for way in WAYS}
    for way, found in rates.items():
        ratios = [a / b for a, b in zip(found, rates["no screen"], strict=True)]
        print(
            f"{way:18}{median(found):8.1f} tok/s {median(ratios):6.3f}× [{min(ratios):.3f}–{max(ratios):.3f}]"
        )


if __name__ == "__main__":
    main()
