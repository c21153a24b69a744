"""FLOPs and bytes in a profile of a real vLLM on a processor, against the shapes that its file has."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from tests.real import PROGRAMS, find_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LENGTHS, TOKENS = (96, 160), 8  # of the prompts in profiled.py
WIDTH = 2  # bytes of a number in bf16
PRODUCTS = ("_C::onednn_mm", "_C::weight_packed_linear")
EXPERTS = "_C::cpu_fused_moe"
ATTENTION = "_C::cpu_attention_with_kv_cache"


@pytest.fixture(scope="module", params=["llama", "qwen3_moe"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the profile of a model of this kind."""
    folder = tmp_path_factory.mktemp(request.param)
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    command = [find_program("vllm"), str(PROGRAMS / "profiled.py"), str(folder), request.param]
    subprocess.run(command, env={**os.environ, **quiet}, check=True)
    return folder


def find_trace(folder: Path) -> Path:
    (trace,) = (folder / "traces").glob("*.json.gz")
    return trace


def count_products(trace: Path) -> tuple[Counter[str], Counter[str]]:
    """Count FLOPs and bytes of products from their operands; of experts, those of all that may be touched."""
    flops, moved = Counter[str](), Counter[str]()
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        name, dims = event.get("name"), event.get("args", {}).get("Input Dims")
        if name in PRODUCTS:
            (m, n), (_, k) = dims[:2]
            flops[name] += 2 * m * n * k
            moved[name] += WIDTH * (m * n + m * k + n * k)
        elif name == EXPERTS:
            (tokens, hidden), (experts, _, _), (_, _, inner) = dims[1:4]
            chosen = prod(dims[7])
            flops[name] += 2 * chosen * 3 * hidden * inner
            touched = experts * (1 - (1 - chosen / tokens / experts) ** tokens)
            read_and_written = 2 * tokens * hidden + chosen * (2 * inner + inner)
            moved[name] += round(WIDTH * (touched * 3 * hidden * inner + read_and_written))
    return flops, moved


def sum_work(trace: Path) -> dict[str, dict[str, Any]]:
    (run,) = load(trace, cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel").with_columns(pl.col("name").cast(pl.String))
    sums = rows.group_by("name").agg(pl.col("flops", "bytes", "dur").sum())
    return {row["name"]: row for row in sums.iter_rows(named=True)}


def test_products_have_the_work_of_their_shapes(folder: Path) -> None:
    flops, moved = count_products(find_trace(folder))
    sums = sum_work(find_trace(folder))
    assert "_C::onednn_mm" in flops and (EXPERTS in flops) == ("moe" in folder.name)
    assert {name: sums[name]["flops"] for name in flops} == dict(flops)
    assert {name: sums[name]["bytes"] for name in moved} == pytest.approx(dict(moved), rel=1e-6)


def test_attention_has_the_work_of_the_tokens(folder: Path) -> None:
    """The first pass has the prompts; each later one adds a token to both."""
    config = json.loads((folder / "model" / "config.json").read_text())
    heads, kv_heads, size = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    decoded = [length + n for length in LENGTHS for n in range(1, TOKENS)]
    pairs = sum(length**2 / 2 for length in LENGTHS) + sum(decoded)
    queries = sum(LENGTHS) + len(decoded)
    numbers = 2 * queries * heads * size + 2 * (sum(LENGTHS) + sum(decoded)) * kv_heads * size
    work = sum_work(find_trace(folder))[ATTENTION]
    assert work["flops"] == config["num_hidden_layers"] * 4 * heads * size * pairs
    assert work["bytes"] == config["num_hidden_layers"] * WIDTH * numbers


def test_no_row_is_faster_than_the_machine(folder: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "tracetui"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([*run, "doctor", "--measure"], env=environment, check=True, capture_output=True)
    (roof,) = json.loads((tmp_path / "tracetui" / "roofs.json").read_text())["roofs"]
    flops, moved = count_products(find_trace(folder))
    sums = sum_work(find_trace(folder))
    for name in flops:
        seconds = sums[name]["dur"] / 1e9
        assert flops[name] / seconds < 1.05 * roof["flop_per_s"]["bf16"]
        assert moved[name] / seconds < 1.05 * roof["read_high"]
    command = [
        *run,
        "report",
        "kernels",
        str(find_trace(folder)),
        "--roof",
        roof["device"],
        "--format",
        "json",
    ]
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    shares = {row["name"]: row["roof_share"] for row in answer["rows"]}
    assert all(share is None or share < 1.05 for share in shares.values())
    assert all(0 < shares[name] < 1.05 for name in flops)
