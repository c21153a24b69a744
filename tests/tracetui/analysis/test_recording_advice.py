"""Advice for the next recording: what was on already is not advised."""

import re
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, shared
from tests.tracetui.runs import made
from tracetui.analysis import recording_advice
from tracetui.analysis.frames.selection import has_option_on
from tracetui.analysis.roofline import describe_unknown_roof
from tracetui.look import Look
from tracetui.verbs.doctor import iter_answer_lines
from tracetui.views import ask, load_view, load_views

OPTIONS = ("record_shapes", "with_stack", "with_modules", "profile_memory", "with_flops")


def stating(**options: object) -> Run:
    header = pl.DataFrame({"key": list(options), "value": [str(v) for v in options.values()]}, strict=False)
    return made(
        [{"kind": "kernel", "name": "gemm", "dur": 5}], {"trace": header}, producer="PyTorch profiler"
    )


@pytest.mark.parametrize(
    ("value", "on"), [(1, True), ("true", True), (0, False), ("False", False), ("", False)]
)
def test_an_option_is_on_where_the_header_says_so(value: object, on: bool) -> None:
    assert has_option_on(stating(record_shapes=value, with_stack=1), "record_shapes") is on
    assert not has_option_on(stating(), "record_shapes")


@pytest.mark.parametrize(
    ("need", "option"),
    [
        ("shape", "record_shapes"),
        ("memory rows", "profile_memory"),
        ("layer", "with_modules"),
        ("path or t", "with_stack"),
    ],
)
def test_what_was_on_is_not_advised_and_something_else_is(need: str, option: str) -> None:
    (off,), (on,) = (recording_advice.suggest_recording(stating(**{option: v}), [need]) for v in (0, 1))
    assert f"{option}=True" in off
    assert f"{option}=True" not in on and on


def test_a_need_that_is_met_twice_is_advised_once() -> None:
    assert (
        len(recording_advice.suggest_recording(stating(), ["shape", "step", "shape", "several ranks"])) == 2
    )


SERVED = ("sglang_qwen3_8b_decode", "vllm_gptoss_decode")
FILES = sorted(path for path in (FIXTURES / "chrome").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_of_every_fixture_nothing_is_advised_that_was_on(path: Path) -> None:
    for run in load(path, cache=False):
        check(run)


@pytest.mark.parametrize("name", SERVED)
def test_of_served_models_nothing_is_advised_that_was_on(name: str) -> None:
    (run,) = load(shared(f"samples/serving/{name}/execution.json.gz"), cache=False)
    assert has_option_on(run, "record_shapes") and has_option_on(run, "with_stack")
    check(run)


def check(run: Run) -> None:
    stated = dict(run.tables["trace"].rows()) if "trace" in run.tables else {}
    on = [option for option in OPTIONS if str(stated.get(option, "0")).lower() not in ("0", "false", "")]
    text = "\n".join(iter_answer_lines(run, [v for v in load_views() if v.run_count == 1]))
    assert not [option for option in on if f"{option}=True" in text]


NEEDS = (
    "t",
    "step",
    "layer",
    "phase",
    "context",
    "tokens",
    "shape",
    "counter rows",
    "memory rows",
    "path or t",
)


@pytest.mark.parametrize(
    ("file", "own", "foreign"),
    [
        ("nsys/two_processes.sqlite", "NVTX", r"torch|prof\.step|record_function|roctx|jax"),
        ("rocprof/kernel_trace.csv", "roctx", r"torch|prof\.step|record_function|NVTX|jax"),
        ("xplane/jax_gpu.xplane.pb", "jax.", r"torch|prof\.step|record_function|roctx|nsys"),
        ("ncu/details.csv", "tracetui record", r"torch|prof\.step|record_function|roctx|jax"),
        ("chrome/torch_decode.json", "torch.profiler", r"roctx|jax|nsys"),
    ],
)
def test_advice_fits_the_program_that_wrote_the_file(file: str, own: str, foreign: str) -> None:
    run = load(FIXTURES / file, cache=False)[0]
    ways = " ".join(recording_advice.suggest_recording(run, NEEDS))
    assert own in ways and not re.search(foreign, ways)


def test_a_trace_of_onnxruntime_is_told_no_option_of_torch() -> None:
    run = load(shared("samples/real_onnxruntime/profile.json.gz"), cache=False)[0]
    ways = " ".join(recording_advice.suggest_recording(run, NEEDS))
    assert "torch" not in ways and "prof.step" not in ways


@pytest.mark.parametrize(("lens", "has_command"), [("gpu", False), ("wall", True)])
def test_measuring_this_machine_is_not_advised_for_a_gpu_of_another(lens: str, has_command: bool) -> None:
    run = made([{"name": "gemm", "dur": 5, "flops": 1e3, "lens": lens}], device="A100X of nobody")
    note = describe_unknown_roof(run)
    assert ("doctor --measure" in note) is has_command and "A100X of nobody" in note


@pytest.mark.parametrize(
    ("name", "context", "option"),
    [
        ("execute_context_0(0)_generation_2(2)", None, "detailed_trace_annotation"),
        ("step[DECODE bs=2]", None, "detailed_annotations"),
        ("step[DECODE bs=2 g_sk=90]", 45, None),
        ("my step", None, None),
    ],
)
def test_steps_without_contexts_say_how_their_server_states_them(
    name: str, context: int | None, option: str | None
) -> None:
    step = {"kind": "step", "name": name, "t": 0, "dur": 9, "step": 1, "batch": 2, "context": context}
    run = made([step, {"name": "gemm", "t": 0, "dur": 5, "step": 1, "lens": "gpu"}])
    notes = [note for note in ask(load_view("steps"), [run], Look()).notes if "contexts" in note]
    assert [option in note for note in notes] == ([] if option is None else [True])
