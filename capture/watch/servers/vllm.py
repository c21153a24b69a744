"""vLLM: metrics are always available; /start_profile exists only if the server was started with a profiler.

https://docs.vllm.ai/en/stable/usage/metrics/, https://docs.vllm.ai/en/stable/contributing/profiling/
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from capture.watch import prometheus
from capture.watch.prometheus import MetricReader
from capture.watch.server_metrics import MetricNames

NAME: Final = "vLLM"
OWNER: Final = "vllm"
METRICS_FLAG: Final = ""
PROFILE_FLAG: Final = (
    """--profiler-config '{"profiler": "torch", "torch_profiler_dir": "DIR", """
    """"torch_profiler_with_stack": false, "torch_profiler_record_shapes": true, """
    """"torch_profiler_use_gzip": false, "torch_profiler_dump_cuda_time_total": false, """
    """"ignore_frontend": true}'"""
    " (before vLLM 0.13: VLLM_TORCH_PROFILER_DIR=DIR)"
)
HAS_PROFILER: Final = True
TAKES_FOLDER: Final = False
NAMES: Final = MetricNames(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_share=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    generated=("vllm:generation_tokens_total", "vllm:generation_tokens"),
    prompted=("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    ttft=("vllm:time_to_first_token_seconds",),
    steps=("vllm:iteration_tokens_total_count",),
    durations={
        "queue time": ("vllm:request_queue_time_seconds",),
        "prefill time": ("vllm:request_prefill_time_seconds",),
        "decode time": ("vllm:request_decode_time_seconds",),
        "request time": ("vllm:e2e_request_latency_seconds",),
    },
    preempted=("vllm:num_preemptions_total", "vllm:num_preemptions"),
    cache_queries=("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
    cache_hits=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
    itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
)


def create_reader() -> MetricReader:
    """Return a reader of its metrics."""
    return prometheus.create_reader(f"{OWNER}:")


def start_body(folder: Path | None, steps: int) -> Mapping[str, Any] | None:
    """Return after how many steps a worker ends its profile by itself; older versions ignore the body."""
    return {"max_iterations": steps}
