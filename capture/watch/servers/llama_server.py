"""llama.cpp's llama-server: metrics need --metrics; it has no profiler.

Its counts grow when a request ends, so rates of a few long requests jump.
https://github.com/ggml-org/llama.cpp/tree/master/tools/server
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from capture.watch import prometheus
from capture.watch.prometheus import MetricReader, MetricSample
from capture.watch.server_metrics import MetricNames

NAME: Final = "llama.cpp"
OWNER: Final = "llamacpp"
METRICS_FLAG: Final = "--metrics"
HAS_PROFILER: Final = False
PROFILE_FLAG: Final = ""
TAKES_FOLDER: Final = False
NAMES: Final = MetricNames(
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv_share=("llamacpp:kv_cache_usage_ratio",),  # until 2025
    generated=("llamacpp:tokens_predicted_total",),
    prompted=("llamacpp:prompt_tokens_total",),
    ttft=(),
    itl=("llamacpp:token_seconds",),
    steps=("llamacpp:n_decode_total",),
)
# its seconds and number of tokens, which are sum and count of a latency
_SUMS: Final = {
    "llamacpp:tokens_predicted_seconds_total": "llamacpp:token_seconds_sum",
    "llamacpp:tokens_predicted_total": "llamacpp:token_seconds_count",
}


def create_reader() -> MetricReader:
    """Return a reader of its metrics, in which the time per token is a latency like that of other servers."""
    read = prometheus.create_reader(f"{OWNER}:")

    def read_with_sums(body: bytes) -> list[MetricSample]:
        samples = read(body)
        sums = [MetricSample(_SUMS[s.name], s.labels, s.value) for s in samples if s.name in _SUMS]
        return [*samples, *sums]

    return read_with_sums


def start_body(folder: Path | None, steps: int) -> Mapping[str, Any] | None:
    """Return None: it cannot profile."""
    return None
