"""The Python line of each kernel, against a plain search through the recorded stacks."""

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.loaders.chrome.launch_context import _list_scope_changes, is_user_function, with_lines
from tests.capture.loaders.test_chrome_operator_links import kernels
from tests.capture.loaders.test_chrome_steps import annotation, launch, written
from tests.conftest import shared
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.look import Look

LIBRARY = re.compile(
    r"<|nn\.Module|torch|triton|numpy|torch_guard|\S*/(triton|kernel_shape_profiler)\b|"
    r"(threading|inspect|contextlib|functools|enum|typing|copy|logging|dataclasses|os|importlib|"
    r"collections|_\w+|abc|re|warnings|queue|random|json|ctypes|multiprocessing)(/\w+)*\.py"
)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("run.py(10): main", True),
        ("test.py(3): <module>", True),
        ("vllm/model_executor/models/llama.py(120): forward", True),
        ("/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py(9): step", True),
        ("/sgl-workspace/sglang/python/sglang/srt/layers/sampler.py(83): forward", True),
        ("/home/me/numpy_tricks/torch.py(1): f", True),
        ("torch/nn/modules/module.py(1500): _call_impl", False),
        ("/opt/venv/lib/python3.12/site-packages/torch/_ops.py(3): __call__", False),
        ("/src/triton/python/triton/runtime/jit.py(330): run", False),
        ("/usr/lib/python3.11/contextlib.py(79): inner", False),
        ("threading.py(1032): _bootstrap", False),
        ("/x/python/sglang/srt/utils/kernel_shape_profiler.py(5): wrapper", False),
        ("<built-in method linear of type object at 0x7f>", False),
        ("<frozen os>(1): f", False),
        ("<string>(1): <module>", False),
        ("nn.Module: Linear_3", False),
    ],
)
def test_what_answers_for_a_kernel_and_what_only_carries_its_call_on(name: str, own: bool) -> None:
    assert is_user_function(name) is own


def plain(path: Path) -> Iterator[tuple[str, str | None]]:
    """Name and line of each device row: the shortest function of its thread that was open at its launch."""
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    frames = [e for e in events if e["cat"] == "python_function" and not LIBRARY.match(e["name"])]
    for event in events:
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            by = calls[event["args"]["correlation"]]
            around = [
                f for f in frames if (f["pid"], f["tid"]) == (by["pid"], by["tid"]) and holds(f, by["ts"])
            ]
            innermost = min(around, key=lambda f: f["dur"], default={"name": None})
            yield event["name"], innermost["name"]


def holds(frame: dict[str, Any], ts: float) -> bool:
    return bool(frame["ts"] <= ts < frame["ts"] + frame["dur"])


@pytest.mark.parametrize(
    "sample",
    [
        "chrome_trace/bert-small-h100.json.gz",
        "serving/vllm_gptoss_decode/execution.json.gz",
        "serving/sglang_qwen3_8b_decode/execution.json.gz",
    ],
)
def test_each_kernel_has_the_line_that_a_plain_search_finds(sample: str) -> None:
    path = shared(f"samples/{sample}")
    (run,) = load(path, cache=False, capture=NO_CAPTURE)
    actual = kernels(run).select("name", "line").rows()
    assert sorted(actual, key=str) == sorted(plain(path), key=str)


def frame(name: str, ts: int, dur: int, tid: int = 1) -> dict[str, Any]:
    return annotation(name, ts, dur, tid, cat="python_function")


def test_lines_are_a_group_of_the_kernels(tmp_path: Path) -> None:
    """Of three kernels of 5 µs two are launched by one line, though torch's own functions are further in."""
    run = written(
        tmp_path,
        frame("run.py(1): main", 0, 900),
        frame("llama.py(20): forward", 10, 300),
        frame("torch/nn/functional.py(5): linear", 20, 100),
        frame("elsewhere.py(1): other", 0, 900, tid=2),
        *launch(30, 1, 400), *launch(200, 2, 410), *launch(350, 3, 420),
    )  # fmt: skip
    table = compute_kernel_table(run, Look(group="line")).sort("total_ns", descending=True)
    rows = table.select(pl.col("line").cast(pl.String), "count", "total_ns").rows()
    assert rows == [("llama.py(20): forward", 2, 10_000), ("run.py(1): main", 1, 5_000)]


def nested(rng: random.Random, start: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
    """Frames that nest, some of them beginning or ending together."""
    at = start
    while at < end and depth:
        begin = rng.randint(at, min(end, at + 9))
        stop = rng.randint(begin, min(end, begin + 40 * depth))
        if stop > begin:
            yield begin, stop
            yield from nested(rng, begin, stop, depth - 1)
        at = max(stop, begin + 1)


@pytest.mark.parametrize("seed", range(5))
def test_the_innermost_frame_at_any_moment(seed: int) -> None:
    """Of two frames with the same ends the later one in the file is the inner one."""
    frames = list(nested(random.Random(seed), 0, 400, 6))
    rows = pl.DataFrame(frames, schema=["t", "end"], orient="row").with_row_index("label")
    rows = rows.select("label", "t", dur=pl.col("end") - pl.col("t"), thread=1)
    launches = pl.DataFrame({"host_t": range(-5, 410), "host_thread": 1})
    expected = [
        max((t, -end, i) for i, (t, end) in enumerate([(-9, 999), *frames]) if t <= at < end)[2] - 1
        for at in launches["host_t"]
    ]
    known = [None if i < 0 else i for i in expected]
    assert len(set(expected)) > 20
    assert with_lines(launches, rows).sort("host_t")["line"].to_list() == known


def test_a_scope_that_ends_as_the_next_begins_does_not_hold_it() -> None:
    scopes = pl.DataFrame({"name": ["a", "b"], "t": [0, 10], "dur": [10, 10]})
    assert _list_scope_changes(scopes) == ([0, 10, 10, 20], ["a", None, "b", None])
