"""Error rates of comparisons, simulated: how often equal runs differ, how often a doubled row is found.

python -m tests.bench.pairs [TRIES [WAY…]]: a line a kind of noise, size, memory of the steps and spread
between runs; the share of families with a wrong verdict, the same beside a doubled row, and how often that is
found; then the worst and the middle cell of each way and spread. Draws are seeded, block by block: every
cell gets its first tries before any gets more, so that what was done until Ctrl+C is told of all cells.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from tracetui.analysis.frames.statistics import judge_evidence
from tracetui.compare.evidence import pair_test, repeat_test
from tracetui.compare.run_sides import NoiseFloor

Floats = NDArray[np.float64]
KINDS = ("plain", "tails", "moments")  # alike rows; rows that differ, with spikes; groups that share moments
SIZES = ((40, 8), (40, 64), (40, 256), (300, 16))  # rows, steps
MEMORY = (0.0, 0.5, 0.8, 0.95)  # of a step, of the one before
BETWEEN = (0.0, 0.01, 0.03, 0.10)  # spread between runs
WAYS = {"pair": (1, 1, 0), "3 and 3": (3, 3, 0), "3 and 1": (3, 1, 0), "pair, 4 aa": (1, 1, 4)}
LEAST_FLOOR = 0.03  # of a pair; else that between the runs
BLOCK = 50  # tries of one seed


class Cell(NamedTuple):
    """How runs are made, and how they are compared."""

    kind: str
    rows: int
    steps: int
    memory: float
    between: float
    way: str = "pair"


class Rates(NamedTuple):
    """Shares of the tries."""

    wrong: float  # families of equal runs in which some row is said to differ
    beside: float  # the same, of the other rows beside the one that changed
    found: float  # how often that one is


def remembering(rng: np.random.Generator, rows: int, steps: int, memory: float) -> Floats:
    """AR(1) noise of variance one."""
    noise = rng.standard_normal((rows, steps))
    noise[:, 1:] *= np.sqrt(1 - memory**2)
    return np.asarray(lfilter([1.0], [1.0, -memory], noise))


def side(rng: np.random.Generator, cell: Cell) -> Floats:
    """Logarithms of the time of each row and step of one run."""
    rows, steps = cell.rows, cell.steps
    own = 0.05 * remembering(rng, rows, steps, cell.memory)
    if cell.kind == "tails":
        spikes = (rng.random((rows, steps)) < 0.03) * rng.exponential(0.7, (rows, steps))
        own = own * np.exp(0.5 * rng.standard_normal((rows, 1))) + spikes
    if cell.kind == "moments":
        shared = remembering(rng, 4, steps, cell.memory)[rng.integers(0, 4, rows)]
        own = 0.6 * own + 0.08 * shared
    return own + cell.between * rng.standard_normal((rows, 1))


def rates(cell: Cell, tries: int, factor: float = 2.0) -> Rates:
    """The error rates of a cell."""
    counts = sum(counted(cell, number, size, factor) for number, size in enumerate(blocks(tries)))
    return Rates(*(np.asarray(counts) / tries))


def blocks(tries: int) -> list[int]:
    """How many tries each block has."""
    return [min(BLOCK, tries - first) for first in range(0, tries, BLOCK)]


def counted(cell: Cell, block: int, tries: int = BLOCK, factor: float = 2.0) -> Floats:
    """How many of the tries of a block were wrong, wrong beside the true one, and found it."""
    rng = np.random.default_rng([len(cell.kind), *(int(1000 * x) for x in cell[1:5]), *WAYS[cell.way], block])
    counts = np.zeros(3)
    groups = np.repeat([0, 1, 2], WAYS[cell.way])
    for _ in range(tries):
        runs = np.stack([1e6 * np.exp(side(rng, cell)) for _ in groups], axis=1)
        planted = runs.copy()
        planted[0, groups == 1] *= factor
        equal, changed = (called(x, groups, cell) for x in (runs, planted))
        counts += [
            bool({"slower", "faster"} & set(equal)),
            bool({"slower", "faster"} & set(changed[1:])),
            changed[0] == "slower",
        ]
    return counts


def called(times: Floats, groups: NDArray[np.int64], cell: Cell) -> list[str]:
    """The verdicts of rows × runs × steps."""
    if cell.way == "pair":
        found = pair_test.judge_pair(
            times[:, 0], times[:, 1], NoiseFloor(max(cell.between, LEAST_FLOOR), source="said")
        )
    else:
        found = repeat_test.judge_repeats(times, groups).evidence
    return judge_evidence(found, np.zeros(cell.rows))


def cells(ways: Sequence[str]) -> Iterator[Cell]:
    """Every cell of the table."""
    for way, kind, (rows, steps), memory, between in product(ways, KINDS, SIZES, MEMORY, BETWEEN):
        yield Cell(kind, rows, steps, memory, between, way)


def show(sums: dict[Cell, Floats], tries: dict[Cell, int]) -> None:
    """A line a cell, then a line a way and spread."""
    print("way         noise    rows  steps  memory  runs  tries   wrong  beside  found 2×")
    done = {cell: Rates(*(sums[cell] / tries[cell])) for cell in sums}
    for cell, found in done.items():
        print(
            f"{cell.way:11} {cell.kind:8} {cell.rows:4} {cell.steps:6} {cell.memory:7} {cell.between:5.0%} "
            f"{tries[cell]:6} {found.wrong:7.1%} {found.beside:7.1%} {found.found:6.0%}"
        )
    heads = "asked as|runs differ by|wrong, worst cell|middle|beside a true one, worst|2× found, worst|middle"
    print(f"\n| {heads.replace('|', ' | ')} |\n| :-- |{' --: |' * 6}")
    for way, between in dict.fromkeys((cell.way, cell.between) for cell in done):
        of = [rates for cell, rates in done.items() if (cell.way, cell.between) == (way, between)]
        wrong, beside, found = (np.array(each) for each in zip(*of, strict=True))
        rates = f"{wrong.max():.1%} | {np.median(wrong):.1%} | {beside.max():.1%}"
        print(f"| {way} | {between:.0%} | {rates} | {found.min():.0%} | {np.median(found):.0%} |")


def main() -> None:
    tries, ways = int(sys.argv[1]) if sys.argv[1:] else 100, sys.argv[2:] or list(WAYS)
    table = list(cells(ways))
    sizes = blocks(tries)
    work = [(cell, block, size) for block, size in enumerate(sizes) for cell in table]
    sums: dict[Cell, Floats] = defaultdict(lambda: np.zeros(3))
    done: dict[Cell, int] = defaultdict(int)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process a core already
    with ProcessPoolExecutor() as pool:
        try:
            for (cell, _, size), counts in zip(
                work, pool.map(counted, *zip(*work, strict=True)), strict=True
            ):
                sums[cell] += counts
                done[cell] += size
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    show(sums, done)


if __name__ == "__main__":
    main()
