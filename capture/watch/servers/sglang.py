"""SGLang: profiling is always available, into a folder of the request; metrics need --enable-metrics.

https://docs.sglang.io/references/production_metrics.html,
https://docs.sglang.io/developer_guide/benchmark_and_profiling.html
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from capture.watch import prometheus
from capture.watch.prometheus import MetricReader
from capture.watch.server_metrics import MetricNames

NAME: Final = "SGLang"
OWNER: Final = "sglang"
METRICS_FLAG: Final = "--enable-metrics"
PROFILE_FLAG: Final = ""
HAS_PROFILER: Final = True
TAKES_FOLDER: Final = True
NAMES: Final = MetricNames(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_share=("sglang:token_usage",),
    generated=("sglang:generation_tokens_total",),
    prompted=("sglang:prompt_tokens_total",),
    ttft=("sglang:time_to_first_token_seconds",),
    itl=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    durations={
        "queue time": ("sglang:queue_time_seconds",),
        "request time": ("sglang:e2e_request_latency_seconds",),
    },
)


def create_reader() -> MetricReader:
    """Return a reader of its metrics."""
    return prometheus.create_reader(f"{OWNER}:")


def start_body(folder: Path | None, steps: int) -> Mapping[str, Any] | None:
    """Return the folder and content of the traces; stacks are off because they cost more than all the rest.

    With a number of steps some versions answer only after the last one, and others than 0.5.23 may state no
    contexts: read in the source, not tried.
    """
    place = {} if folder is None else {"output_dir": str(folder)}
    return {
        **place,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": True,
        "num_steps": steps,
        "detailed_annotations": True,
    }
