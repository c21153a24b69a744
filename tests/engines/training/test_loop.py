"""What a course writes, read back as any other recording."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from capture.load_runs import load
from capture.native.emit import Emitter
from capture.record.profiler_windows import LeafWork as Piece
from capture.record.profiler_windows import ProfilerWindow
from engines.host.engine_commands import Commands
from engines.host.heartbeat import Heartbeat
from engines.training.model_sizes import ModelSize
from engines.training.trainer import GraphNode, Maths, Trainer
from engines.training.training_loop import OpOwners, TrainingLoop
from engines.training.training_plan import plan_training_step
from tests.engines.training.test_trainer import TINY

CPU = torch.device("cpu")
MIDDLE = ModelSize("middle", 64, 256, 3, 2, vocab=64, batch=2, context=64)
PHASES = ("forward", "backward", "optimizer")
NAP_S = 0.05


class Sleepy(torch.autograd.Function):
    """Takes its time on the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        time.sleep(NAP_S)
        return grad


class Drowsy(Trainer):
    """Its second layer's activation sleeps on the way back."""

    def _iter_layer(self, layer: int) -> Iterator[GraphNode]:
        for node in super()._iter_layer(layer):
            late = layer == 1 and node.writes == "act"
            yield node._replace(maths=sleepy(node.maths)) if late else node


def sleepy(maths: Maths) -> Maths:
    return lambda gate, up: Sleepy.apply(maths(gate, up))


def course(path: Path, trainer: Trainer, optimizer: str = "cs336") -> tuple[TrainingLoop, Emitter]:
    emitter = Emitter(path)
    emitter.run("tiny", {"model": "tiny"})
    rows = plan_training_step(trainer.size, optimizer)
    return TrainingLoop(trainer, rows, emitter, Heartbeat(emitter), Commands()), emitter


def recorded(path: Path, steps: int, trainer: Trainer | None = None, mode: str = "windows") -> pl.DataFrame:
    tried, emitter = course(path, trainer or Trainer(TINY, CPU))
    tried.set_mode(mode)
    tried.warm_up(2)
    tried.run(steps)
    emitter.end()
    (run,) = load(path, cache=False)
    return run.events


def test_steps_phases_and_rows(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 3)
    steps = events.filter(kind="step")
    assert steps["step"].to_list() == [1, 2, 3]
    assert steps.select("tokens", "context", "batch").unique().rows() == [(14, 7, 2)]
    spans = events.filter(kind="span")
    assert spans.select("step", "phase").rows() == [(step, phase) for step in (1, 2, 3) for phase in PHASES]
    rows = plan_training_step(TINY, "cs336")
    for step in (1, 2, 3):
        own = events.filter(kind="kernel", step=step)
        named = {phase: set(own.filter(phase=phase)["name"].cast(str)) for phase in PHASES}
        assert named["forward"] == {row.name for row in rows.forward}
        assert named["backward"] == {row.name for row in rows.backward} | {"grad_accum"}
        assert own.filter(phase="backward").height == len(rows.backward) + 1
        assert own.filter(phase="optimizer").height == len(rows.optimizer)


def test_forward_and_optimizer_rows_add_up_and_backward_rows_do_not_pass_their_phase(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 2)
    for step in (1, 2):
        for phase in PHASES:
            own = events.filter(step=step, phase=phase)
            span = own.filter(kind="span")["dur"].item()
            total = own.filter(kind="kernel")["dur"].sum()
            assert total <= span if phase == "backward" else total == span
        wall = events.filter(kind="step", step=step)["dur"].item()
        assert events.filter(kind="span", step=step)["dur"].sum() <= wall


@pytest.mark.parametrize("mixed", [False, True])
def test_no_backward_work_is_left_over(tmp_path: Path, mixed: bool) -> None:
    trainer = Trainer(replace(MIDDLE, is_mixed_precision=mixed), CPU)
    work = recorded(tmp_path / "prof.jsonl", 1, trainer).filter(kind="kernel", phase="backward")
    planned = [(row.name, row.layer) for row in plan_training_step(MIDDLE, "cs336").backward]
    result = work.select(pl.col("name").cast(str), "layer").rows()
    assert sorted(result, key=str) == sorted([*planned, ("grad_accum", None)], key=str)


def test_backward_work_is_told_by_its_sequence_number(tmp_path: Path) -> None:
    """What sleeps on the way back is found under the op whose forward pass it belongs to."""
    events = recorded(tmp_path / "prof.jsonl", 3, Drowsy(TINY, CPU)).filter(kind="kernel", phase="backward")
    shortest = events.group_by(pl.col("name").cast(str), "layer").agg(pl.col("dur").min())
    slow = shortest.filter(pl.col("dur") >= NAP_S * 1e9)
    assert slow.select("name", "layer").rows() == [("swiglu", 1)]


def test_every_row_stands_in_its_module(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 1).filter(kind="kernel", layer=1)
    actual = dict(events.filter(phase="backward").select(pl.col("name", "path").cast(str)).rows())
    assert actual["q_proj"] == "backward / layers.1 / attn"
    assert actual["w3"] == "backward / layers.1 / ffn"
    assert actual["ln2"] == "backward / layers.1"
    updates = events.filter(phase="optimizer")["path"].cast(str).to_list()
    assert "optimizer / layers.1 / attn / q_proj" in updates and len(updates) == 9


