"""`--detail`: what of a program has rows, and the few steps without rows that tell what rows cost."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import polars as pl
import pytest

import capture.record
from capture.load_runs import load
from capture.native.schema import UNWATCHED_NAME
from capture.record.call_stack import FIRST_TURN, TURN_STEPS, StepDetail
from capture.run import Run
from tests.tracetui.in_process import tracetui
from tracetui.analysis.time.step_sampling import compute_coverage, estimate_unwatched_step
from tracetui.look import Look

pytest.importorskip("torch")

FOLDER = Path(__file__).parent
SITE = Path(capture.record.__file__).parent / "site"
STEPS = 160
PROGRAM = f"""
import sys, time
sys.path.insert(0, {str(FOLDER)!r})
import tiny, torch
model = tiny.Tiny()
with torch.inference_mode():
    for number in range({STEPS}):
        model(input_ids=torch.ones(1, 1 if number else 8, dtype=torch.long))
        time.sleep(0.015)  # so that rows of all modules are affordable
"""
OUTER = {"embed", "lm_head", "sampling and host"}
NAMES = {
    "steps": {"Tiny", "sampling and host"},
    "layers": {"layer", "Tiny (own work)", *OUTER},
    "full": {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "norm", "mlp",
        "self_attn (own work)", "layer (own work)", "Tiny (own work)", *OUTER,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("detail")
    runs = {}
    for detail in NAMES:
        out = folder / f"{detail}.jsonl"
        env = {"TRACETUI_OUT": str(out), "TRACETUI_DETAIL": detail, "PYTHONPATH": str(SITE)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=os.environ | env, capture_output=True, text=True, check=True
        )
        assert not done.stdout + done.stderr
        (runs[detail],) = load(out, cache=False)
    return runs


@pytest.mark.parametrize("detail", NAMES)
def test_rows_are_those_of_the_detail_and_steps_the_same(recordings: dict[str, Run], detail: str) -> None:
    events = recordings[detail].events
    rows = events.filter(kind="kernel", lens="wall")
    assert set(rows["name"].cast(pl.String)) == NAMES[detail]
    steps = events.filter(kind="step").sort("step")
    facts = steps.select(pl.col("phase").cast(pl.String), "tokens", "context").rows()
    assert facts == [("prefill", 1, 8), *(("decode", 1, 8 + n) for n in range(1, STEPS))]
    assert recordings[detail].meta.get("detail") == (None if detail == "full" else detail)
    assert events.filter(lens="host", kind="kernel").is_empty() or detail == "full", "no profiler window"


@pytest.mark.parametrize("detail", ["full", "layers"])
def test_one_step_in_sixteen_has_no_rows_of_modules(recordings: dict[str, Run], detail: str) -> None:
    """From the 32nd on; the rows of the others stand for it."""
    run = recordings[detail]
    unwatched = run.events.filter(name=UNWATCHED_NAME)
    assert unwatched["step"].to_list() == list(range(39, STEPS, 16))
    modules = run.events.filter(pl.col("name") == "embed")["step"].to_list()
    assert set(modules) == set(range(STEPS)) - set(unwatched["step"])
    coverage = compute_coverage(run, Look(lens="wall"))
    assert coverage is not None
    assert set(coverage.select("phase", "sampled", "steps").rows()) == {
        ("decode", STEPS - 1 - 8, STEPS - 1), ("prefill", 1, 1),
    }  # fmt: skip
    estimate = estimate_unwatched_step(run)
    assert estimate is not None and estimate.low_ns <= estimate.unwatched_ns <= estimate.high_ns


@pytest.mark.parametrize(
    ("name", "rows", "row_us", "duration_ms", "share"),
    [
        ("full", 91, 1.7, 20, 1.0), ("full", 91, 1.7, 2, 0.129), ("full", 91, 1.7, 0.2, 0.0129),
        ("full", 91, 4.0, 2, 0.055), ("layers", 10, 2.5, 2, 0.24),
    ],
)  # fmt: skip
def test_rows_of_short_steps_take_their_share_of_the_time(
    name: str, rows: int, row_us: float, duration_ms: float, share: float
) -> None:
    """Whatever a row costs, within noise of 5 %; also if each second or third step is of another kind."""
    detail, watched, noise = StepDetail(name, set()), [], Random(1)
    for _ in range(8000):
        detail.begin_step()
        watched.append(not detail.is_unwatched)
        cost_ms = rows * row_us / 1e3 * watched[-1]
        detail.note_step(round(1e6 * (duration_ms * noise.gauss(1, 0.05) + cost_ms)), rows)
    assert all(watched[:FIRST_TURN])
    share += share * rows * row_us / 1e3 / duration_ms  # of the time of watched steps
    watched = watched[2000:]
    for start, kinds in ((0, 1), (0, 2), (1, 2), (0, 3)):
        steps = watched[start::kinds]
        turns = len(steps) / TURN_STEPS[0]
        assert 0.85 * share - turns / len(steps) <= sum(steps) / len(steps) <= 1.15 * share + 0.01


def test_steps_alone_are_all_alike(recordings: dict[str, Run]) -> None:
    assert recordings["steps"].events.filter(name=UNWATCHED_NAME).is_empty()
    assert estimate_unwatched_step(recordings["steps"]) is None


def test_the_command_passes_the_detail_on_and_the_summary_says_the_cost(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    done = tracetui("record", "--detail", "layers", "-o", out, "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "unwatched" in done.stderr and "a step (" in done.stderr and "detail" in done.stderr
    (run,) = load(out, cache=False)
    assert run.meta["detail"] == "layers"


def test_a_detail_without_a_program_is_refused(tmp_path: Path) -> None:
    done = tracetui("record", "--detail", "steps", "-o", tmp_path / "prof.jsonl")
    assert done.returncode == 2 and "--detail is for a program" in done.stderr
