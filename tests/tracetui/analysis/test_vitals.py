"""What is said of a server that is watched, from figures made by hand."""

from typing import Any

import pytest

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.vitals import describe_server_status
from tracetui.ui.pages.bands import draw_header
from tracetui.ui.run_info import describe_run

S = 10**9
ADDRESS = "http://host:8000"


def figure(name: str, value: float, unit: str, at: float = 100.0) -> dict[str, Any]:
    return {"kind": "counter", "name": name, "t": int(at * S), "value": value, "unit": unit}


def said(path: str, words: str, at: float = 100.0) -> dict[str, Any]:
    return {"kind": "mark", "name": words, "t": int(at * S), "path": path}


BUSY = (
    figure("requests running", 5, "requests", at=99),
    figure("requests running", 12, "requests"),
    figure("requests waiting", 3, "requests"),
    figure("KV cache usage", 43, "%"),
    figure("generated tokens/s", 812.4, "tok/s"),
    figure("TTFT p50", 35, "ms"),
    figure("TTFT p95", 48.5, "ms"),
    said("health", "healthy", at=1),
    said("windows", "profiling …", at=98),
    said("windows", "2 windows", at=99),
)
PLAN = "0.5 s every 30 s (1.7% of the time)"


def served(*rows: dict[str, Any], **meta: Any) -> Run:
    about = {"watched": "server", "server": ADDRESS, "producer": "vLLM", "windows": PLAN}
    return made(list(rows), **{**about, **meta})


def test_the_newest_figures_are_said() -> None:
    assert describe_server_status(served(*BUSY)) == {
        "server": f"vLLM at {ADDRESS} is healthy: 12 running, 3 waiting, KV cache 43% full, 812.4 tok/s",
        "latency": "TTFT p50 ~35 ms, p95 ~48.5 ms (quantiles from the server's buckets)",
        "windows": f"windows of {PLAN}: 2 windows",
    }


def test_a_figure_that_comes_no_more_is_none_of_now() -> None:
    old = figure("ITL p50", 12, "ms", at=80)
    words = describe_server_status(served(*BUSY, old, figure("KV cache usage", 1, "%", at=120)))
    assert words["server"] == f"vLLM at {ADDRESS} is healthy: KV cache 1% full"
    assert words["latency"] == "no token for 40 s: no latencies"


def test_latencies_are_said_with_their_mean_and_the_bounds_of_their_buckets() -> None:
    figures = {"ITL mean": 12.2, "ITL p50": 17.5, "ITL p50 from": 10, "ITL p50 to": 25, "ITL p95": 80,
               "ITL p95 from": 80, "request time mean": 812, "queue time mean": 3, "prefix cache hits": 40,
               "preemptions/s": 0.5}  # fmt: skip
    words = describe_server_status(served(*(figure(name, value, "ms") for name, value in figures.items())))
    assert words["latency"].startswith("ITL mean 12.2 ms, p50 10–25 ms, p95 > 80 ms")
    assert words["requests"] == "finished requests, mean: queued 3 ms, in all 812 ms"
    assert words["server"].endswith("40% of prompt tokens from its prefix cache, 0.5 preemptions/s")


def test_a_server_that_does_not_answer_has_no_figures() -> None:
    gone = f"{ADDRESS} does not answer: connection refused"
    words = describe_server_status(served(*BUSY, said("alarm", gone, at=101)))
    assert words == {"server": gone, "windows": f"windows of {PLAN}: 2 windows"}
    again = describe_server_status(served(*BUSY, said("alarm", gone, at=101), said("alarm", "over", at=102)))
    assert again["server"].startswith("vLLM at ")


def test_figures_alone_and_a_folder() -> None:
    alone = served(said("windows", "windows are off: metrics only"), windows="none")
    assert describe_server_status(alone)["windows"] == "windows are off: metrics only"
    folder = made([said("windows", "4 windows, 1 cut short")], watched="folder")
    assert describe_server_status(folder) == {"windows": "4 windows, 1 cut short"}
    assert describe_server_status(made([said("windows", "x"), *BUSY])) == {}


@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (200, "812.4 tok/s counted by the server · running 8 · waiting 3 · kv 43% · ttft ~35 ms"),
        (80, "812.4 tok/s · running 8 · waiting 3 · kv 43% · ttft ~35 ms"),
    ],
)
def test_the_head_has_the_figures_of_the_server(width: int, parts: str) -> None:
    run = served(*BUSY)
    text = "".join(span.text for span in draw_header(run, describe_run(run), None, width, writer="live"))
    assert parts in text  # running: the mean of 5 and 12, as whole requests
    assert "cpu" not in text and "mem" not in text and "capture" not in text