def test_categories_answer_where_attention_spends_its_time(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 1).filter(kind="kernel", phase="forward", layer=1)
    core = events.filter(op="attn.core")
    assert core["category"].cast(str).to_list() == ["matmul", "elementwise", *["softmax"] * 4, "matmul"]
    pairs = 2 * 2 * 7 * 7
    assert core["flops"].to_list() == [
        2 * pairs * 8, 2 * pairs, pairs, 2 * pairs, pairs, pairs, 2 * pairs * 8,
    ]  # fmt: skip


def test_without_the_profiler_the_backward_pass_is_one_span(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 1, mode="spans")
    assert events.filter(kind="span", phase="backward").height == 1
    assert events.filter(kind="kernel", phase="backward").is_empty()
    assert events.filter(kind="kernel", phase="forward").height == len(
        plan_training_step(TINY, "cs336").forward
    )


def test_the_last_step_of_the_warm_up_is_timed_without_the_profiler(tmp_path: Path) -> None:
    tried, emitter = course(tmp_path / "prof.jsonl", Trainer(TINY, CPU))
    began = time.perf_counter_ns()
    took = tried.warm_up(3)
    assert list(took) == list(PHASES) and 0 < sum(took.values()) < time.perf_counter_ns() - began
    assert tried.warm_up(0) == {}
    emitter.end()
    assert "columns" not in (tmp_path / "prof.jsonl").read_text()


def test_loss_is_a_counter(tmp_path: Path) -> None:
    losses = recorded(tmp_path / "prof.jsonl", 3).filter(kind="counter", name="loss")["value"].to_list()
    assert len(losses) == 3
    assert losses[0] > losses[2] > 0


def test_orders_are_obeyed_between_steps(tmp_path: Path) -> None:
    tried, emitter = course(tmp_path / "prof.jsonl", Trainer(TINY, CPU))
    for line in ('{"do":"prompt","text":"hi"}', '{"do":"mode","mode":"spans"}', '{"do":"mode","mode":"x"}'):
        tried._commands.accept_line(line)
    tried._commands.accept_line('{"do":"quit"}')
    tried.run(0)
    emitter.end()
    text = (tmp_path / "prof.jsonl").read_text()
    for output in (
        "training accepts no prompts",
        "no step is profiled",
        "unknown capture mode x",
        '"step":1',
    ):
        assert output in text
    assert '"step":2' not in text


def piece(name: str, owner: str | None, duration: int, phase: str | None = None) -> Piece:
    return Piece(name, 10, duration, owner, "aten::mm", phase, "gpu", "gpu 0 stream 7")


WINDOW = ProfilerWindow([
    piece("sgemm_128", "forward / layers.1 / attn / q_proj", 50),
    piece("splitk_reduce", "forward / layers.1 / attn / q_proj", 5),
    piece("sgemm_dgrad", "forward / layers.1 / attn / q_proj", 90, "backward"),
    piece("fill", "backward", 1),
    piece("add", "gradients", 3, "backward"),
    piece("lost", None, 4, "backward"),
    piece("multi_tensor", "optimizer", 20, "optimizer"),
    piece("memset", None, 2),
])  # fmt: skip


def test_kernels_of_a_device_stand_under_their_ops() -> None:
    rows = plan_training_step(TINY, "fused")
    actual = {work.row.name: work for work in OpOwners(rows).collect_kernels(WINDOW)}
    assert {name: work.phase for name, work in actual.items()} == {
        "sgemm_128": "forward", "splitk_reduce": "forward", "sgemm_dgrad": "backward", "fill": "backward",
        "add": "backward", "lost": "backward", "multi_tensor": "optimizer", "memset": None,
    }  # fmt: skip
    gemm, dgrad = actual["sgemm_128"].row, actual["sgemm_dgrad"].row
    assert (gemm.op, gemm.layer, gemm.category, gemm.lens) == ("attn.q", 1, "matmul", "gpu")
    assert gemm.path == "forward / layers.1 / attn / q_proj"
    assert dgrad.path == "backward / layers.1 / attn / q_proj"
    product = 2 * TINY.tokens * TINY.width**2
    assert (gemm.flops[0], actual["splitk_reduce"].row.flops[0], dgrad.flops[0]) == (product, 0, 2 * product)
    assert actual["fill"].row.op == "loss" and actual["multi_tensor"].row.op == "optimizer"
    assert [actual[name].row.op for name in ("add", "lost", "memset")] == [
        "grad_accum", "unattributed", "unattributed",
    ]  # fmt: skip
    assert "category" not in actual["lost"].row.build_plan_entry(1), "its name is left to tell"


class Shown:
    """A profiler that has seen a GPU."""

    overhead_ns = 7

    def start(self) -> None: ...

    def discard(self) -> None: ...

    def stop(self) -> ProfilerWindow:
        return replace(WINDOW, problems={"launches without a kernel": 2})


def test_a_device_is_launched_waited_for_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    tried, emitter = course(tmp_path / "prof.jsonl", Trainer(TINY, CPU, optimizer="fused"), "fused")
    tried._is_on_cpu, tried._profiler = False, Shown()
    tried.run(2)
    emitter.end()
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    kernels = run.events.filter(kind="kernel", step=2)
    assert kernels.filter(lens="gpu")["name"].cast(str).sort().to_list() == sorted(
        row.name for row in WINDOW.rows
    )
    for phase in PHASES:
        clock = kernels.filter((pl.col("phase") == phase) & pl.col("lens").is_in(["host", "wait"]))
        assert clock["name"].cast(str).to_list() == ["launch", "device_wait"]
        assert clock["dur"].sum() == run.events.filter(kind="span", step=2, phase=phase)["dur"].item()
    notes = run.events.filter(kind="mark")["name"].cast(str)
    assert notes.str.contains("incomplete profiler window: 2 launches").sum() == 2
