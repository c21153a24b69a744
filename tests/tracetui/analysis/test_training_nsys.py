"""A training step as Nsight Systems exports it, against what the recorder says of the very same step."""

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from capture.load_runs import load
from capture.native.schema import PATH_SEPARATOR
from capture.record.profiler_windows import ANNOTATION_PREFIX, ProfilerEvent, extract_leaf_work, read_kineto
from capture.run import Run
from engines.training.model_sizes import ModelSize
from engines.training.trainer import Trainer
from engines.training.training_loop import BACKWARD_ANNOTATION, OpOwners, annotate_ops
from engines.training.training_plan import GRADIENTS, plan_training_step
from tests.capture.loaders import _nsys_training as nsys
from tests.tracetui.analysis.test_training import answers
from tracetui.analysis.training import PARTS
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_view

SIZE = ModelSize("small", 32, 64, 2, 2, vocab=40, batch=2, context=8)
ROWS = plan_training_step(SIZE, "cs336")
GRADIENT = ("backward", f"backward / {GRADIENTS.name}")
FILL = "void at::native::elementwise_kernel<128, 2, aten::fill_>(int)"  # of the first gradient
PASSES = ("forward", "backward", "optimizer")


@pytest.fixture(scope="module")
def step() -> list[ProfilerEvent]:
    """The ops of a step that torch ran, each pass within a range of its own, all within one of the step."""
    trainer = Trainer(SIZE, torch.device("cpu"))
    scopes = {
        "forward": [row.scope for row in ROWS.forward],
        "backward": [BACKWARD_ANNOTATION],
        "optimizer": [row.scope for row in ROWS.optimizer],
    }
    ops = {"forward": trainer.forward, "backward": (trainer.backward,), "optimizer": trainer.optimizer}
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as window:
        for phase in PASSES:
            for op in annotate_ops(ops[phase], scopes[phase]):
                op()
    seen = nsys.split(read_kineto(window.profiler.kineto_results.events(), 0))
    first, last = min(e.start for e in seen), max(e.end for e in seen)
    step = ProfilerEvent(f"{ANNOTATION_PREFIX}train_step", first - 10, last + 10, thread=nsys.MAIN)
    return [step, *sorted(seen, key=lambda e: (e.start, -e.end))]


def as_recorded(
    step: list[ProfilerEvent], launched: list[nsys.Launched]
) -> dict[tuple[str, str], Counter[str]]:
    """phase, scope of a row → kernel → its time, by the recorder, which asks torch's own profiler."""
    numbers = {id(k.op): k.correlation for k in launched}
    ops = [e._replace(correlation=numbers.get(id(e), 0)) for e in step[1:]]
    device = [
        ProfilerEvent(k.name, k.start, k.start + k.duration, k.correlation, k.correlation, "kernel", 0, 7)
        for k in launched
    ]
    told: dict[tuple[str, str], Counter[str]] = {}
    for work in OpOwners(ROWS).collect_kernels(extract_leaf_work([*ops, *device])):
        assert work.phase is not None
        told.setdefault((work.phase, work.row.path), Counter())[work.row.name] += work.duration
    return told


def imported(step: list[ProfilerEvent], folder: Path, schema: str = nsys.SCHEMAS[0]) -> Run:
    (run,) = load(nsys.export(folder / "step.sqlite", step, nsys.kernels(step), schema), cache=False)
    return run


@pytest.mark.parametrize("schema", nsys.SCHEMAS)
def test_each_kernel_stands_where_the_recorder_puts_it(
    step: list[ProfilerEvent], tmp_path: Path, schema: str
) -> None:
    run = imported(step, tmp_path, schema)
    got: dict[tuple[str, str], Counter[str]] = {}
    labels = pl.col("phase", "path", "name").cast(pl.String)
    for phase, path, name, dur in run.events.filter(kind="kernel").select(labels, "dur").iter_rows():
        scopes = [s for s in path.split(PATH_SEPARATOR) if not re.search(r"::|Backward\d$", s)]
        assert scopes[0] == "train_step"
        got.setdefault((phase, PATH_SEPARATOR.join(scopes[1:])), Counter())[name] += dur
    expected = as_recorded(step, nsys.kernels(step))
    first = expected["backward", "backward / loss"].pop(FILL)
    assert got.pop(("backward", "backward")) == expected.pop(GRADIENT, Counter()) + Counter({FILL: first})
    assert got == expected
    assert {path for phase, path in expected if phase == "backward"} > {
        "backward / layers.1 / attn / q_proj",
        "backward / layers.0 / ffn / swiglu",
        "backward / lm_head / lm_head",
    }


def test_the_answers_of_a_real_step(step: list[ProfilerEvent], tmp_path: Path) -> None:
    actual = answers(imported(step, tmp_path))
    launched = nsys.kernels(step)
    backward = [k for k in launched if k.op.thread == nsys.AUTOGRAD]
    shares = {key[2]: row["share"] for key, row in actual.items() if key[0] == "owners"}
    assert shares["modules"] + shares["loss"] + shares.get("grad_accum", 0) > 0.95
    assert shares.get("unattributed", 0) < 0.05
    assert sum(shares.values()) == pytest.approx(1)
    top = actual["top", "backward", nsys.GEMM]
    assert top["count"] == sum(k.name == nsys.GEMM for k in backward)
    products = sum(k.duration for k in launched if k.name == nsys.GEMM)
    assert actual["matmul", "step", "matmul"]["total_ns"] == products
    softmax = actual["attention", "forward", "softmax"]["count"]
    assert softmax == sum(
        k.op.thread == nsys.MAIN and "softmax" in owner(step, k.op) and "forward" in owner(step, k.op)
        for k in launched
    )
    assert {key[0] for key in actual} == set(PARTS)
    assert {actual["time", phase, "wall"]["count"] for phase in (*PASSES, "step")} == {1}


def owner(step: list[ProfilerEvent], op: ProfilerEvent) -> str:
    """The annotation around an op, found by looking at all of them."""
    around = [
        e for e in step if e.name.startswith(ANNOTATION_PREFIX) and e.start <= op.start and op.end <= e.end
    ]
    return max(around, key=lambda e: e.start).name


def test_the_report_says_whose_work_the_backward_pass_is(step: list[ProfilerEvent], tmp_path: Path) -> None:
    text = format_report(load_view("training"), [imported(step, tmp_path)], Look(), "table", width=120)
    assert "backward ops attributed to the module of the forward op with their sequence number" in text
    assert "modules" in text and "softmax / matmul" in text
