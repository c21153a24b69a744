"""vLLM with three kinds of models, eager and compiled: steps as sent, figures as clients measured them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.real import PROGRAMS, find_program
from tests.real.servers import Server, serve_vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KINDS = ("llama", "qwen3", "qwen3_moe")
CLIENTS, PROMPT, NEW = 3, 48, 40
FIGURES_S = 10.0  # over which figures are means


@pytest.fixture(scope="module", params=[(kind, way) for way in ("eager", "compiled") for kind in KINDS],
                ids="-".join)  # fmt: skip
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    kind, way = request.param
    folder = tmp_path_factory.mktemp(kind)
    command = [find_program("vllm"), str(PROGRAMS / "make_model.py"), str(folder / "model"), kind]
    subprocess.run(command, check=True)
    options = ("--enforce-eager",) if way == "eager" else ()
    with serve_vllm(folder / "model", folder, *options) as server:
        yield server


def record_under_load(
    server: Server, folder: Path, seconds: int, *options: str
) -> tuple[Run, list[list[float]]]:
    """Record so long while clients ask; return the recording, and when each request and its tokens came."""
    times, out = folder / "times.json", folder / "served.jsonl"
    asking = [server.url, str(seconds + 15), str(CLIENTS), str(PROMPT), str(NEW), str(times)]
    with subprocess.Popen([sys.executable, "-m", "tests.real.load", *asking]) as clients:
        time.sleep(5.0)
        recording = [sys.executable, "-m", "tracetui", "record", server.url, "--traces", str(server.traces)]
        subprocess.run([*recording, "--for", f"{seconds}s", "--quiet", "-o", str(out), *options], check=True)
        clients.wait()
    (run,) = load(out, cache=False)
    return run, json.loads(times.read_text())


def test_steps_are_what_was_sent(server: Server, tmp_path: Path) -> None:
    """Each request has a prompt of 48 tokens and 40 new ones: a decode step holds one token of each."""
    run, _ = record_under_load(server, tmp_path, 45, "--steps", "20", "--every", "120s")
    steps = run.events.filter(pl.col("kind") == "step").with_columns(pl.col("phase").cast(pl.String))
    assert 15 <= steps.height <= 21
    for phase, batch, tokens, context in steps.select("phase", "batch", "tokens", "context").rows():
        assert phase in ("prefill", "decode", "mixed") and 1 <= batch <= CLIENTS
        if phase == "decode":
            assert tokens == batch and PROMPT < context <= PROMPT + NEW
        elif phase == "prefill":
            assert tokens == batch * PROMPT
        else:
            prefills, decodes = divmod(tokens, PROMPT)
            assert prefills >= 1 and prefills + decodes == batch


def test_figures_are_those_of_the_clients(server: Server, tmp_path: Path) -> None:
    run, requests = record_under_load(server, tmp_path, 20, "--windows", "0")
    counters = run.events.filter(pl.col("kind") == "counter").with_columns(pl.col("name").cast(pl.String))

    def find_last(name: str) -> tuple[float, float]:
        """Return the last value of a figure, and when it was read, by the clock of the clients."""
        row = counters.filter(pl.col("name") == name).row(-1, named=True)
        return float(row["value"]), row["t"] / 1e9 + time.time() - time.monotonic()

    rate, end = find_last("generated tokens/s")
    tokens = [at for times in requests for at in times[1:]]
    figures = {"tokens/s": (rate, sum(end - FIGURES_S < at <= end for at in tokens) / FIGURES_S)}
    figures["running"] = (find_last("requests running")[0], CLIENTS)
    begun = [times for times in requests if len(times) > 1 and end - FIGURES_S < times[1] <= end]
    figures["TTFT"] = (find_last("TTFT mean")[0], 1000 * mean(times[1] - times[0] for times in begun))
    waits = [b - a for times in requests for a, b in pairwise(times[1:]) if end - FIGURES_S < b <= end]
    figures["ITL"] = (find_last("ITL mean")[0], 1000 * mean(waits))
    print("; ".join(f"{name} {ours:.1f}, client {theirs:.1f}" for name, (ours, theirs) in figures.items()))
    assert find_last("requests waiting")[0] == 0
    ours, theirs = figures.pop("TTFT")
    assert 0.75 * theirs < ours < 1.05 * theirs, "a client has the way to the server on top"
    for name, (ours, theirs) in figures.items():
        assert ours == pytest.approx(theirs, rel=0.05), name
