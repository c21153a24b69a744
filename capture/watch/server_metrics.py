"""Rates and quantiles of a server, from successive readings of its metrics."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from capture.watch.prometheus import MetricSample

RATE_WINDOW_S: Final = 10.0  # over which rates and quantiles are computed
QUANTILES: Final = {"p50": 0.5, "p95": 0.95}
ESTIMATE: Final = "estimated from buckets"  # track of quantiles from histograms
BOUNDS: Final = "bounds of the bucket"  # track of the edges between which a quantile lies

Buckets = Mapping[float, float]  # upper edge in seconds → requests at or below it


@dataclass(frozen=True)
class MetricNames:
    """Metric names of a kind of server; of several names the first present one counts."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_share: tuple[str, ...]
    generated: tuple[str, ...]
    prompted: tuple[str, ...]
    ttft: tuple[str, ...]
    itl: tuple[str, ...]
    steps: tuple[str, ...] = ()  # count of the engine's steps
    durations: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # of the parts of a request, by name
    preempted: tuple[str, ...] = ()
    cache_queries: tuple[str, ...] = ()  # tokens that were looked up in the prefix cache
    cache_hits: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerMetric:
    """One current value."""

    name: str
    value: float
    unit: str
    track: str | None = None


@dataclass(frozen=True)
class _Reading:
    at: float
    totals: Mapping[str, float]
    buckets: Mapping[str, Buckets]
    sums: Mapping[str, tuple[float, float]]  # seconds and number of what a histogram has counted


@dataclass(frozen=True)
class Progress:
    """How far a server is: tokens and steps so far (None: not counted), and requests that it has now.

    The number is that of its last step: 0 while it is silent after a step that ended all requests.
    """

    tokens: float
    steps: float | None
    requests: float
    first_tokens: float  # requests that got one so far
    waited_s: float  # by these, in all

    @classmethod
    def from_samples(cls, names: MetricNames, samples: Sequence[MetricSample]) -> "Progress":
        """Return the progress that the metrics of a server show."""
        steps = _select_values(samples, names.steps)
        requests = (*_select_values(samples, names.running), *_select_values(samples, names.waiting))
        tokens = math.fsum(_select_values(samples, names.generated))
        count, seconds = (
            math.fsum(_select_values(samples, tuple(f"{name}_{part}" for name in names.ttft)))
            for part in ("count", "sum")
        )
        return cls(tokens, max(steps) if steps else None, math.fsum(requests), count, seconds)


class MetricHistory:
    """Turns readings of the metrics into rates and quantiles; a restarted server starts a new history."""

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self._readings: deque[_Reading] = deque()

    def add_reading(self, samples: Sequence[MetricSample], at: float) -> list[ServerMetric]:
        """Return the metrics at this time, in seconds."""
        ranks = ("tp_rank", "pp_rank")
        first_rank = [s for s in samples if all(s.labels.get(rank, "0") == "0" for rank in ranks)]
        histograms = self._collect_histograms(first_rank)
        reading = _Reading(at, self._sum_totals(first_rank), histograms, self._sum_durations(first_rank))
        if self._readings and _has_reset(self._readings[-1], reading):
            self._readings.clear()
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].at <= at - RATE_WINDOW_S:
            self._readings.popleft()
        return [*self._compute_gauges(first_rank), *_compute_rates_between(self._readings[0], reading)]

    def _compute_gauges(self, samples: Sequence[MetricSample]) -> list[ServerMetric]:
        """Return the requests of all engines together, and the share of the fullest cache."""
        metrics = []
        names = {"requests running": self._names.running, "requests waiting": self._names.waiting}
        for name, keys in names.items():
            if values := _select_values(samples, keys):
                metrics.append(ServerMetric(name, math.fsum(values), "requests"))
        if shares := _select_values(samples, self._names.kv_share):
            metrics.append(ServerMetric("KV cache usage", 100 * max(shares), "%"))
        return [metric for metric in metrics if math.isfinite(metric.value)]

    def _sum_totals(self, samples: Sequence[MetricSample]) -> dict[str, float]:
        names = {
            "generated tokens": self._names.generated,
            "prompt tokens": self._names.prompted,
            "preemptions": self._names.preempted,
            "cache queries": self._names.cache_queries,
            "cache hits": self._names.cache_hits,
        }
        totals = {name: _select_values(samples, keys) for name, keys in names.items()}
        return {name: math.fsum(values) for name, values in totals.items() if values}

    def _sum_durations(self, samples: Sequence[MetricSample]) -> dict[str, tuple[float, float]]:
        """Return seconds and number of each latency and part of a request, exactly as the server counts."""
        names = {"TTFT": self._names.ttft, "ITL": self._names.itl, **self._names.durations}
        sums = {}
        for name, keys in names.items():
            pairs = (
                (_select_values(samples, [f"{k}_sum"]), _select_values(samples, [f"{k}_count"])) for k in keys
            )
            pair = next(((math.fsum(s), math.fsum(n)) for s, n in pairs if s and n), None)
            if pair is not None:
                sums[name] = pair
        return sums

    def _collect_histograms(self, samples: Sequence[MetricSample]) -> dict[str, Buckets]:
        names = {"TTFT": self._names.ttft, "ITL": self._names.itl}
        buckets_by_name = {name: _sum_buckets(samples, keys) for name, keys in names.items()}
        return {name: buckets for name, buckets in buckets_by_name.items() if buckets}


