"""Recorder: a loop of one's own, timed and read back."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tracetui import Recorder


def read(path: Path) -> Run:
    (run,) = load(path, cache=False)
    return run


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    with Recorder(tmp_path / "prof.jsonl", model="mine", batch=2) as rec:
        for n in range(3):
            with rec.step(context=10 + n, batch=2):
                for layer in range(2):
                    with rec.span("block", layer=layer):
                        with rec.span("attention", layer=layer, lens="gpu", flops=[1, 2]):
                            pass
                        with rec.span("mlp", layer=layer):
                            pass
            rec.counter("loss", 0.5 * n)
        rec.mark("done")
    run = read(tmp_path / "prof.jsonl")
    assert run.name == "mine" and run.meta["batch"] == 2 and run.log.notices == ()
    leaves = run.events.filter(kind="kernel")
    assert leaves.group_by("name", "layer", "lens").len().sort("name", "layer").rows() == [
        ("attention", 0, "gpu", 3), ("attention", 1, "gpu", 3), ("mlp", 0, "wall", 3), ("mlp", 1, "wall", 3),
    ]  # fmt: skip
    assert set(run.events.filter(kind="span")["name"].cast(pl.String)) == {"block"}
    steps = run.events.filter(kind="step")
    assert steps.select("step", "context", "tokens", "batch").rows() == [
        (1, 10, 1, 2),
        (2, 11, 1, 2),
        (3, 12, 1, 2),
    ]
    assert leaves.filter(name="attention")["flops"].to_list() == [21, 21, 23, 23, 25, 25]


def test_spans_lie_within_their_step_and_their_parent(tmp_path: Path) -> None:
    with Recorder(tmp_path / "prof.jsonl") as rec, rec.step(), rec.span("outer"):
        for _ in range(5):
            with rec.span("inner"):
                pass
    rows = read(tmp_path / "prof.jsonl").events.with_columns(end=pl.col("t") + pl.col("dur"))
    (step,), (outer,) = (rows.filter(kind=kind).select("t", "end").rows() for kind in ("step", "span"))
    inner = rows.filter(kind="kernel").sort("t").select("t", "end").rows()
    assert step[0] <= outer[0] <= inner[0][0] and inner[-1][1] <= outer[1] <= step[1]
    assert all(a[1] <= b[0] for a, b in pairwise(inner))


def test_a_prefill_is_step_0_and_what_is_outside_steps_is_kept(tmp_path: Path) -> None:
    with Recorder(tmp_path / "prof.jsonl") as rec:
        with rec.span("load weights"):
            pass
        with rec.step(phase="prefill", tokens=None), rec.span("attention"):
            pass
        for _ in range(2):
            with rec.step(), rec.span("attention"):
                pass
    rows = read(tmp_path / "prof.jsonl").events.filter(kind="kernel").select("name", "step", "phase").rows()
    assert rows == [
        ("load weights", None, None), ("attention", 0, "prefill"), ("attention", 1, "decode"),
        ("attention", 2, "decode"),
    ]  # fmt: skip


def test_the_same_span_may_hold_itself(tmp_path: Path) -> None:
    with Recorder(tmp_path / "prof.jsonl") as rec, rec.step():
        part = rec.span("part")
        with part, part:
            pass
    kinds = read(tmp_path / "prof.jsonl").events.filter(name="part")["kind"].cast(pl.String).to_list()
    assert kinds == ["kernel", "span"]


def test_an_exception_ends_the_run_with_a_word(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), Recorder(tmp_path / "prof.jsonl") as rec:  # noqa: SIM117
        with rec.step(), rec.span("part"):
            raise ValueError("boom")
    run = read(tmp_path / "prof.jsonl")
    assert run.log.notices == ()
    assert "the program ended with ValueError: boom" in run.events["name"].cast(pl.String).to_list()
    assert run.events.filter(kind="kernel").height == 1


def test_without_a_path_it_writes_to_the_stated_file_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACETUI_OUT", str(tmp_path / "stated.jsonl"))
    with Recorder() as rec, rec.step():
        pass
    assert read(tmp_path / "stated.jsonl").events.height == 1
    monkeypatch.delenv("TRACETUI_OUT")
    with Recorder() as rec, rec.step():
        pass


def test_it_costs_a_program_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from tracetui import Recorder; print(*{'polars', 'torch', 'msgspec'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_prefill_after_decoding_is_step_zero_again() -> None:
    with Recorder(os.devnull) as rec:
        numbers = [rec.step(phase=phase).number for phase in ("decode", "decode", "prefill", "decode")]
    assert numbers == [1, 2, 0, 3]
