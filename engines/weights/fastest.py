"""Which way to store a matrix is fast on this processor, measured over a few layers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

from engines.models.spec import Spec
from engines.weights import twelve_bits
from engines.weights.storage import Matrix, Packing, Storage, candidates
from engines.weights.twelve_bits import InTwelveBits

SAMPLE_BYTES: Final = 64 << 20  # more than the caches hold
MEASURE_S: Final = 0.3
CLEARLY: Final = 1.5  # times as fast replaces the usual way: the measurement itself varies by 1.4


@dataclass(frozen=True)
class Measured:
    """A storage, and at how many bytes a second it was seen to stream weights; 0: not measured."""

    packing: Storage
    rate: float


def fastest(spec: Spec, dtype: str, device: torch.device) -> tuple[Measured, tuple[Measured, ...]]:
    """Return the way to take, and all that were measured, best first; a single candidate is not measured."""
    if dtype == "auto" and twelve_bits.fits(spec, device):
        return Measured(InTwelveBits(), 0.0), ()
    ways = candidates(dtype, device.type)
    if len(ways) == 1:
        return Measured(ways[0], 0.0), ()
    measured = list(map(Measured, ways, _rates(ways, spec)))
    return usual(measured), tuple(sorted(measured, key=lambda m: -m.rate))


def named(name: str, dtype: str, device: torch.device) -> Storage:
    """Return the way of a name, which `fastest` has taken somewhere else."""
    ways: list[Storage] = [InTwelveBits(), *candidates(dtype, device.type)]
    return next(way for way in ways if way.name == name)


def usual(measured: Sequence[Measured]) -> Measured:
    """Return the first way that no other one clearly beats.

    Two ways that are about as fast must not take turns: runs of the same thing would differ by what was
    chosen, and a comparison of them would show it.
    """
    best = max(m.rate for m in measured)
    return next(m for m in measured if CLEARLY * m.rate >= best)


def _rates(ways: Sequence[Packing], spec: Spec) -> list[float]:
    """Return bytes a second of each way over one row; they take turns, so that a busy moment slows all.

    On one core: with all of them, ways that are all as fast as the memory look alike, and the one that leaves
    no core a moment to spare falls behind as soon as anything else runs.
    """
    samples = [_sample(way, spec) for way in ways]
    rows = {k: torch.ones(1, k) for _, k in layer_shapes(spec)}
    with torch.inference_mode(), one_core():
        for matrices, _ in samples:
            _pass(matrices, rows)
        took = zip(*_rounds([matrices for matrices, _ in samples], rows), strict=True)
    return [size / min(passes) for (_, size), passes in zip(samples, took, strict=True)]


@contextmanager
def one_core() -> Iterator[None]:
    """Have torch compute on one core for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _sample(way: Packing, spec: Spec) -> tuple[list[tuple[Matrix, int]], int]:
    """Return the matrices of enough layers to miss every cache, each with its columns, and their bytes."""
    shapes = layer_shapes(spec)
    layer = sum(n * k for n, k in shapes) * way.dtype.itemsize
    layers = min(spec.layers, -(-SAMPLE_BYTES // layer))
    matrices = [(way.make(_filled(n, k, way.dtype)), k) for _ in range(layers) for n, k in shapes]
    return matrices, layer * layers


def _rounds(
    samples: Sequence[Sequence[tuple[Matrix, int]]], rows: dict[int, torch.Tensor]
) -> Iterator[list[float]]:
    """Yield the seconds of a pass each, over several rounds; fewer where the machine is busy."""
    until = time.perf_counter() + MEASURE_S * len(samples)
    for _ in range(5):
        yield [_pass(matrices, rows) for matrices in samples]
        if time.perf_counter() > until:
            return


def _pass(matrices: Sequence[tuple[Matrix, int]], rows: dict[int, torch.Tensor]) -> float:
    start = time.perf_counter()
    for matrix, k in matrices:
        matrix(rows[k])
    return time.perf_counter() - start


def _filled(n: int, k: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((n, k), 0.02, dtype=dtype)


def layer_shapes(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Return rows and columns of the fused matrices of one layer, of each expert that a token takes."""
    attention = (
        (spec.query_width + 2 * spec.kv_width, spec.hidden),
        (spec.hidden, spec.query_width),
    )
    ffn, count = (spec.experts.ffn, spec.experts.chosen) if spec.experts else (spec.ffn, 1)
    return attention + ((2 * ffn, spec.hidden), (spec.hidden, ffn)) * count
