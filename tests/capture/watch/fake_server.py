"""A server that answers as vLLM or SGLang do, on loopback: metrics that move, and traces that are real.

By hand: `python -m tests.capture.watch.fake_server vllm 8000 traces` serves until it is ended.
"""

import gzip
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.conftest import FIXTURES

TRACES: Final = {
    "vllm": FIXTURES / "chrome" / "torch_decode.json",
    "sglang": FIXTURES / "chrome" / "replay" / "decode-TP-0.trace.json",
}
NAMES: Final = {
    "vllm": ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"),
    "sglang": ("num_running_reqs", "num_queue_reqs", "token_usage"),
}
EDGES: Final = ("0.01", "0.02", "0.05", "0.1", "0.5", "+Inf")


@dataclass
class State:
    """What the server is doing, and how it misbehaves."""

    kind: str
    folder: Path | None = None  # that its profiler writes to, where no request says
    can_profile: bool = True
    has_metrics: bool = True
    key: str = ""  # that /v1 and the profiler ask for
    running: int = 12
    waiting: int = 3
    steps: int | None = None  # that its engine has made, a step more with each reading; None: not counted
    silence_s: float = 0.0  # in which it makes no token when a profile ends
    silent_until: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)  # bodies of the requests to start a profile
    has_frontend: bool = False  # whether a second trace comes with each, of a process that computes nothing
    tokens: float = 0.0
    tokens_a_reading: float = 100.0
    ttft_s: float = 0.03
    itl_s: float = 0.015
    requests: int = 0  # so many have been counted in the histograms
    profiling: bool = False
    starts: int = 0
    stops: int = 0
    delays: dict[str, float] = field(default_factory=dict)  # seconds before a path answers
    replies: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # in place of what a path says
    redirect: str = ""  # where everything is redirected to
    seen: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    place: Path | None = None  # of the profile that is on

    @property
    def paths(self) -> list[str]:
        """What was asked, in its order."""
        return [path for path, _ in self.seen]

    def metrics(self) -> bytes:
        """Return the metrics, a reading further."""
        self.tokens += self.tokens_a_reading * (time.monotonic() > self.silent_until)
        self.requests += 10
        running, waiting, kv = (f"{self.kind}:{name}" for name in NAMES[self.kind])
        labels = f'model_name="model-{self.kind}",engine="0"'
        lines = [
            f"{running}{{{labels}}} {self.running}",
            f"{waiting}{{{labels}}} {self.waiting}",
            f"{kv}{{{labels}}} 0.43",
            f"{self.kind}:generation_tokens_total{{{labels}}} {self.tokens}",
            f"{self.kind}:prompt_tokens_total{{{labels}}} {10 * self.tokens}",
        ]
        if self.steps is not None:
            self.steps += 1
            lines.append(f"{self.kind}:iteration_tokens_total_count{{{labels}}} {self.steps}")
        for name, value in (("time_to_first_token", self.ttft_s), ("inter_token_latency", self.itl_s)):
            for edge in EDGES:
                count = self.requests if value <= float(edge) else 0
                lines.append(f'{self.kind}:{name}_seconds_bucket{{le="{edge}",{labels}}} {count}')
        return "\n".join([f"# HELP {running} requests", f"# TYPE {running} gauge", *lines, ""]).encode()

    def drop_trace(self) -> None:
        """Write a trace of this moment as the server's profiler does: packed, and in two pieces."""
        assert self.place is not None
        self.place.mkdir(parents=True, exist_ok=True)
        text = TRACES[self.kind].read_text()
        first = min(float(at) for at in re.findall(r'"ts"\s*:\s*([0-9.]+)', text))
        base = time.time_ns() - int(first * 1000)
        head = f'{{"baseTimeNanoseconds": {base},'
        text = head + re.sub(r'"baseTimeNanoseconds"\s*:\s*\d+,', "", text).lstrip().removeprefix("{")
        name = {"vllm": "host_77.{}.pt.trace.json.gz", "sglang": "{}-TP-0.trace.json.gz"}[self.kind]
        packed = gzip.compress(text.encode())
        if self.has_frontend:
            events = '[{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1}]'
            frontend = f'{head} "schemaVersion": 1, "traceEvents": {events}}}'.encode()
            (self.place / f"vm.async_llm.{time.time_ns()}.pt.trace.json.gz").write_bytes(
                gzip.compress(frontend)
            )
        with (self.place / name.format(time.time_ns())).open("wb") as file:
            file.write(packed[: len(packed) // 2])
            file.flush()
            time.sleep(0.1)
            file.write(packed[len(packed) // 2 :])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        state, path = self.state, self.path.partition("?")[0]
        state.seen.append((f"{self.command} {path}", dict(self.headers)))
        time.sleep(state.delays.get(path, 0.0))
        if state.redirect:
            self._send(307, b"", {"Location": state.redirect + path})
        elif path in state.replies:
            self._send(*state.replies[path])
        elif self._is_refused(path):
            self._send(401, b'{"error":"Unauthorized"}')
        elif path in ("/start_profile", "/stop_profile"):
            self._profile(path, json.loads(body) if body else {})
        elif path == "/metrics" and state.has_metrics:
            self._send(200, state.metrics())
        elif path == "/v1/models":
            model = {"id": f"model-{state.kind}", "owned_by": state.kind}
            self._send(200, json.dumps({"object": "list", "data": [model]}).encode())
        elif path == "/health":
            self._send(200, b"")
        else:
            self._send(404, b'{"detail":"Not Found"}')

    def _is_refused(self, path: str) -> bool:
        guarded = path.startswith("/v1") or path.endswith("_profile")
        return (
            bool(self.state.key)
            and guarded
            and self.headers.get("Authorization") != f"Bearer {self.state.key}"
        )

    def _profile(self, path: str, asked: dict[str, Any]) -> None:
        state = self.state
        if self.command != "POST" or not state.can_profile:
            self._send(404, b'{"detail":"Not Found"}')
        elif path == "/start_profile":
            if state.profiling:
                self._send(500, b"Profiling is already in progress. Call /stop_profile first.")
                return
            state.profiling, state.starts = True, state.starts + 1
            state.asked.append(asked)
            state.place = Path(asked["output_dir"]) if "output_dir" in asked else state.folder
            self._send(200, b"")
        elif state.profiling:
            state.silent_until = time.monotonic() + state.silence_s
            state.drop_trace()
            state.profiling, state.stops = False, state.stops + 1
            self._send(200, b"")
        else:
            self._send(500, b"Profiling is not in progress. Call /start_profile first.")

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(state: State, port: int = 0) -> Iterator[str]:
    """Serve, and yield the address."""
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    with serving(State(sys.argv[1], Path(sys.argv[3])), int(sys.argv[2])) as address:
        print(address, flush=True)
        threading.Event().wait()
