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
from capture.loaders.chrome.launch_context import _list_scope_changes, find_function_owner, with_lines
from tests.capture.loaders.test_chrome_operator_links import kernels
from tests.capture.loaders.test_chrome_steps import annotation, launch, written
from tests.conftest import shared
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.look import Look

LIBRARY = re.compile(
    r"<|nn\.Module|torch|triton|numpy|torch_guard|\S*/(triton|kernel_shape_profiler)\b|"
    r"(threading|inspect|contextlib|functools|enum|typing|copy|logging|dataclasses|os|importlib|"
    r"collections|_\w+|abc|re|warnings|queue|random|json|ctypes|multiprocessing)(/\w+)*\.py|"
    r"aiter/|csrc/|sgl_kernel/|triton_kernels/|/tmp/torchinductor|vllm/compilation/|vllm/tracing/|"
    r".*: \w*(_wrapper|__torch_function__)$"
)
ENGINE = re.compile(r"(.*/)?(sglang|vllm)/\S+\.py\(\d+\): \w+$")
SERVED = {"sglang_qwen3_8b_decode": 544, "vllm_gptoss_decode": 421}  # kernels of the replayed graph


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("run.py(10): main", "PROGRAM"),
        ("test.py(3): <module>", "PROGRAM"),
        ("vllm/model_executor/models/llama.py(120): forward", "PROGRAM"),
        ("/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py(9): step", "PROGRAM"),
        ("/sgl-workspace/sglang/python/sglang/srt/layers/sampler.py(83): forward", "PROGRAM"),
        ("/home/me/numpy_tricks/torch.py(1): f", "PROGRAM"),
        ("torch/nn/modules/module.py(1500): _call_impl", "INTERPRETER"),
        ("/opt/venv/lib/python3.12/site-packages/torch/_ops.py(3): __call__", "INTERPRETER"),
        ("/src/triton/python/triton/runtime/jit.py(330): run", "INTERPRETER"),
        ("/usr/lib/python3.11/contextlib.py(79): inner", "INTERPRETER"),
        ("threading.py(1032): _bootstrap", "INTERPRETER"),
        ("/x/python/sglang/srt/utils/kernel_shape_profiler.py(5): impl", "LIBRARY"),
        ("/x/site-packages/aiter/tuned_gemm.py(395): torch_gemm", "LIBRARY"),
        ("vllm/third_party/triton_kernels/matmul_ogs.py(352): matmul_ogs", "LIBRARY"),
        ("vllm/compilation/piecewise_backend.py(334): __call__", "LIBRARY"),
        ("vllm/model_executor/parameter.py(122): __torch_function__", "LIBRARY"),
        ("/home/me/torchinductor_me/ys/any.py(232): call", "LIBRARY"),
        (f"/home/me/.cache/vllm/x/inductor/ys/c{'a2' * 25}b.py(232): call", "LIBRARY"),
        ("<built-in method linear of type object at 0x7f>", "INTERPRETER"),
        ("<frozen os>(1): f", "INTERPRETER"),
        ("<string>(1): <module>", "INTERPRETER"),
        ("nn.Module: Linear_3", "INTERPRETER"),
    ],
)
def test_whose_code_a_function_is(name: str, owner: str) -> None:
    assert find_function_owner(name).name == owner


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


def list_captured_lines(path: Path) -> list[str]:
    """The engine's innermost function around each launch between begin and end of a graph's capture."""
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    frames = [e for e in events if e["cat"] == "python_function" and not LIBRARY.match(e["name"])]
    calls = sorted((e for e in events if e["cat"] == "cuda_runtime"), key=lambda e: e["ts"])
    lines: list[str] = []
    is_open = False
    for call in calls:
        if "StreamBeginCapture" in call["name"] or "StreamEndCapture" in call["name"]:
            is_open = "Begin" in call["name"]
        elif is_open and re.search("LaunchKernel|ModuleLaunch|MemcpyAsync|MemsetAsync", call["name"]):
            around = [f for f in frames if holds(f, call["ts"]) and f["tid"] == call["tid"]]
            lines.append(min(around, key=lambda f: f["dur"])["name"])
    return lines


@pytest.mark.parametrize("sample", SERVED)
def test_replayed_kernels_have_the_lines_of_the_engine_in_the_stacks_of_their_capture(sample: str) -> None:
    """In the order of the capture; all of the file's time has a line of the engine or the model."""
    folder = shared(f"samples/serving/{sample}")
    (run,) = load(folder / "execution.json.gz", cache=False)
    rows = kernels(run).sort("t").select("launch", pl.col("line").cast(pl.String), "dur")
    (replay,) = (
        part for part in rows.partition_by("launch", maintain_order=True) if part.height == SERVED[sample]
    )
    assert replay["line"].to_list() == list_captured_lines(folder / "capture_bs_32_rank0.json.gz")
    is_engine = pl.col("line").map_elements(lambda line: bool(ENGINE.match(line)), return_dtype=pl.Boolean)
    of_engine = rows.filter(pl.col("line").is_not_null()).filter(is_engine)
    assert of_engine["dur"].sum() >= 0.99 * rows["dur"].sum()


def test_a_library_answers_where_no_program_is_around(tmp_path: Path) -> None:
    run = written(tmp_path, frame("aiter/tuned_gemm.py(3): gemm", 0, 900), *launch(30, 1, 400))
    assert kernels(run)["line"].cast(pl.String).to_list() == ["aiter/tuned_gemm.py(3): gemm"]


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
    rows = rows.select("label", "t", dur=pl.col("end") - pl.col("t"), thread=1, owner=2)
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
    assert _list_scope_changes(scopes) == ([0, 10, 10, 20], ["a", None, "b", None], 0)
