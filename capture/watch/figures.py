"""The figures of a server from what its metrics say, one reading after the other."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from capture.watch.prometheus import Sample

OVER_S: Final = 10.0  # seconds over which rates and quantiles are taken
QUANTILES: Final = {"p50": 0.5, "p95": 0.95}
ESTIMATE: Final = "estimated from buckets"  # track of a quantile that a histogram tells

Buckets = Mapping[float, float]  # upper edge in seconds → requests at or below it


@dataclass(frozen=True)
class Names:
    """What a kind of server calls its metrics; of several names the first that is there counts."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_share: tuple[str, ...]
    generated: tuple[str, ...]
    prompted: tuple[str, ...]
    ttft: tuple[str, ...]
    itl: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """One figure of this moment."""

    name: str
    value: float
    unit: str
    track: str | None = None


@dataclass(frozen=True)
class _Reading:
    at: float
    totals: Mapping[str, float]
    buckets: Mapping[str, Buckets]


class Figures:
    """Takes readings of the metrics and returns what they say; a server that began anew is one of its own."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._readings: deque[_Reading] = deque()

    def take(self, samples: Sequence[Sample], at: float) -> list[Figure]:
        """Return the figures of a moment in seconds."""
        told = [
            s for s in samples if s.labels.get("tp_rank", "0") == "0" and s.labels.get("pp_rank", "0") == "0"
        ]
        reading = _Reading(at, self._totals(told), self._histograms(told))
        if self._readings and _fell(self._readings[-1], reading):
            self._readings.clear()
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].at <= at - OVER_S:
            self._readings.popleft()
        return [*self._gauges(told), *_since(self._readings[0], reading)]

    def _gauges(self, samples: Sequence[Sample]) -> list[Figure]:
        """Return requests, of all engines together, and the share of the fullest cache."""
        figures = []
        for name, keys in (
            ("requests running", self._names.running),
            ("requests waiting", self._names.waiting),
        ):
            if values := _values(samples, keys):
                figures.append(Figure(name, math.fsum(values), "requests"))
        if shares := _values(samples, self._names.kv_share):
            figures.append(Figure("KV cache usage", 100 * max(shares), "%"))
        return [f for f in figures if math.isfinite(f.value)]

    def _totals(self, samples: Sequence[Sample]) -> dict[str, float]:
        asked = {"generated tokens": self._names.generated, "prompt tokens": self._names.prompted}
        totals = {name: _values(samples, keys) for name, keys in asked.items()}
        return {name: math.fsum(values) for name, values in totals.items() if values}

    def _histograms(self, samples: Sequence[Sample]) -> dict[str, Buckets]:
        asked = {"TTFT": self._names.ttft, "ITL": self._names.itl}
        found = {name: _buckets(samples, keys) for name, keys in asked.items()}
        return {name: buckets for name, buckets in found.items() if buckets}


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return an estimate of a quantile: even within a bucket, and the last edge for what lies beyond all.

    None where nothing was counted.
    """
    edges = sorted(buckets)
    total = buckets[edges[-1]] if edges else 0.0
    if total <= 0:
        return None
    below, lower = 0.0, 0.0
    for edge in edges:
        if buckets[edge] >= share * total:
            if math.isinf(edge):
                return lower
            return lower + (edge - lower) * (share * total - below) / (buckets[edge] - below)
        below, lower = buckets[edge], edge
    return lower


def _since(first: _Reading, last: _Reading) -> list[Figure]:
    """Return rates and quantiles of what came between two readings."""
    seconds = last.at - first.at
    if seconds <= 0:
        return []
    figures = []
    for name, total in last.totals.items():
        if name in first.totals:
            figures.append(Figure(f"{name}/s", (total - first.totals[name]) / seconds, "tok/s"))
    for name, buckets in last.buckets.items():
        before = first.buckets.get(name, {})
        between = {edge: count - before.get(edge, 0.0) for edge, count in buckets.items()}
        for word, share in QUANTILES.items():
            if (value := quantile(between, share)) is not None:
                figures.append(Figure(f"{name} {word}", 1000 * value, "ms", ESTIMATE))
    return [f for f in figures if math.isfinite(f.value)]


def _fell(before: _Reading, after: _Reading) -> bool:
    """Return whether a total went down: the server was started anew."""
    return any(after.totals.get(name, 0.0) < total for name, total in before.totals.items())


def _values(samples: Sequence[Sample], names: Sequence[str]) -> list[float]:
    """Return the values of the first of some names that is there."""
    for name in names:
        if values := [s.value for s in samples if s.name == name]:
            return values
    return []


def _buckets(samples: Sequence[Sample], names: Sequence[str]) -> dict[float, float]:
    """Return the buckets of the first histogram that is there, of all engines together."""
    for name in names:
        sums: dict[float, float] = {}
        for sample in samples:
            if sample.name == f"{name}_bucket" and (edge := _edge(sample.labels.get("le", ""))) is not None:
                sums[edge] = sums.get(edge, 0.0) + sample.value
        if sums:
            return sums
    return {}


def _edge(text: str) -> float | None:
    try:
        edge = float(text)
    except ValueError:
        return None
    return None if math.isnan(edge) else edge
