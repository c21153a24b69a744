"""A server by its address: what is recorded and said of it, and that it is left profiling nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest

from capture.load_runs import load
from capture.run import Run
from capture.watch import server_watcher
from capture.watch.http_client import HEADER_VARIABLE, HttpResponse
from capture.watch.server_watcher import ServerWatcher
from capture.watch.servers import sglang
from tests.capture.watch.fake_server import TRACES, State, serving
from tests.house import ROOT

PATIENCE_S = 60.0


class Watcher:
    """A watcher of a server, as a process, and what it has written so far."""

    def __init__(self, out: Path, address: str, *options: str, **environment: str) -> None:
        self.out = out
        command = [sys.executable, "-m", "capture.watch", "--out", str(out), "--url", address, *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )

    def marks(self, path: str) -> list[str]:
        """The words of a class, so far."""
        lines = self.out.read_bytes().split(b"\n")[:-1] if self.out.exists() else []
        records = [json.loads(line) for line in lines if line.startswith(b'{"kind":"mark"')]
        return [r["name"] for r in records if r["path"] == path]

    def until(self, path: str, words: str) -> str:
        """Wait for words of a class, and return the whole of them."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := [mark for mark in self.marks(path) if words in mark]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"never said {words!r}, only {self.marks(path)}")

    def end(self) -> str:
        """Ask it to quit, and return what it printed."""
        output, _ = self.child.communicate(b'{"do":"quit"}\n', timeout=PATIENCE_S)
        assert self.child.returncode == 0, output
        return output.decode()


@contextmanager
def watching(state: State, tmp_path: Path, *options: str, **environment: str) -> Iterator[Watcher]:
    with serving(state) as address:
        watcher = Watcher(tmp_path / "out.jsonl", address, *options, **environment)
        try:
            yield watcher
        finally:
            watcher.child.kill()
            watcher.child.wait()


def recorded(watcher: Watcher) -> Run:
    (run,) = load(watcher.out, cache=False)
    return run


