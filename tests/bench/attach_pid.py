"""Attaching to a process that runs, and leaving it, over and over: what it computes and holds then.

    python -m tests.bench.attach_pid [--times 300] [--seconds 0.1]

The process trains and answers all the while. In the end it must have computed what it computes alone in as
many iterations, and hold the memory, files and threads that it held after the first time.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.capture.record.running import Running, alone, attach_once, not_possible

HELD = ("files", "threads", "known", "names", "environment", "path", "changed", "hooks")
FLAT_KB = 2048  # of some hundred thousand, as a process that only goes on may come and go by
FLAT_BLOCKS = 5000  # of Python, of some million


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=0.1)
    args = parser.parse_args()
    if why := not_possible():
        print(f"not here: {why}")
        return 1
    took, steps = [], 0
    with tempfile.TemporaryDirectory() as folder, Running() as program:
        for number in range(args.times):
            out = Path(folder) / f"{number}.jsonl"
            began = time.perf_counter()
            steps += attach_once(program.pid, out, args.seconds)
            took.append(time.perf_counter() - began - args.seconds)
            out.unlink()
            if number == 0:
                first = program.ask()
            if number % 50 == 0:
                now = program.ask()
                print(f"{number:4} {now['kilobytes']:,} kB, {now['blocks']:,} blocks", flush=True)
        last = program.ask()
        ended = program.leave()
    same = alone(last["iterations"])["digest"] == last["digest"]
    changed = [name for name in HELD if first[name] != last[name]]
    grown = last["kilobytes"] - first["kilobytes"], last["blocks"] - first["blocks"]
    print(f"{args.times} times, {median(took):.2f} s each in the median, {steps:,} steps seen")
    print(f"iterations {last['iterations']:,}: the same results as alone: {'yes' if same else 'NO'}")
    print(
        f"memory {grown[0]:+,} kB, {grown[1]:+,} blocks of Python; changed: {', '.join(changed) or 'nothing'}"
    )
    print(f"exit code {ended[0]}, on stderr {ended[1]!r}")
    right = same and not changed and ended == (0, "") and grown[0] <= FLAT_KB and grown[1] <= FLAT_BLOCKS
    print("unharmed" if right else "HARMED")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
