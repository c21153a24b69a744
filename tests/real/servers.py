"""Start a real vLLM with the profiler that the guide advises, and end all that it started."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from capture.watch.http_client import HttpClient, NoAnswerError, ServerAddress
from tests.real import find_program

START_TIMEOUT_S = 600


class Server(NamedTuple):
    url: str
    traces: Path
    pid: int  # of its frontend, which leads the group of its processes
    log: Path


@contextmanager
def serve_vllm(model: Path, folder: Path, *options: str) -> Iterator[Server]:
    """Serve the model until the block ends; traces go to a folder of their own."""
    traces, log = folder / "traces", folder / "server.log"
    traces.mkdir(parents=True)
    url = f"http://127.0.0.1:{find_free_port()}"
    config = {"profiler": "torch", "torch_profiler_dir": str(traces), "torch_profiler_with_stack": False,
              "torch_profiler_record_shapes": True, "detailed_trace_annotation": True,
              "torch_profiler_use_gzip": False, "torch_profiler_dump_cuda_time_total": False,
              "ignore_frontend": True}  # fmt: skip
    command = [
        find_program("vllm", "vllm"), "serve", str(model), "--served-model-name", "m", "--host", "127.0.0.1",
        "--port", url.rpartition(":")[2], "--max-model-len", "4096", "--dtype", "bfloat16",
        "--profiler-config", json.dumps(config), *options,
    ]  # fmt: skip
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, env={**os.environ, **quiet}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_until_healthy(url, child)
        yield Server(url, traces, child.pid, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(url: str, child: "subprocess.Popen[bytes]") -> None:
    client, deadline = HttpClient(ServerAddress.from_url(url)), time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            if client.get("/health", 3.0).is_ok:
                return
        except NoAnswerError:
            pass
        time.sleep(0.2)
    raise AssertionError("the server did not start")
