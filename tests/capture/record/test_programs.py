"""Programs of all kinds, alone and recorded: the same output, exit code and files; true steps and tokens."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from tests.capture.record.table import CLOCK, PROGRAMS, TABLE, counted, is_about, run, without_moments
from tracetui.analysis.time.step_table import find_profiled_steps
from tracetui.look import Look
from tracetui.views import ask, load_view

pytest.importorskip("torch")

# the others are of the whole table: pytest -m table
ALWAYS = ("decode_paced", "threads", "reads_and_writes")


def marked(name: str) -> object:
    return name if name in ALWAYS else pytest.param(name, marks=[pytest.mark.table, pytest.mark.timeout(600)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [marked(name) for name in TABLE])
def test_a_recorded_program_does_what_it_does_alone(name: str, tmp_path: Path) -> None:
    alone, recorded = run(name, tmp_path, recorded=False), run(name, tmp_path, recorded=True)
    assert (recorded.code, recorded.out, recorded.files) == (alone.code, alone.out, alone.files), recorded.err
    made, (steps, tokens, seconds) = TABLE[name], counted(tmp_path / "prof.jsonl")
    assert alone.code == made.code
    assert is_about(made.steps, steps), steps
    assert is_about(made.tokens, tokens), tokens
    clock = tmp_path / "recorded" / CLOCK
    assert is_about(float(clock.read_text()) if clock.exists() else None, seconds), seconds
    output = [
        line for line in without_moments(recorded.err).splitlines() if not line.startswith("tracetui: ")
    ]
    assert output == without_moments(alone.err).splitlines()


def test_the_layers_of_an_encoder_that_is_called_first_are_apart(tmp_path: Path) -> None:
    assert run("encoder_decoder", tmp_path, recorded=True).code == 0
    (recording,) = load(tmp_path / "prof.jsonl", cache=False)
    table = ask(load_view("layers"), [recording], Look(lens="wall")).rows
    layers = [("encoder", 0), ("encoder", 1), ("decoder", 0), ("decoder", 1), ("decoder", 2)]
    assert table.select("stack", "layer").unique(maintain_order=True).rows() == layers


def test_a_compiled_model_and_its_modules_have_the_names_that_they_have_alone(tmp_path: Path) -> None:
    assert run("compiled", tmp_path, recorded=True).code == 0
    (recording,) = load(tmp_path / "prof.jsonl", cache=False)
    assert recording.meta["model"] == "Decoder" and recording.meta["compiled"]
    texts = (recording.events[column].cast(str) for column in ("name", "path"))
    assert not any(text.str.contains("_orig_mod").any() for text in texts)


def test_an_encoder_that_is_called_alone_is_in_the_step_of_its_own_text(tmp_path: Path) -> None:
    assert run("encoder_decoder", tmp_path, recorded=True).code == 0
    (recording,) = load(tmp_path / "prof.jsonl", cache=False)
    steps = recording.events.filter(kind="step").sort("t")
    assert steps["phase"].cast(str).to_list() == [*["prefill"] + ["decode"] * 7] * 2
    encoder = recording.events.filter(pl.col("path").cast(str).str.starts_with("encoder"), lens="wall")
    assert set(encoder["step"]) == {steps["step"][0], steps["step"][8]}
    begun = steps.select("step", begin="t", end=pl.col("t") + pl.col("dur"))
    inside = encoder.join(begun, on="step").select(pl.col("t").is_between("begin", "end"))
    assert inside.to_series().all()


def test_steps_under_the_profiler_of_the_program_are_those_that_it_saw(tmp_path: Path) -> None:
    """Counted by that profiler itself, which prints the calls of an op of which a step has one."""
    result = run("profiles_itself", tmp_path, recorded=True)
    (recording,) = load(tmp_path / "prof.jsonl", cache=False)
    profiled = find_profiled_steps(recording).filter("is_inside")["step"]
    assert profiled.len() == sum(json.loads(result.out)) == 6
    assert profiled.to_list() == [8, 9, 10, 13, 14, 15]
    marks = ask(load_view("steps"), [recording], Look()).rows.filter(mark="profiled")["step"]
    assert set(profiled) < set(marks)  # and those in which it started


def test_every_program_is_in_the_table() -> None:
    assert {path.stem for path in PROGRAMS.glob("[!_]*.py")} == set(TABLE) and len(TABLE) >= 40
