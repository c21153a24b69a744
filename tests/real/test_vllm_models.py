"""vLLM with three kinds of models, eager and compiled: steps as sent, figures as clients measured them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean

import polars as pl
import pytest

from capture.load_runs import load_all
from capture.run import Run
from tests.real import PROGRAMS, find_program, watching
from tests.real.servers import Server, serve_vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KINDS = ("llama", "qwen3", "qwen3_moe")
CLIENTS, PROMPT, NEW = 3, 48, 40
LONG_PROMPT = 3900
FIGURES_S, JITTER_S = 10.0, 0.3  # over which figures are means; of the time from a reading to its row


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
    server: Server,
    folder: Path,
    seconds: int,
    *options: str,
    load: tuple[int, int, int] = (CLIENTS, PROMPT, NEW),
) -> tuple[Run, list[list[float]]]:
    """Record so long while clients ask; return the recording, and when each request and its tokens came."""
    out = folder / "served.jsonl"
    with watching.ask(server.url, folder, *load) as times:
        recording = [sys.executable, "-m", "tracetui", "record", server.url, "--traces", str(server.traces)]
        subprocess.run([*recording, "--for", f"{seconds}s", "--quiet", "-o", str(out), *options], check=True)
    (run,) = load_all([out], cache=False)
    return run, json.loads(times.read_text())


def list_readings(run: Run, name: str) -> tuple[pl.Series, pl.Series]:
    """Return when a figure was read, by the clients' clock, and its values."""
    counters = run.events.filter(pl.col("kind") == "counter", pl.col("name").cast(pl.String) == name)
    return counters["t"] / 1e9, counters["value"]


def find_last(run: Run, name: str) -> tuple[float, float, float]:
    """Return the last value of a figure, and from when to when it counts, by the clients' clock."""
    read_at, values = list_readings(run, name)
    end = float(read_at[-1])
    begin = read_at.filter(read_at <= end - FIGURES_S + JITTER_S).max()
    assert begin is not None, "the recording is too short"
    return float(values[-1]), float(begin), end  # type: ignore[arg-type]


def test_steps_are_what_was_sent(server: Server, tmp_path: Path) -> None:
    """Each request has a prompt of 48 tokens and 40 new ones: a decode step holds one token of each."""
    run, _ = record_under_load(server, tmp_path, 60, "--steps", "10", "--every", "120s")
    steps = run.events.filter(pl.col("kind") == "step").with_columns(pl.col("phase").cast(pl.String))
    assert 5 <= steps.height <= 11, "a window is several profiles, each read before the next"
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
    run, requests = record_under_load(server, tmp_path, 40, "--windows", "0")
    rate, begin, end = find_last(run, "generated tokens/s")
    tokens = [at for times in requests for at in times[1:]]
    figures = {"tokens/s": (rate, sum(begin < at <= end for at in tokens) / (end - begin))}
    waits = [b - a for times in requests for a, b in pairwise(times[1:]) if begin < b <= end]
    figures["ITL"] = (find_last(run, "ITL mean")[0], 1000 * mean(waits))
    ttft, of_clients = compare_ttft(run, requests)
    print("; ".join(f"{name} {ours:.1f}, client {theirs:.1f}" for name, (ours, theirs) in figures.items()))
    print(f"TTFT {ttft:.1f}, client {of_clients:.1f}")
    assert find_last(run, "requests waiting")[0] == 0
    running = list_running(run, requests)
    assert max(value for value, _ in running) == CLIENTS
    assert all(value <= most for value, most in running)
    assert ttft < 1.01 * of_clients, "the server's clock lies within the clients'"
    for name, (ours, theirs) in figures.items():
        assert ours == pytest.approx(theirs, rel=0.05), name


def list_running(run: Run, requests: list[list[float]]) -> list[tuple[float, int]]:
    """Return each reading of how many requests run, and the most that the clients had open about then.

    They have more open than run while the front end is behind the engine.
    """
    running = []
    for at, value in zip(*list_readings(run, "requests running"), strict=True):
        about = [at + JITTER_S * i / 20 for i in range(-20, 21)]
        running.append((value, max(sum(each[0] < t < each[-1] for each in requests) for t in about)))
    print("running, and most open:", *running)
    return running


def test_a_long_ttft_is_that_of_the_client(server: Server, tmp_path: Path) -> None:
    """The way to the front end and back takes milliseconds, less than 5 % of such a prefill."""
    run, requests = record_under_load(server, tmp_path, 25, "--windows", "0", load=(1, LONG_PROMPT, 4))
    ours, theirs = compare_ttft(run, requests)
    print(f"TTFT of {LONG_PROMPT} tokens {ours:.1f}, client {theirs:.1f}")
    assert ours == pytest.approx(theirs, rel=0.05)


def compare_ttft(run: Run, requests: list[list[float]]) -> tuple[float, float]:
    """Return the mean TTFT of the server and of the clients, in ms."""
    ours, begin, end = find_last(run, "TTFT mean")
    waits = [times[1] - times[0] for times in requests if len(times) > 1 and begin < times[1] <= end]
    return ours, 1000 * mean(waits)
