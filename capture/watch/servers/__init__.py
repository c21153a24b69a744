"""Supported kinds of servers: metric names, and how each is asked to profile.

llama_server: llama.cpp's llama-server
sglang: SGLang
trtllm: TensorRT-LLM's trtllm-serve
vllm: vLLM

To add one, write a module that provides what `ServerKind` lists, and add its name to `SERVERS`.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from capture.watch.prometheus import MetricReader
from capture.watch.server_metrics import MetricNames

SERVERS: Final[tuple[str, ...]] = ("llama_server", "sglang", "trtllm", "vllm")


class ServerKind(Protocol):
    """What the module of a kind of server provides."""

    NAME: str
    OWNER: str  # `owned_by` in /v1/models, and the prefix of its metrics
    NAMES: MetricNames
    METRICS_FLAG: str  # option that enables metrics; empty if they are always on
    HAS_PROFILER: bool  # whether it can profile itself on request
    PROFILE_FLAG: str  # option that enables profiling; empty if it is always on
    TAKES_FOLDER: bool  # whether a profile request names the folder of the traces

    def create_reader(self) -> MetricReader:
        """Return a reader of its metrics; one per watched server, because it may have a memory."""
        ...

    def start_body(self, folder: Path | None, steps: int) -> Mapping[str, Any] | None:
        """Return the body of a request to start a profile, or None for no body."""
        ...


def load_kinds() -> list[ServerKind]:
    """Return all supported kinds of servers."""
    return [cast(ServerKind, import_module(f"{__name__}.{name}")) for name in SERVERS]


def select_first_model(document: object) -> dict[str, object]:
    """Return the first entry of a list of models, or an empty dictionary."""
    data = document.get("data") if isinstance(document, dict) else None
    first = data[0] if isinstance(data, list) and data else None
    return first if isinstance(first, dict) else {}
