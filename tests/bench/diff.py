"""Diff: two runs of 5 million events to the first table, twenty runs in a matrix, and its error rates.

python -m tests.bench.diff [EVENTS [PAIRS]]; 0 events or 0 pairs leave that part out.
"""

import os
import sys
import time
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tests.bench._runs import decode as generated
from tests.tracetui.analysis.frames.test_statistics import series
from tests.tracetui.compare.evidence.test_repeat_test import called, measured
from tracetui.analysis.frames import statistics
from tracetui.look import Look
from tracetui.views import ask, load_view

Floats = NDArray[np.float64]
MEMORIES = (0.0, 0.5, 0.8, 0.95)


def interleaved(things: dict[str, Callable[[], object]], tries: int = 3) -> dict[str, float]:
    """The best time of each, taken in turn, so that a busy moment meets all of them."""
    best = dict.fromkeys(things, float("inf"))
    for _ in range(tries):
        for name, thing in things.items():
            start = time.perf_counter()
            thing()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def speed(events: int) -> None:
    a, b = generated(events), generated(events)
    slower = (pl.col("dur") * pl.when(pl.col("op") == "norm").then(1.1).otherwise(1.0)).cast(pl.Int64)
    b = Run("slower", b.meta, b.events.with_columns(slower), b.log)
    found = interleaved(
        {
            "diff, first table": lambda: _fresh(a, b),
            "peer: group_by name and step of both": lambda: [
                r.events.group_by("name", "step").agg(pl.col("dur").sum(), pl.len()) for r in (a, b)
            ],
            "peer: group_by name of both": lambda: [
                r.events.group_by("name").agg(pl.col("dur").sum(), pl.len()) for r in (a, b)
            ],
        }
    )
    peer = found["peer: group_by name and step of both"]
    print(f"two runs of {events:,} events, {pl.thread_pool_size()} threads")
    for name, taken in found.items():
        print(f"{name:44} {taken:6.3f} s  {taken / peer:5.1f}× the first peer")


def _fresh(a: Run, b: Run) -> None:
    """As on first sight: no fact of either run is known yet."""
    new = [Run(r.name, r.meta, r.events, r.log) for r in (a, b)]
    ask(load_view("diff"), new, Look())


def many(runs: int = 20, rows: int = 60) -> None:
    few = [generated(rows * 50) for _ in range(runs)]
    looks = [Run(f"ctx{64 * (i + 1)}", r.meta, r.events, r.log) for i, r in enumerate(few)]
    found = interleaved({"compare": lambda: ask(load_view("compare"), looks, Look())})
    print(f"{f'{runs} runs in one matrix':44} {found['compare']:6.3f} s")


def false_positives(pairs: int, rows: int = 40, steps: int = 256) -> None:
    print(f"\nfamilies with a wrong verdict, {pairs:,} A/A pairs of {rows} rows and {steps} steps, floor 0:")
    for memory in MEMORIES:
        rng = np.random.default_rng(11)
        own = _rate(pairs, lambda rng=rng, m=memory: (series(rng, rows, steps, m, 0.05) for _ in "ab"))  # type: ignore[misc]
        rng = np.random.default_rng(12)
        shared = _rate(pairs, lambda rng=rng, m=memory: (_shared(rng, rows, steps, m) for _ in "ab"))  # type: ignore[misc]
        print(f"  rho {memory:4}: rows of their own {own:6.1%}, rows that share their moments {shared:6.1%}")


def _shared(rng: np.random.Generator, rows: int, steps: int, memory: float) -> Floats:
    return 0.8 * series(rng, 1, steps, memory, 0.05) + 0.2 * series(rng, rows, steps, 0.0, 0.05)


def _rate(pairs: int, made: Callable[[], object]) -> float:
    wrong = 0
    for _ in range(pairs):
        a, b = made()  # type: ignore[misc]
        found = statistics.compute_paired_evidence(a, b)
        wrong += bool({"slower", "faster"} & set(statistics.judge_evidence(found, np.zeros(len(a)))))
    return wrong / pairs


def false_positives_of_runs(pairs: int) -> None:
    print(f"\nthe same between runs, {pairs:,} families of 16 rows; noise of the machine and of each row:")
    for groups in ((0, 1, 2, 2, 2, 2), (0, 0, 1, 1), (0, 0, 0, 1, 1, 1)):
        for common, own in ((0.0, 0.02), (0.02, 0.02), (0.3, 0.03)):
            rng = np.random.default_rng(13)
            wrong = found = 0
            for _ in range(pairs):
                wrong += bool({"slower", "faster"} & set(called(measured(rng, groups, common, own), groups)))
                times = measured(rng, groups, common, own)
                times[2, np.array(groups) == 1] *= 1.5
                found += called(times, groups, 0.01)[2] == "slower"
            sides = f"{groups.count(0)} and {groups.count(1)} runs, {groups.count(2)} identical"
            rates = f"{wrong / pairs:6.1%}; 1.5× found {found / pairs:6.1%}"
            print(f"  {sides}, noise {common:4.0%} and {own:3.0%}: {rates}")


def power(tries: int) -> None:
    print(f"\none op of 300 slower by 3 %, 5 % noise, {tries} tries: found")
    for memory in (0.0, 0.5):
        for steps in (256, 512, 1024):
            rng = np.random.default_rng(14)
            found = 0
            for _ in range(tries):
                a, b = (series(rng, 300, steps, memory, 0.05) for _ in "ab")
                b[7] *= 1.03
                found += (
                    statistics.judge_evidence(statistics.compute_paired_evidence(a, b), np.full(300, 0.01))[7]
                    == "slower"
                )
            print(f"  rho {memory:4}, {steps:5} steps: {found / tries:6.1%}")


def main(events: int, pairs: int) -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    if events:
        speed(events)
        many()
    if pairs:
        false_positives(pairs)
        false_positives_of_runs(pairs)
        power(max(20, pairs // 10))


if __name__ == "__main__":
    events, pairs = [int(x) for x in sys.argv[1:]] + [5_000_000, 1000][len(sys.argv) - 1 :]
    main(events, pairs)
