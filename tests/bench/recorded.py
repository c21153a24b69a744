"""What being recorded costs a program, found in the program itself: its steps watched and unwatched, in turn.

    python -m tests.bench.recorded [NAME…] [--pairs 40] [--detail full] [--backend inductor]

In one process the watcher is switched off and on for blocks of steps, and each pair of blocks gives a ratio:
other programs on the machine are felt by both. CPU time is that of the program's own process, which others
change little; a ratio of wall times needs a quiet machine. `small` has steps of some 4 ms on a quiet
machine, `tiny` of some 2 ms; `idle` (105 calls) and `idle4` (53) call modules that compute nothing, for what
a call adds. Profiler
windows are measured apart: what they add to their steps, and which part of the time they take. Of compiled
programs the graphs are counted, alone and recorded. Of the start the import of torch is measured.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.house import ROOT
from tracetui.process import DETAIL_VARIABLE, build_recorded_environment

NAMES: Final = ("decode", "small", "tiny", "train", "generate", "compiled", "fullgraph")
ROUNDS: Final = 7  # of the start
START: Final = "import torch, time; print(time.process_time())"


def run(command: Sequence[str], *, recorded: bool) -> str:
    """Return what a Python program prints, run alone or recorded into a file that is thrown away."""
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("TRACETUI")}
    with tempfile.TemporaryDirectory(prefix="recorded-bench-") as folder:
        own = build_recorded_environment(Path(folder) / "prof.jsonl") if recorded else {}
        added = {k: v for k, v in own.items() if k.startswith("TRACETUI")}
        site = [own["PYTHONPATH"].partition(os.pathsep)[0]] if recorded else []
        env = {**plain, **added, "PYTHONPATH": os.pathsep.join([*site, str(ROOT)])}
        done = subprocess.run(
            [sys.executable, *command], env=env, stdout=subprocess.PIPE, text=True, check=True
        )
    return done.stdout


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and between which values it lies in 95 of 100 such series."""
    ordered, half = sorted(values), 0.98 * sqrt(len(values))
    middle = (len(ordered) - 1) / 2
    low, high = max(0, int(middle - half)), min(len(ordered) - 1, int(middle + half + 1))
    return median(ordered), ordered[low], ordered[high]


def program_line(name: str, pairs: int, backend: str) -> str:
    """Return the figures of one program in a line."""
    command = ["-m", "tests.bench._recorded_program", name, str(pairs), backend]
    told: dict[str, Any] = json.loads(run(command, recorded=True).splitlines()[-1])
    cpu, wall = (interval(ratios) for ratios in zip(*told["ratios"], strict=True))
    windows = [f"{ns / 1e6:.1f}" for ns in told["windows_ns"]]
    words = [
        f"{name:10}{told['step_ns'] / 1e6:7.2f} ms a step",
        "+{:.0f} µs [{:.0f}-{:.0f}]".format(*(ns / 1e3 for ns in interval(told["added_ns"]))),
        f"recorded {cpu[0]:.3f}x [{cpu[1]:.3f}-{cpu[2]:.3f}] of its CPU, {wall[0]:.3f}x of the wall",
        f"windows {' '.join(windows) or 'none'} ms, together {told['windows_share']:.1%}",
        f"unwatched after windows {told['after_a_window']:.3f}x",
    ]
    if name in ("compiled", "fullgraph"):
        alone = json.loads(run(command, recorded=False).splitlines()[-1])
        words.append(f"graphs {'the same' if alone['graphs'] == told['graphs'] else 'DIFFERENT'}")
    return "; ".join(words)


def start_line() -> str:
    """Return what the import of torch takes alone, and what a recording adds to it."""
    alone, added = [], []
    for _ in range(ROUNDS):
        plain, recorded = (float(run(["-c", START], recorded=it)) for it in (False, True))
        alone.append(plain)
        added.append(recorded - plain)
    return f"start     {median(alone):7.2f} s of CPU; recorded {1e3 * median(added):+.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*NAMES, "start"])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--detail", default="full", choices=("full", "layers", "steps"))
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    args = parser.parse_args()
    os.environ[DETAIL_VARIABLE] = args.detail
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(
        f"{os.cpu_count()} cores, load {load}; Python {platform.python_version()}, torch {version('torch')}"
    )
    for name in args.names:
        if name == "generate" and find_spec("transformers") is None:
            print("generate   transformers is not installed")
        else:
            print(
                start_line() if name == "start" else program_line(name, args.pairs, args.backend), flush=True
            )


if __name__ == "__main__":
    main()
