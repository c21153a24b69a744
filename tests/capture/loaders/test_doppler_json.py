"""Doppler's JSON reports; hand-made, since published ones hold no profile steps."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from tests.conftest import FIXTURES

REPORT = FIXTURES / "doppler" / "report.json"
COMPARE = FIXTURES / "doppler" / "compare.json"


def test_profile_steps() -> None:
    (run,) = load(REPORT)
    rows = run.events.filter(pl.col("kind") == "kernel")
    assert rows.select(pl.col("name").cast(pl.String), "step", "dur", "count").rows() == [
        ("attention", 0, 2_000_001, 2),
        ("matmul:q_proj:L0", 0, 750_000, 1),
        ("attention", 1, 5_100_000, 8),
        ("matmul_rmsnorm_fused:L1.ffn_down", 1, 3_000_000, None),
        ("attention", 2, 1_500_000, None),
        ("attention", 3, 2_200_000, None),
    ]
    assert (run.meta["prefill_gpu_ns"], run.meta["decode_gpu_ns"]) == (2_750_001, 11_800_000)
    assert rows["layer"].to_list() == [None, 0, None, 1, None, None]
    decode = run.events.filter((pl.col("kind") == "step") & (pl.col("phase") == "decode"))
    assert decode.select("tokens", "context").rows() == [(4, 10), (1, 11), (2, 13)]


def test_figures_memory_and_meta() -> None:
    (run,) = load(REPORT)
    assert (run.meta["model"], run.meta["ttft_ms"], run.meta["prompt_tokens"]) == ("toy-1", 12.25, 6)
    figures = dict(run.tables["figures"].rows())
    stated = json.loads(REPORT.read_text())
    assert figures["timing.decodeMs"] == stated["timing"]["decodeMs"]
    assert figures["metrics.gpu.decodeMs.mean"] == 10.1
    memory = run.events.filter(pl.col("kind") == "memory")
    assert memory.select(pl.col("name").cast(pl.String), "bytes").rows() == [
        ("used", 1048576.0),
        ("kvCache.allocatedBytes", 4096.0),
    ]


def test_losses_are_counted() -> None:
    (run,) = load(REPORT)
    assert {n.id: n.count for n in run.log.notices} == {"bad_time": 1, "bad_step": 1}
    assert (run.log.read, run.log.dropped) == (10, 2)


def test_a_report_without_kernel_times_opens_and_says_so() -> None:
    on, off = load(COMPARE)
    assert (on.name, off.name) == ("toy-1", "toy-2")
    assert off.events.is_empty() and off.tables["figures"].height > 5
    assert off.meta["profiled"] is False and off.meta["decode_ms"] == 28.125
    assert "no_kernel_times" in {n.id for n in off.log.notices}


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.write_text('{"suite": 1, "modelId": "m", "metrics": ' + "[" * 100_000)
    with pytest.raises(UnreadableError):
        load(deep)
