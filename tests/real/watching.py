"""What watching costs a served model: tokens per second with figures only, and the silence of windows.

python -m tests.real.watching URL figures FOLDER MINUTES: the watcher runs and is stopped in turn
python -m tests.real.watching URL windows FOLDER SECONDS TRACES: windows of five steps

Four clients stream all the while, in a process of their own that keeps its clock. A server that is started
with PYTHONPATH=tests/real/programs/collections notes its garbage collections.
"""

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl
import psutil

from capture.load_runs import load
from capture.native.schema import PROFILE_MARK

CLIENTS, PROMPT, NEW = 4, 64, 64
STRETCH_S, SETTLE_S = 3.0, 0.3  # of one way, and the part of it at its begin that counts for none


class Silence(NamedTuple):
    """One window: the longest time without a token as it was said, and as the clients measured it."""

    said_ms: float
    off_by_ms: float
    seen_ms: float


@contextmanager
def ask(
    url: str, folder: Path, clients: int = CLIENTS, prompt: int = PROMPT, new: int = NEW
) -> Iterator[Path]:
    """Let clients ask meanwhile; yield where they write when their tokens came, which they do at the end."""
    times = folder / "times.json"
    asking = [url, *map(str, (clients, prompt, new)), str(times)]
    with subprocess.Popen([sys.executable, "-m", "tests.real.load", *asking]) as load:
        try:
            time.sleep(5.0)
            yield times
        finally:
            load.terminate()
            load.wait()


def list_tokens(times: Path) -> list[float]:
    """Return when each token came, by this machine's clock and in order."""
    return sorted(at for request in json.loads(times.read_text()) for at in request[1:])


def measure_silences(url: str, folder: Path, seconds: int, traces: Path) -> list[Silence]:
    """Take windows of five steps as often as the options allow; return what each cost."""
    out = folder / "windows.jsonl"
    command = [sys.executable, "-m", "tracetui", "record", url, "--traces", str(traces), "-o", str(out)]
    command += ["--for", f"{seconds}s", "--quiet", "--steps", "5", "--every", "5s", "--silence", "30%"]
    with ask(url, folder) as times:
        subprocess.run(command, check=True)
    tokens = list_tokens(times)
    (run,) = load(out, cache=False)
    marks = run.events.filter(pl.col("kind") == "mark").with_columns(pl.col("path", "name").cast(pl.String))
    texts = marks.filter(path="windows").sort("t").select("t", "name").rows()
    profiles = marks.filter(path=PROFILE_MARK).sort("t").select("t", "name").rows()
    silences = []
    for (begin, word), (end, _) in pairwise(profiles):
        status = next((text for t, text in texts if t >= end), "") if word == "begin" else ""
        if match := re.search(r"no token for ([0-9,]+) ± ([0-9,]+) ms", status):
            holes = (b - a for a, b in pairwise(tokens) if b > begin / 1e9 and a < end / 1e9)
            said_ms, off_by_ms = (float(number.replace(",", "")) for number in match.groups())
            silences.append(Silence(said_ms, off_by_ms, 1000 * max(holes)))
    return silences


def compare_figures(url: str, folder: Path, minutes: float) -> tuple[list[tuple[float, float]], float]:
    """Return tokens per second with and without a watcher in pairs, and its share of a core."""
    out, pairs = folder / "figures.jsonl", max(1, round(60 * minutes / (2 * STRETCH_S)))
    command = [sys.executable, "-m", "tracetui", "record", url, "--windows", "0", "--quiet", "-o", str(out)]
    stretches: list[tuple[bool, float, float]] = []
    with ask(url, folder) as times, subprocess.Popen(command) as recorder:
        time.sleep(5.0)
        watchers = [psutil.Process(recorder.pid), *psutil.Process(recorder.pid).children(recursive=True)]
        assert recorder.poll() is None, "it must write a new file"
        before = sum(sum(each.cpu_times()[:2]) for each in watchers)
        for _ in range(pairs):
            for is_on in random.sample((True, False), 2):
                for each in watchers:
                    each.resume() if is_on else each.suspend()
                time.sleep(SETTLE_S)
                begin = time.monotonic()
                time.sleep(STRETCH_S - SETTLE_S)
                stretches.append((is_on, begin, time.monotonic()))
        used = sum(sum(each.cpu_times()[:2]) for each in watchers) - before
        for each in watchers:
            each.resume()
        recorder.send_signal(signal.SIGINT)
    tokens = list_tokens(times)
    rates = [(is_on, sum(a <= at < b for at in tokens) / (b - a)) for is_on, a, b in stretches]
    pairs_of_rates = [dict(pair) for pair in zip(rates[::2], rates[1::2], strict=True)]
    return [(pair[True], pair[False]) for pair in pairs_of_rates], used / (pairs * STRETCH_S)


def compute_interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the ratio of both sums, and the ends of its interval of 95 % by drawing pairs again."""
    numbers = random.Random(0)
    drawn = [numbers.choices(pairs, k=len(pairs)) for _ in range(4000)]
    ratios = sorted(sum(a for a, _ in pairs) / sum(b for _, b in pairs) for pairs in drawn)
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs), ratios[100], ratios[-101]


def main(url: str, what: str, folder: str, amount: str, traces: str = "") -> None:
    """Measure one of both, and print the figures."""
    if what == "windows":
        for said, off_by, seen in measure_silences(url, Path(folder), int(amount), Path(traces)):
            print(
                f"no token for {said:.0f} ± {off_by:.0f} ms; clients {seen:.0f} ms; {said / seen - 1:+.0%}",
                flush=True,
            )
        return
    rates, share = compare_figures(url, Path(folder), float(amount))
    ratio, low, high = compute_interval(rates)
    without = sum(b for _, b in rates) / len(rates)
    print(f"{len(rates)} pairs, {without:.0f} tok/s without a watcher, which took {share:.2%} of a core")
    print(f"{ratio:.4f} times with it ({low:.4f} to {high:.4f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
