"""Run the benchmarks of the figures one after another within a time, and print the board of pass and fail."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench._figures import BENCHES, FIGURES, Bench, Measured
from tests.bench._speed import measure_slowness

ROOT: Final = Path(__file__).parents[2]
MINUTES: Final = 29.0  # for all of them
SLACK: Final = 3.0  # times the seconds that a benchmark usually takes, after which it is given up


def run(names: Sequence[str], minutes: float = MINUTES) -> list[Measured]:
    """Return the figures of some benchmarks; what the time has no room for is not run."""
    end = time.monotonic() + 60 * minutes
    board: list[Measured] = []
    for name in names:
        before = measure_slowness()
        printed = output(BENCHES[name], end - time.monotonic())
        slowness = (before + measure_slowness()) / 2
        figures = [figure.measured(printed, slowness) for figure in FIGURES if figure.bench == name]
        board += figures
        print(f"\n== {name}: python -m {' '.join(BENCHES[name].words)}\n{printed.rstrip()}\n", flush=True)
        print("\n".join(map(line, figures)), flush=True)
    return board


def output(bench: Bench, left: float) -> str:
    """Return what a benchmark prints; nothing where too little time is left, a sentence where it fails."""
    if left < bench.seconds:
        return f"left out: it takes {bench.seconds} s, and {max(0, left):.0f} s are left"
    command = [sys.executable, "-m", *bench.words]
    limit = min(left, SLACK * bench.seconds)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as e:
        begun = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
        return f"{begun}given up after {limit:.0f} s"
    return done.stdout or f"it failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"


def heading() -> str:
    """Return the machine, the day and the versions, and the names of the columns."""
    import polars
    import textual

    cores, load = os.cpu_count(), os.getloadavg()[0]
    versions = (
        f"Python {platform.python_version()}, polars {polars.__version__}, Textual {textual.__version__}"
    )
    machine = f"{time.strftime('%Y-%m-%d %H:%M')}, {_processor()}, {cores} cores, load {load:.1f}"
    return f"{machine}; {versions}\n{'':46}{'measured':>12}  {'must':>14}  {'verdict':8}beside"


def _processor() -> str:
    """Return the name of the processor, where the system tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    return next(
        (ln.partition(":")[2].strip() for ln in lines if ln.startswith("model name")), platform.machine()
    )


def line(measured: Measured) -> str:
    """Return a figure as one line of the board."""
    figure = measured.figure
    own = "–" if measured.own is None else f"{measured.own:,.6g} {figure.unit}".rstrip()
    return f"{figure.what:46}{own:>12}  {must(measured):>14}  {measured.verdict:8}{beside(measured)}".rstrip()


def must(measured: Measured) -> str:
    """Return the limit of a figure: a number for this machine, or so many times the peer's."""
    figure = measured.figure
    sign = "≥" if figure.least else "≤"
    return f"{sign} {measured.limit:,.4g}" + ("×" if figure.times else f" {figure.unit}".rstrip())


def beside(measured: Measured) -> str:
    """Return the peer, its number and the ratio; empty for a figure without one."""
    figure = measured.figure
    if measured.own is None:
        return ""
    if figure.scaled:
        return f"{figure.limit:,.4g} {figure.unit}, and this machine is {measured.slowness:.2f}× as slow"
    if not figure.peer:
        return ""
    if measured.peer is None:
        return f"{figure.beside}: not here"
    ratio = "" if measured.ratio is None else f": {measured.ratio:.2f}×"
    return f"{figure.beside} {measured.peer:,.6g} {figure.unit}{ratio}"


def board(figures: Sequence[Measured]) -> str:
    """Return all figures under the machine, with how many passed."""
    counts = {
        word: sum(m.verdict == word for m in figures) for word in ("pass", "FAIL", "no peer", "not run")
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return "\n".join([heading(), *map(line, figures), told])
