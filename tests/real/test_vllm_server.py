"""A real vLLM under load, recorded by its address: figures, windows and silence by a client's clock."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.requests.request_rows import REQUESTS
from capture.run import Run
from capture.watch.http_client import HttpClient, ServerAddress
from tests.real import spikes, watching
from tests.real.servers import Server, serve_vllm
from tracetui.analysis.token_waits import build_token_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the model with the profiler that the guide advises."""
    with serve_vllm(model, tmp_path_factory.mktemp("served"), "--enforce-eager") as server:
        yield server


def record_under_load(server: Server, folder: Path, *options: str) -> tuple[Run, list[list[float]]]:
    """Record 20 s of a server that four clients ask; return the recording and the clients' times."""
    with watching.ask(server.url, folder) as times:
        run = record(server, folder, "20s", *options)
    return run, json.loads(times.read_text())


def record(server: Server, folder: Path, seconds: str, *options: str) -> Run:
    out = folder / "served.jsonl"
    command = [
        sys.executable,
        "-m",
        "tracetui",
        "record",
        server.url,
        "--traces",
        str(server.traces),
        "--for",
    ]
    subprocess.run([*command, seconds, "--quiet", "-o", str(out), *options], check=True)
    (run,) = load(out, cache=False)
    return run


def list_marks(run: Run, path: str) -> list[str]:
    rows = run.events.filter(pl.col("path").cast(pl.String) == path)
    return rows["name"].cast(pl.String).to_list()


def test_an_idle_server_is_not_profiled(server: Server, tmp_path: Path) -> None:
    run = record(server, tmp_path, "6s")
    assert "no window: the server has no requests" in list_marks(run, "windows")
    assert not list(server.traces.iterdir())


def test_a_window_has_its_steps(server: Server, tmp_path: Path) -> None:
    run, _ = record_under_load(server, tmp_path, "--every", "60s")
    steps = run.events.filter(pl.col("kind") == "step")
    assert 5 <= steps.height <= 6 and set(steps["batch"]) <= {3, 4}
    summary = list_marks(run, "windows")[-1]
    assert summary.startswith("1 window; the last: ") and "no token for" in summary


def test_the_silence_of_windows_is_what_clients_measure(server: Server, tmp_path: Path) -> None:
    silences = watching.measure_silences(server.url, tmp_path, 45, server.traces)
    print(silences)
    assert silences
    for said_ms, off_by_ms, seen_ms in silences:
        assert said_ms == pytest.approx(seen_ms, rel=0.2, abs=off_by_ms)


def start_load(server: Server, out: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tracetui", "load", server.url, "--quiet", "-o", str(out)]
    return subprocess.Popen([*command, *options])


def read_counters(server: Server) -> dict[str, float]:
    text = HttpClient(ServerAddress.from_url(server.url)).get("/metrics", 5.0).body.decode()
    lines = (line.split() for line in text.splitlines() if line.startswith("vllm:"))
    return {words[0].partition("{")[0]: float(words[-1]) for words in lines}


def test_loaded_requests_are_as_the_server_counts_them(server: Server, tmp_path: Path) -> None:
    """The same requests by two clocks: the client has the way to the server on top."""
    before, out = read_counters(server), tmp_path / "clients.jsonl"
    with start_load(server, out, "--requests", "60", "--prompt-tokens", "32:256") as clients:
        clients.wait()
    time.sleep(1.0)
    after = read_counters(server)
    (run,) = load(out, cache=False)
    requests, tokens = run.tables[REQUESTS], build_token_table(run)
    grown = {name: after[name] - before[name] for name in before}
    assert requests.height == 60 and requests["tokens"].to_list() == [64] * 60
    assert grown["vllm:generation_tokens_total"] == 60 * 64 + 1  # one to find out what the server takes
    totals = float(requests["total_ns"].mean()) / 1e9  # type: ignore[arg-type]
    latency = "vllm:e2e_request_latency_seconds"
    of_server = grown[f"{latency}_sum"] / grown[f"{latency}_count"]
    assert of_server < 1.02 * totals, "a client that stands still may see more"
    arrivals = tokens.group_by("request").agg(pl.col("tokens").sum())
    assert set(arrivals["tokens"]) == {64}


def test_planted_prompts_are_the_cause_of_late_tokens(server: Server, tmp_path: Path) -> None:
    """A prompt of 1,900 tokens each second or so: named in each wait that it ends, and in no other."""
    out = tmp_path / "spikes.jsonl"
    rows, invented, _ = spikes.judge(out, *spikes.plant(server.url, out, 25))
    named = sum(row["named"] for row in rows)
    assert len(rows) >= 12 and named >= int(0.95 * len(rows)), [row for row in rows if not row["named"]]
    assert not invented


def test_nothing_is_blamed_where_nothing_is_planted(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "quiet.jsonl"
    _, invented, _ = spikes.judge(out, *spikes.plant(server.url, out, 0))
    assert not invented
