"""Error rates of one run a side, simulated: how often equal runs differ, how often a doubled row is found.

python -m tests.bench.pairs [TRIES [STEPS…]]: a line a kind of noise, memory of the steps and spread between
runs; the share of families with a wrong verdict, the same beside a doubled row, and how often that is found.
Draws are seeded.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis.compare.one_pair import judge
from tracetui.analysis.statistics import verdicts
from tracetui.look import Floor

Floats = NDArray[np.float64]
KINDS = ("plain", "tails", "moments")  # alike rows; rows that differ, with spikes; groups that share moments
MEMORIES = (0.0, 0.5, 0.8, 0.95)
BETWEEN = ((0.0, 0.03), (0.01, 0.01), (0.03, 0.03), (0.10, 0.10))  # spread of runs, floor in use


class Cell(NamedTuple):
    """How pairs are made, and the floor that they are judged by."""

    kind: str
    rows: int
    steps: int
    memory: float
    between: float
    floor: float


class Rates(NamedTuple):
    """Shares of the tries."""

    wrong: float  # families of equal runs in which some row is said to differ
    beside: float  # the same, of the other rows beside the one that changed
    found: float  # how often that one is


def remembering(rng: np.random.Generator, rows: int, steps: int, memory: float) -> Floats:
    """AR(1) noise of variance one."""
    noise = rng.standard_normal((rows, steps))
    for i in range(1, steps):
        noise[:, i] = memory * noise[:, i - 1] + np.sqrt(1 - memory**2) * noise[:, i]
    return noise


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
    rng = np.random.default_rng([len(cell.kind), *(int(1000 * x) for x in cell[1:])])
    counts = np.zeros(3)
    for _ in range(tries):
        a, b = (1e6 * np.exp(side(rng, cell)) for _ in "ab")
        planted = b * np.where(np.arange(cell.rows) == 0, factor, 1.0)[:, None]
        equal, changed = (called(a, x, cell) for x in (b, planted))
        counts += [
            bool({"slower", "faster"} & set(equal)),
            bool({"slower", "faster"} & set(changed[1:])),
            changed[0] == "slower",
        ]
    return Rates(*(counts / tries))


def called(a: Floats, b: Floats, cell: Cell) -> list[str]:
    found = judge(a, b, Floor(cell.floor, how="said"))
    return verdicts(found, np.zeros(cell.rows))


def cells(steps: list[int]) -> Iterator[Cell]:
    for kind in KINDS:
        for rows in (40, 300):
            for between, floor in BETWEEN:
                for memory in MEMORIES:
                    yield from (Cell(kind, rows, n, memory, between, floor) for n in steps)


def main() -> None:
    tries, *steps = map(int, sys.argv[1:] or ["100"])
    print("noise    rows  steps  memory  runs  floor   wrong  beside  found 2×")
    for cell in cells(steps or [8, 16, 64, 256]):
        found = rates(cell, tries)
        print(
            f"{cell.kind:8} {cell.rows:4} {cell.steps:6} {cell.memory:7} {cell.between:5.0%} "
            f"{cell.floor:6.0%} {found.wrong:7.1%} {found.beside:7.1%} {found.found:6.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
