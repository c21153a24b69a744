"""TensorRT-LLM's trtllm-serve: /metrics is a JSON list of the iterations since the last request.

Each iteration is given once, so another monitor of the same server takes some away. Tokens are counted from
the batches: those of decoding requests, and one for each that ends its prefill is not among them. Read in
its documents and sources, not tried.
https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from capture.watch.prometheus import MetricReader, MetricSample
from capture.watch.server_metrics import MetricNames

NAME: Final = "TensorRT-LLM"
OWNER: Final = "tensorrt_llm"
METRICS_FLAG: Final = "enable_iter_perf_stats: true among its extra options"
HAS_PROFILER: Final = False
PROFILE_FLAG: Final = ""
TAKES_FOLDER: Final = False
_MAX_NUMBER: Final = 1e15
NAMES: Final = MetricNames(
    running=("running",),
    waiting=("waiting",),
    kv_share=("kv_share",),
    generated=("generated",),
    prompted=("prompted",),
    ttft=(),
    itl=(),
    steps=("iterations",),
    durations={"iteration time": ("iteration_seconds",)},
)


class IterationReader:
    """Sums the iterations of all responses, as other servers count from their start."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys(
            ("generated", "prompted", "iterations", "iteration_seconds_sum", "iteration_seconds_count"), 0.0
        )
        self._gauges: dict[str, float] = {}

    def __call__(self, body: bytes) -> list[MetricSample]:
        """Return the samples after a response; a response that is no list of iterations changes nothing."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return []
        for iteration in document if isinstance(document, list) else ():
            if isinstance(iteration, dict):
                self._add_iteration(iteration)
        values = {**self._totals, **self._gauges}
        return [MetricSample(name, {}, value) for name, value in values.items()]

    def _add_iteration(self, iteration: dict[str, Any]) -> None:
        batch, cache = (
            member if isinstance(member := iteration.get(key), dict) else {}
            for key in ("inflightBatchingStats", "kvCacheStats")
        )
        tokens_per_request = _read_number(batch, "avgNumDecodedTokensPerIter") or 1.0
        self._totals["generated"] += tokens_per_request * _read_number(batch, "numGenRequests")
        self._totals["prompted"] += _read_number(batch, "numCtxTokens")
        self._totals["iterations"] += 1
        self._totals["iteration_seconds_sum"] += _read_number(iteration, "iterLatencyMS") / 1000
        self._totals["iteration_seconds_count"] += 1
        self._gauges["running"] = _read_number(iteration, "numActiveRequests")
        self._gauges["waiting"] = _read_number(iteration, "numQueuedRequests")
        if blocks := _read_number(cache, "maxNumBlocks"):
            self._gauges["kv_share"] = _read_number(cache, "usedNumBlocks") / blocks


def create_reader() -> MetricReader:
    """Return a reader that remembers the iterations so far."""
    return IterationReader()


def start_body(folder: Path | None, steps: int) -> Mapping[str, Any] | None:
    """Return None: it cannot profile on request."""
    return None


def _read_number(parent: dict[str, Any], key: str) -> float:
    """Return a count or duration; zero for what is none."""
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < _MAX_NUMBER else 0.0