def wait_for(what: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def vllm(tmp_path: Path) -> State:
    (tmp_path / "traces").mkdir()
    return State("vllm", tmp_path / "traces")


def traces(state: State, every: float = 60.0, windows: float = 0.2) -> list[str]:
    timing = ["--every", str(every), "--windows", str(windows), "--silence", "0.5"]
    return ["--traces", str(state.folder), *timing]


def test_windows_and_figures_of_vllm(vllm: State, tmp_path: Path) -> None:
    with watching(vllm, tmp_path, *traces(vllm, every=1.5)) as watcher:
        watcher.until("windows", "2 windows")
        watcher.end()
    run = recorded(watcher)
    assert run.meta["producer"] == "vLLM" and run.meta["model"] == "model-vllm"
    assert run.meta["windows"] == "5 steps every 1.5 s, silent for 50.0% of the time"
    kernels = run.events.filter(pl.col("kind") == "kernel")
    works = re.findall(r'"cat": "(?:kernel|gpu_memcpy|gpu_memset)"', TRACES["vllm"].read_text())
    assert kernels.height == 2 * len(works)
    starts = run.events.filter(pl.col("kind") == "step").sort("step")
    assert starts["step"].to_list() == [0, 1, 2, 3]
    assert starts["t"].is_sorted() and starts["t"][2] - starts["t"][1] > 10**9
    figures = run.events.filter(pl.col("kind") == "counter")
    names = set(figures["name"].cast(pl.String))
    assert {"requests running", "KV cache usage", "generated tokens/s", "TTFT p50", "ITL p95"} <= names
    ttft = figures.filter(pl.col("name") == "TTFT p50")["value"]
    assert ttft.to_list() == pytest.approx([35.0] * ttft.len())  # 30 ms lies in the bucket of 20 to 50 ms
    assert not vllm.profiling and vllm.starts == vllm.stops


@pytest.mark.slow
def test_sglang_is_told_where_to_write(tmp_path: Path) -> None:
    state = State("sglang")
    with watching(state, tmp_path, "--every", "60", "--windows", "0.2") as watcher:
        watcher.until("windows", "1 window")
        place = state.place
        watcher.end()
    assert place is not None and not place.exists()  # a folder of ours, removed
    run = recorded(watcher)
    assert run.meta["producer"] == "SGLang"
    assert run.events.filter(pl.col("kind") == "step").height == 3
    assert state.paths.count("POST /start_profile") == 1


def test_sglang_is_asked_for_contexts_and_for_no_stacks() -> None:
    """The keys are those of `ProfileReq` in sglang/srt/managers/io_struct.py of 0.5.23."""
    body = sglang.start_body(Path("/traces"), 5)
    assert body == {
        "output_dir": "/traces", "activities": ["CPU", "GPU"], "with_stack": False, "record_shapes": True,
        "num_steps": 5, "detailed_annotations": True,
    }  # fmt: skip


@pytest.mark.slow
def test_a_window_is_a_number_of_steps(vllm: State, tmp_path: Path) -> None:
    """The server counts a step with each reading; a window would last 20 s by the clock."""
    vllm.steps = 100
    with watching(vllm, tmp_path, *traces(vllm, windows=20.0), "--steps", "7") as watcher:
        watcher.until("windows", "7 of 7 steps")
        watcher.end()
    steps = [body["max_iterations"] for body in vllm.asked]
    assert sum(steps) == 7 and steps[0] == 1 and all(b <= 2 * a for a, b in pairwise(steps))
    assert recorded(watcher).meta["windows"].startswith("7 steps every") and vllm.stops == len(steps)
    assert recorded(watcher).events.filter(pl.col("kind") == "step").height == 2 * len(steps)


@pytest.mark.slow
def test_a_server_without_requests_is_not_profiled_at_the_start_either(vllm: State, tmp_path: Path) -> None:
    vllm.running = vllm.waiting = 0
    with watching(vllm, tmp_path, *traces(vllm)) as watcher:
        watcher.until("windows", "the server has no requests")
        vllm.running = 1
        watcher.until("windows", "1 window")
        assert vllm.paths.index("POST /start_profile") > vllm.paths.index("GET /health")
        watcher.end()


@pytest.mark.slow
def test_the_traces_of_one_profile_are_one_window(vllm: State, tmp_path: Path) -> None:
    vllm.has_frontend = True
    with watching(vllm, tmp_path, *traces(vllm, every=1.5)) as watcher:
        summary = watcher.until("windows", "2 windows")
        watcher.end()
    assert "without any work" not in summary and vllm.starts == vllm.stops <= 3


@pytest.mark.slow
def test_a_long_silence_is_not_made_longer(vllm: State, tmp_path: Path) -> None:
    """One step already silences the server for longer than a profile may."""
    vllm.silence_s, vllm.steps = 0.8, 100
    with watching(vllm, tmp_path, *traces(vllm), "--steps", "3") as watcher:
        status = watcher.until("windows", "3 of 3 steps")
        watcher.end()
    assert [body["max_iterations"] for body in vllm.asked] == [1, 1, 1]
    (longest, total) = re.findall(r"no token for ([0-9,]+) ± .* \(([0-9,]+) ms in all\)", status)[0]
    assert int(total.replace(",", "")) > 2.5 * int(longest.replace(",", ""))


@pytest.mark.slow
def test_the_silence_of_a_window_is_measured(vllm: State, tmp_path: Path) -> None:
    vllm.silence_s = 0.8
    with watching(vllm, tmp_path, *traces(vllm)) as watcher:
        status = watcher.until("windows", "no token for")
        watcher.end()
    (milliseconds,) = re.findall(r"no token for ([0-9,]+) ± [0-9]+ ms", status)
    assert 700 < int(milliseconds.replace(",", "")) < 2000


def test_a_killed_watcher_leaves_no_profile_running(vllm: State, tmp_path: Path) -> None:
    with watching(vllm, tmp_path, *traces(vllm, windows=30.0)) as watcher:
        wait_for(lambda: vllm.profiling)
        watcher.child.kill()
        wait_for(lambda: not vllm.profiling)
    assert vllm.starts == 1


@pytest.mark.slow
def test_the_guard_of_a_killed_watcher_ends_beside_a_server_that_never_answers(
    vllm: State, tmp_path: Path
) -> None:
    vllm.delays["/stop_profile"] = 120.0
    with watching(vllm, tmp_path, *traces(vllm, windows=30.0)) as watcher:
        wait_for(lambda: vllm.profiling)
        (guard,) = psutil.Process(watcher.child.pid).children(recursive=True)
        watcher.child.kill()
        guard.wait(PATIENCE_S)  # raises TimeoutExpired
    assert vllm.paths.count("POST /stop_profile") == 2


WAYS = ["quit", "starter gone", "SIGTERM", "SIGHUP", "SIGINT"]
REQUESTS = ["/start_profile", "/stop_profile"]
MOMENTS = [*(("while it profiles", how) for how in WAYS), *((request, "quit") for request in REQUESTS)]


@pytest.mark.corpus
@pytest.mark.parametrize(("moment", "how"), MOMENTS)
def test_the_server_is_left_profiling_nothing(vllm: State, tmp_path: Path, how: str, moment: str) -> None:
    vllm.delays[moment] = 1.0  # of the request that is under way, where it is one
    windows = 0.2 if moment == "/stop_profile" else 30.0
    with watching(vllm, tmp_path, *traces(vllm, windows=windows)) as watcher:
        asked = f"POST {moment}"
        wait_for(lambda: vllm.profiling if how in WAYS[1:] else asked in vllm.paths or vllm.profiling)
        if how.startswith("SIG"):
            watcher.child.send_signal(getattr(signal, how))
            watcher.child.wait(PATIENCE_S)
        elif how == "quit":
            watcher.end()
        else:
            assert watcher.child.stdin is not None
            watcher.child.stdin.close()
            watcher.child.wait(PATIENCE_S)
        assert not vllm.profiling and vllm.starts == vllm.stops == 1


def test_a_server_without_a_profiler_is_told_of_its_flag(vllm: State, tmp_path: Path) -> None:
    vllm.can_profile = False
    with watching(vllm, tmp_path, *traces(vllm, every=0.3)) as watcher:
        output = watcher.until("windows", "profiling is off")
        time.sleep(1.0)
        watcher.end()
    assert '"torch_profiler_with_stack": false' in output
    assert "VLLM_TORCH_PROFILER_DIR" in output
    assert vllm.paths.count("POST /start_profile") == 1  # it is not asked again


def test_vllm_without_a_folder_of_traces_is_not_profiled(vllm: State, tmp_path: Path) -> None:
    with watching(vllm, tmp_path) as watcher:
        assert "--traces DIR" in watcher.until("windows", "no windows")
        watcher.end()
    assert vllm.starts == 0


@pytest.mark.slow
def test_the_folder_that_the_server_states_is_taken(vllm: State, tmp_path: Path) -> None:
    config = {"vllm_config": {"profiler_config": {"torch_profiler_dir": str(vllm.folder)}}}
    vllm.replies["/server_info"] = (200, json.dumps(config).encode())
    with watching(vllm, tmp_path, "--windows", "0.2") as watcher:
        watcher.until("windows", "1 window")
        watcher.end()


@pytest.mark.slow
def test_sglang_without_metrics_is_told_of_its_flag(tmp_path: Path) -> None:
    state = State("sglang", has_metrics=False)
    with watching(state, tmp_path, "--windows", "0.2") as watcher:
        assert "--enable-metrics" in watcher.until("note", "no metrics")
        watcher.until("windows", "1 window")
        watcher.end()


@pytest.mark.parametrize("key", ["", "Authorization: Bearer secret"])
@pytest.mark.slow
def test_a_server_that_refuses(vllm: State, tmp_path: Path, key: str) -> None:
    vllm.key = "secret"
    with watching(vllm, tmp_path, *traces(vllm), **{HEADER_VARIABLE: key}) as watcher:
        if key:
            watcher.until("windows", "1 window")
        else:
            assert HEADER_VARIABLE in watcher.until("windows", "the server refuses to profile (401)")
        printed = watcher.end()
    assert "secret" not in printed and b"secret" not in watcher.out.read_bytes()


def test_a_server_that_refuses_everything(vllm: State, tmp_path: Path) -> None:
    for path in ("/metrics", "/v1/models", "/health"):
        vllm.replies[path] = (403, b"no")
    with watching(vllm, tmp_path, *traces(vllm)) as watcher:
        assert HEADER_VARIABLE in watcher.until("alarm", "refuses all requests (403)")
        watcher.end()
    assert vllm.starts == 0


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back(vllm: State, tmp_path: Path) -> None:
    with serving(vllm) as address:
        port = int(address.rpartition(":")[2])
        watcher = Watcher(tmp_path / "out.jsonl", address, *traces(vllm, every=0.5))
        watcher.until("windows", "1 window")
    try:
        watcher.until("alarm", "does not answer: connection refused")
        again = State("vllm", vllm.folder)
        with serving(again, port):
            watcher.until("alarm", "over")
            wait_for(lambda: again.stops)
            watcher.end()
        assert not again.profiling
        rates = recorded(watcher).events.filter(pl.col("name") == "generated tokens/s")["value"]
        assert (rates >= 0).all()
    finally:
        watcher.child.kill()
        watcher.child.wait()


def test_a_rate_is_right_though_an_answer_comes_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server with 100 tokens per second takes two seconds for one answer, and counts in the middle."""
    clock, delays = [50.0], iter((0.0, 0.0, 2.0, 0.0))

    def get(path: str, *_: object) -> HttpResponse:
        delay_s = next(delays) if path == "/metrics" else 0.0
        body = f"vllm:generation_tokens_total {100 * (clock[0] + delay_s / 2)}\n"
        clock[0] += delay_s
        return HttpResponse(200 if path == "/metrics" else 404, body.encode())

    monkeypatch.setattr(server_watcher, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = tmp_path / "served.jsonl"
    args = Namespace(url="http://127.0.0.1:1", windows=0.0, out=out, client_log=[])
    watcher = ServerWatcher(args, threading.Event())
    watcher._client = SimpleNamespace(get=get, address="it")  # type: ignore[assignment]
    for _ in range(4):
        watcher._poll_server(clock[0])
        clock[0] += 1.0
    watcher._recording.end()
    rates = load(out)[0].events.filter(pl.col("name").cast(pl.String) == "generated tokens/s")["value"]
    assert rates.to_list() == [100.0, 100.0, 100.0]


@pytest.mark.slow
def test_a_server_that_is_not_there_yet_is_waited_for(vllm: State, tmp_path: Path) -> None:
    with serving(vllm) as address:
        pass
    watcher = Watcher(tmp_path / "out.jsonl", address, *traces(vllm))
    try:
        watcher.until("alarm", "connection refused")
        with serving(vllm, int(address.rpartition(":")[2])):
            watcher.until("windows", "1 window")
            watcher.end()
    finally:
        watcher.child.kill()
        watcher.child.wait()


@pytest.mark.slow
def test_a_slow_server_is_named_and_holds_up_nothing(vllm: State, tmp_path: Path) -> None:
    vllm.delays["/metrics"] = 4.0
    with watching(vllm, tmp_path, *traces(vllm)) as watcher:
        watcher.until("alarm", "no answer within 3 s")
        wait_for(lambda: watcher.marks("heartbeat"))
        began = time.monotonic()
        watcher.end()
        assert time.monotonic() - began < PATIENCE_S / 2


@pytest.mark.slow
def test_a_slow_profiler_is_given_its_time(vllm: State, tmp_path: Path) -> None:
    """Figures go on meanwhile, and windows stay at their part of the time."""
    vllm.delays["/stop_profile"] = 2.5
    with watching(vllm, tmp_path, *traces(vllm, every=2.0)) as watcher:
        output = watcher.until("windows", "1 window")
        watcher.end()
    assert "no token for" in output
    assert vllm.starts == 1
    rows = recorded(watcher).events
    assert rows.filter((pl.col("kind") == "counter") & (pl.col("name") == "requests running")).height >= 3


@pytest.mark.corpus
@pytest.mark.parametrize("status", [500, 409])
@pytest.mark.slow
def test_a_server_that_fails_to_profile_is_asked_ever_less_often(
    status: int, vllm: State, tmp_path: Path
) -> None:
    words = b"Profiling is already in progress. Call \x1b[31m/stop_profile first."
    vllm.replies["/start_profile"] = (status, words)
    with watching(vllm, tmp_path, *traces(vllm, every=0.3)) as watcher:
        output = watcher.until("windows", f"did not start a profile ({status})")
        time.sleep(3.0)
        watcher.end()
    assert "Profiling is already in progress" in output and "\x1b" not in output
    assert vllm.paths.count("POST /start_profile") <= 5
    assert "POST /stop_profile" not in vllm.paths  # that profile is another's


def test_an_idle_server_is_not_profiled(vllm: State, tmp_path: Path) -> None:
    vllm.running = 0
    with serving(vllm):
        pass
    body = b"\n".join(line for line in vllm.metrics().split(b"\n") if b"waiting" not in line)
    vllm.replies["/metrics"] = (200, body + b"\nvllm:num_requests_waiting 0\n")
    with watching(vllm, tmp_path, *traces(vllm, every=0.3)) as watcher:
        watcher.until("windows", "no window: the server has no request")
        watcher.end()
    assert not vllm.profiling and vllm.starts == vllm.stops <= 1


@pytest.mark.corpus
@pytest.mark.parametrize(
    "body", [b"\xff\xfe" * 1000, b"{" * 100_000, b"vllm:x\x1b]52;c;AA\x07 5\n" * 1000, b""]
)
def test_nonsense_is_survived(vllm: State, tmp_path: Path, body: bytes) -> None:
    for path in ("/metrics", "/v1/models", "/health"):
        vllm.replies[path] = (200, body)
    with watching(vllm, tmp_path, "--windows", "0") as watcher:
        watcher.until("heartbeat", "watching")
        time.sleep(1.2)
        watcher.end()
    assert b"\x1b" not in watcher.out.read_bytes() and b"\\u001b" not in watcher.out.read_bytes()


def test_figures_alone(vllm: State, tmp_path: Path) -> None:
    with watching(vllm, tmp_path, "--windows", "0") as watcher:
        watcher.until("health", "healthy")
        watcher.until("windows", "windows are off")
        watcher.end()
    assert vllm.starts == 0
