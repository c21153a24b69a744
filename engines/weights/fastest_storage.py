"""Measure which storage is fastest on this CPU, over a few layers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch

from engines.models.spec import Spec
from engines.weights import bf12_storage
from engines.weights.bf12_storage import Bf12Storage
from engines.weights.matrix_storage import Matrix, PlainStorage, Storage, list_candidates

SAMPLE_BYTES: Final = 64 << 20  # more than the caches hold
MEASURE_TIME_S: Final = 0.3  # of a storage; a busy machine gets fewer rounds
MAX_ROUNDS: Final = 5
CLEAR_SPEEDUP: Final = 1.5  # replaces the default storage; the measurement itself varies by 1.4

Product = tuple[Matrix, torch.Tensor]  # and the row that it multiplies


class MeasuredStorage(NamedTuple):
    """A storage, and the bytes per second at which it streamed weights."""

    storage: Storage
    bytes_per_s: float


def find_fastest_storage(
    spec: Spec, dtype: str, device: torch.device
) -> tuple[Storage, tuple[MeasuredStorage, ...]]:
    """Return the storage to use, and all that were measured, fastest first; a single one is not measured."""
    if dtype == "auto" and bf12_storage.can_store(spec, device):
        return Bf12Storage(), ()
    storages = list_candidates(dtype, device.type)
    if len(storages) == 1:
        return storages[0], ()
    measured = list(map(MeasuredStorage, storages, _measure_rates(storages, spec)))
    fastest = select_default_or_clearly_faster(measured)
    return fastest.storage, tuple(sorted(measured, key=lambda m: -m.bytes_per_s))


def find_storage(name: str, dtype: str, device: torch.device) -> Storage:
    """Return the storage of a name that `find_fastest_storage` returned on another rank."""
    storages: list[Storage] = [Bf12Storage(), *list_candidates(dtype, device.type)]
    return next(storage for storage in storages if storage.name == name)


def select_default_or_clearly_faster(measured: Sequence[MeasuredStorage]) -> MeasuredStorage:
    """Return the first storage that no other one clearly beats.

    Storages of similar speed must not alternate between runs: comparisons would show the difference.
    """
    best = max(m.bytes_per_s for m in measured)
    return next(m for m in measured if CLEAR_SPEEDUP * m.bytes_per_s >= best)


def _measure_rates(storages: Sequence[PlainStorage], spec: Spec) -> list[float]:
    """Measure bytes per second of each storage for one row; they take turns, so that noise affects all.

    On one core: with all cores, storages that reach memory bandwidth look alike, and the one that leaves no
    core idle falls behind as soon as another program runs.
    """
    samples = [_make_sample(storage, spec) for storage in storages]
    rounds: list[list[float]] = []
    with torch.inference_mode(), use_one_core():
        for products, _ in samples:
            _time_pass(products)
        end = time.perf_counter() + MEASURE_TIME_S * len(samples)
        while len(rounds) < MAX_ROUNDS and (not rounds or time.perf_counter() <= end):
            rounds.append([_time_pass(products) for products, _ in samples])
    fastest = map(min, zip(*rounds, strict=True))
    return [size / seconds for (_, size), seconds in zip(samples, fastest, strict=True)]


@contextmanager
def use_one_core() -> Iterator[None]:
    """Let torch use a single core within this context."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _make_sample(storage: PlainStorage, spec: Spec) -> tuple[list[Product], int]:
    """Build the matrices of enough layers to miss the caches, each with a row; also return their bytes."""
    shapes = list_layer_shapes(spec)
    layer = sum(n * k for n, k in shapes) * storage.dtype.itemsize
    layers = min(spec.layers, -(-SAMPLE_BYTES // layer))
    rows = {k: torch.ones(1, k) for _, k in shapes}
    weights = (torch.full(shape, 0.02, dtype=storage.dtype) for _ in range(layers) for shape in shapes)
    return [(storage.make_matrix(weight), rows[weight.shape[1]]) for weight in weights], layer * layers


def _time_pass(products: list[Product]) -> float:
    start = time.perf_counter()
    for matrix, row in products:
        matrix(row)
    return time.perf_counter() - start


def list_layer_shapes(spec: Spec) -> tuple[tuple[int, int], ...]:
    """List rows and columns of the fused matrices of one layer, for the experts that a token uses."""
    attention = (spec.query_width + 2 * spec.kv_width, spec.hidden), (spec.hidden, spec.query_width)
    ffn, count = (spec.experts.ffn, spec.experts.active) if spec.experts else (spec.ffn, 1)
    return attention + ((2 * ffn, spec.hidden), (spec.hidden, ffn)) * count
