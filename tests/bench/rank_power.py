"""Measure how often a late rank is found, and an equal one is named: python -m tests.bench.rank_power.

Steps of all ranks share a common level; each rank adds noise of 2 % (standard deviation): independent, with
heavy tails (Student's t, 3 degrees of freedom), or with a memory of 0.8 from step to step. One rank takes
`factor` times as long. The figures are those of the guide `ranks`.
"""

import sys
from typing import Final

import numpy as np

from tracetui.analysis.frames import rank_permutation
from tracetui.analysis.frames.rank_permutation import compute_late_p
from tracetui.analysis.frames.statistics import ALPHA, Floats

RANKS: Final = (8, 64, 256)
STEPS: Final = (3, 10, 24)
FACTORS: Final = (1.04, 1.2, 3.0)
NOISES: Final = ("plain", "tails", "memory")
SD: Final = 0.02
MEMORY: Final = 0.8


def make_times(ranks: int, steps: int, factor: float, noise: str, seed: int) -> Floats:
    """Return ranks × steps of time in ns; rank number ranks // 2 is slow by the factor."""
    rng = np.random.default_rng(seed)
    shocks = rng.standard_t(3, (ranks, steps)) if noise == "tails" else rng.normal(0, 1, (ranks, steps))
    if noise == "memory":
        for step in range(1, steps):
            shocks[:, step] = MEMORY * shocks[:, step - 1] + np.sqrt(1 - MEMORY**2) * shocks[:, step]
    times: Floats = 1e6 * np.exp(SD * shocks + rng.normal(0, 0.1, (1, steps)))
    times[ranks // 2] *= factor
    return times


def measure_found(ranks: int, steps: int, factor: float, tries: int) -> float:
    """Return how often the slow rank is found, as a share of the tries."""
    late = (compute_late_p(make_times(ranks, steps, factor, "plain", seed)) for seed in range(tries))
    return float(np.mean([p[ranks // 2] < ALPHA for p in late]))


def measure_false(ranks: int, steps: int, noise: str, tries: int) -> float:
    """Return how often any of equal ranks is named, as a share of the tries."""
    late = (compute_late_p(make_times(ranks, steps, 1.0, noise, 10_000 + seed)) for seed in range(tries))
    return float(np.mean([(p < ALPHA).any() for p in late]))


def bound_false(ranks: int, steps: int, tries: int) -> float:
    """Return how often one of equal ranks with memory lies apart, without which none is named."""
    apart = 0
    for seed in range(tries):
        times = make_times(ranks, steps, 1.0, "memory", 50_000 + seed)
        means = rank_permutation.compute_lateness(times).mean(axis=1)
        apart += bool((rank_permutation._compute_apart_p(means) < ALPHA).any())
    return apart / tries


def main(tries: int) -> None:
    """Print the table of the guide."""
    print(f"| ranks | steps | {' | '.join(f'{f:g}×' for f in FACTORS)} | {' | '.join(NOISES)} |")
    for ranks in RANKS:
        for steps in STEPS:
            found = (f"{measure_found(ranks, steps, factor, tries):.0%}" for factor in FACTORS)
            false = (f"{measure_false(ranks, steps, noise, tries):.1%}" for noise in NOISES)
            print(f"| {ranks} | {steps} | {' | '.join(found)} | {' | '.join(false)} |", flush=True)
    bounds = (f"{bound_false(ranks, STEPS[1], 40 * tries):.1%}" for ranks in RANKS)
    print(f"ranks with memory apart, {STEPS[1]} steps, {40 * tries} jobs: {', '.join(bounds)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
