"""llama.cpp's server under load, recorded by its address: its figures against a client's log."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.requests.request_rows import REQUESTS
from tests.real import PROGRAMS, find_program
from tests.real.servers import find_free_port, wait_until_healthy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a model of random weights with metrics."""
    server, model = find_program("llamacpp", "llama-server"), tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    subprocess.run([find_program("llamacpp"), str(PROGRAMS / "make_gguf.py"), str(model)], check=True)
    port = find_free_port()
    command = [server, "-m", str(model), "--port", str(port), "--metrics", "--parallel", "4", "-t", "1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(address, child)
        yield address
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def test_figures_are_those_of_the_clients(url: str, tmp_path: Path) -> None:
    log, out = tmp_path / "clients.jsonl", tmp_path / "served.jsonl"
    command = [sys.executable, "-m", "tracetui"]
    asking = [*command, "load", url, "--for", "22s", "--requests", "100000", "--tokens", "32", "--quiet"]
    with subprocess.Popen([*asking, "-o", str(log)]) as clients:
        time.sleep(2.0)
        recording = [*command, "record", url, "--client-log", str(log), "--for", "18s", "--quiet"]
        subprocess.run([*recording, "-o", str(out)], check=True)
        clients.wait()
    (run,) = load(out, cache=False)
    assert run.meta["producer"] == "llama.cpp"
    marks = run.events.filter(pl.col("path").cast(pl.String) == "windows")["name"].cast(pl.String)
    assert "llama.cpp has no profiler" in marks.to_list()[-1]
    (whole,) = load(log, cache=False)
    requests = whole.tables[REQUESTS]
    assert requests["tokens"].to_list() == [32] * requests.height
    seconds = ((requests["sent_ns"] + requests["total_ns"]).max() - requests["sent_ns"].min()) / 1e9  # type: ignore[operator]
    counters = run.events.filter(pl.col("kind") == "counter")
    figures = {
        name: counters.filter(pl.col("name").cast(pl.String) == name)["value"].to_list()[-1]
        for name in ("generated tokens/s", "requests running", "requests waiting", "ITL mean")
    }
    assert figures["generated tokens/s"] == pytest.approx(requests.height * 32 / seconds, rel=0.1)
    assert figures["requests running"] == 4 and figures["requests waiting"] == 0
    waits = requests["decode_ns"].sum() / (31 * requests.height) / 1e6
    assert figures["ITL mean"] == pytest.approx(waits, rel=0.25), json.dumps(figures)
    assert run.tables[REQUESTS].height > 10