def estimate_quantile(buckets: Buckets, share: float) -> tuple[float, float, float] | None:
    """Return a quantile of histogram buckets and the edges of its bucket, of which the upper may be infinite.

    It is linear within a bucket; the last edge for values beyond. None if nothing was counted.
    """
    edges = sorted(buckets)
    total = buckets[edges[-1]] if edges else 0.0
    if total <= 0:
        return None
    below, lower = 0.0, 0.0
    for edge in edges:
        if buckets[edge] >= share * total:
            if math.isinf(edge):
                return lower, lower, edge
            value = lower + (edge - lower) * (share * total - below) / (buckets[edge] - below)
            return value, lower, edge
        below, lower = buckets[edge], edge
    return lower, lower, math.inf


def _compute_rates_between(before: _Reading, after: _Reading) -> list[ServerMetric]:
    """Return rates and quantiles of the time between two readings."""
    seconds = after.at - before.at
    if seconds <= 0:
        return []
    metrics = []
    grown = {name: n - before.totals[name] for name, n in after.totals.items() if name in before.totals}
    for name, unit in (("generated tokens", "tok/s"), ("prompt tokens", "tok/s"), ("preemptions", "1/s")):
        if name in grown:
            metrics.append(ServerMetric(f"{name}/s", grown[name] / seconds, unit))
    if grown.get("cache queries") and "cache hits" in grown:
        metrics.append(
            ServerMetric("prefix cache hits", 100 * grown["cache hits"] / grown["cache queries"], "%")
        )
    metrics += _compute_means(before.sums, after.sums)
    for name, buckets in after.buckets.items():
        metrics += _compute_quantiles(name, before.buckets.get(name, {}), buckets)
    return [metric for metric in metrics if math.isfinite(metric.value)]


def _compute_quantiles(name: str, before: Buckets, after: Buckets) -> list[ServerMetric]:
    """Return the quantiles of what was counted between two readings, and the bounds of their buckets."""
    metrics = []
    between = {edge: count - before.get(edge, 0.0) for edge, count in after.items()}
    for word, share in QUANTILES.items():
        if (estimate := estimate_quantile(between, share)) is not None:
            value, low, high = (1000 * seconds for seconds in estimate)
            metrics.append(ServerMetric(f"{name} {word}", value, "ms", ESTIMATE))
            metrics.append(ServerMetric(f"{name} {word} from", low, "ms", BOUNDS))
            metrics.append(ServerMetric(f"{name} {word} to", high, "ms", BOUNDS))
    return metrics


def _compute_means(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]
) -> list[ServerMetric]:
    """Return the mean of what was counted between two readings, by name."""
    metrics = []
    for name, (seconds, number) in after.items():
        earlier_seconds, earlier_number = before.get(name, (0.0, 0.0))
        if number > earlier_number:
            mean = (seconds - earlier_seconds) / (number - earlier_number)
            metrics.append(ServerMetric(f"{name} mean", 1000 * mean, "ms"))
    return metrics


def _has_reset(before: _Reading, after: _Reading) -> bool:
    """Return whether a total decreased, because the server was restarted."""
    return any(after.totals.get(name, 0.0) < total for name, total in before.totals.items())


def _select_values(samples: Sequence[MetricSample], names: Sequence[str]) -> list[float]:
    """Return the values of the first of these names that is present.

    SGLang counts requests once with an empty priority, and once more for each priority.
    """
    for name in names:
        hits = [s for s in samples if s.name == name]
        if hits:
            totals = [s.value for s in hits if not s.labels.get("priority")]
            return totals or [s.value for s in hits]
    return []


def _sum_buckets(samples: Sequence[MetricSample], names: Sequence[str]) -> dict[float, float]:
    """Return the buckets of the first histogram that is present, summed over all engines."""
    for name in names:
        sums: dict[float, float] = {}
        for sample in samples:
            edge = _parse_edge(sample.labels.get("le", "")) if sample.name == f"{name}_bucket" else math.nan
            if not math.isnan(edge):
                sums[edge] = sums.get(edge, 0.0) + sample.value
        if sums:
            return sums
    return {}


def _parse_edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
