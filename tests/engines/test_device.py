"""The accelerator's runner, its device played by fakes: what is launched, timed, and said."""

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch

from capture.record.profiler_windows import LeafWork as Kernel
from capture.record.profiler_windows import ProfilerWindow
from engines.host import op_runners as device_module
from engines.host.op_runners import DeviceRunner, Op, OpTimestamps, PlanWriter
from engines.plan import PlannedOp
from tests.engines import tiny


class FakeEvent:
    """Its clock is the number of ops that have run, in milliseconds."""

    ran: ClassVar[list[str]] = []

    def __init__(self, device: str, enable_timing: bool) -> None:
        self.at = 0

    def record(self) -> None:
        self.at = len(self.ran)

    def elapsed_time(self, other: "FakeEvent") -> float:
        return float(other.at - self.at)


class FakeProfiler:
    overhead_ns = 1000

    def __init__(self, *, gpu: bool) -> None:
        pass

    def start(self) -> None:
        FakeEvent.ran.append("start")

    def stop(self) -> ProfilerWindow:
        return ProfilerWindow(
            [Kernel("gemv_k", 100, 5, "L3.attn.qkv", "aten::mm", None, "gpu", "gpu 0"),
             Kernel("fill", 90, 2, None, "", None, "gpu", "gpu 0")],
            {"launches without a kernel": 2},
        )  # fmt: skip


class Paper:
    """An emitter that keeps what it is told."""

    def __init__(self) -> None:
        self.ops: dict[int, dict[str, Any]] = {}
        self.lines: list[tuple[list[int], list[int], list[int]]] = []
        self.marks: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.cost_ns = 0

    def event(self, kind: str, name: str, **columns: Any) -> None:
        self.events.append({"kind": kind, **columns})

    def plan(self, ops: Any) -> None:
        self.ops |= {op["id"]: op for op in ops}

    def columns(self, ops: list[int], starts: list[int], durations: list[int], **facts: Any) -> None:
        self.lines.append((ops, starts, durations))

    def mark(self, text: str, path: str) -> None:
        self.marks.append(text)


def _planned() -> tuple[PlannedOp, ...]:
    spec = tiny.SPECS["gemma3"]
    return tiny.decoder(spec, tiny.weights(spec)).plan_step()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> DeviceRunner:
    FakeEvent.ran.clear()
    monkeypatch.setattr(torch, "Event", FakeEvent)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(device_module, "WindowProfiler", FakeProfiler)
    rows = _planned()

    def named(name: str) -> Op:
        return lambda: FakeEvent.ran.append(name)

    return DeviceRunner([named(r.name) for r in rows], rows, torch.device("cuda"), "continuous")


def test_layers_are_spans_between_events(runner: DeviceRunner) -> None:
    paper = Paper()
    runner.set_mode("spans")
    ticks = OpTimestamps(0)
    runner.run(ticks)
    runner.write(paper, PlanWriter(paper).assign_ids, step=1)  # type: ignore[arg-type]
    ((ops, starts, durations),) = paper.lines
    names = [(paper.ops[i]["name"], paper.ops[i].get("layer"), paper.ops[i]["kind"]) for i in ops]
    assert names == [
        ("embed", None, "span"), *(("layer", i, "span") for i in range(7)), ("head", None, "span"),
    ]  # fmt: skip
    assert durations == [1_000_000, *[15_000_000] * 7, 3_000_000]  # an op is a millisecond here
    assert [b - a for a, b in pairwise(starts)] == durations[:-1]
    assert {paper.ops[i]["lens"] for i in ops} == {"gpu"}
    assert "start" not in FakeEvent.ran


def test_kernels_of_a_window_belong_to_the_row_that_launched_them(runner: DeviceRunner) -> None:
    paper = Paper()
    numbers = PlanWriter(paper).assign_ids  # type: ignore[arg-type]
    for _ in range(2):  # the first step is a warm-up
        runner.run(OpTimestamps(0))
        runner.write(paper, numbers, step=1)  # type: ignore[arg-type]
    assert FakeEvent.ran.count("start") == 1
    ops, starts, durations = paper.lines[-1]
    assert (starts, durations) == ([90, 100], [2, 5])
    fill, gemv = (paper.ops[i] for i in ops)
    assert (fill["name"], fill.get("layer"), fill["kind"]) == ("fill", None, "kernel")
    assert (gemv["name"], gemv["layer"], gemv["op"], gemv["lens"]) == ("gemv_k", 3, "attn.qkv", "gpu")
    assert paper.marks == ["incomplete profiler window: 2 launches without a kernel"]
    (actual,) = ({k: v for k, v in event.items() if k != "t"} for event in paper.events)
    assert actual == {"kind": "span", "op": "window", "lens": "gpu", "step": 1}
    assert paper.cost_ns == FakeProfiler.overhead_ns


def test_a_window_without_kernels_says_so_and_stands_for_nothing(
    runner: DeviceRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = Paper()
    monkeypatch.setattr(FakeProfiler, "stop", lambda self: ProfilerWindow([]))
    for _ in range(2):  # the first step is a warm-up
        runner.run(OpTimestamps(0))
        runner.write(paper, PlanWriter(paper).assign_ids, step=1)  # type: ignore[arg-type]
    assert paper.marks == ["a profiler window has no kernels of the device"]
    assert paper.events == []


def test_where_the_profiler_shows_nothing_no_window_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "Event", FakeEvent)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(device_module, "WindowProfiler", FakeProfiler)
    FakeEvent.ran.clear()
    rows = _planned()
    blind = DeviceRunner([lambda: None for _ in rows], rows, torch.device("mps"), "continuous")
    for _ in range(3):
        blind.run(OpTimestamps(0))
    assert FakeEvent.ran == []
    assert blind.set_mode("continuous").startswith("the profiler shows no kernels of mps")


@pytest.mark.parametrize(
    ("phase", "owners", "work"),
    [
        ("decode", ("L3.attn.qkv", "L3.attn.out"), [True, True]),
        ("decode", ("L3.attn.qkv", "L3.attn.qkv"), [False, False]),
        ("decode", ("L3.attn.qkv", None), [True, False]),
        ("prefill", ("L3.attn.qkv", "L3.attn.out"), [False, False]),
    ],
    ids=["one each", "two of one", "one of nobody", "more rows than planned"],
)
def test_a_kernel_has_the_work_that_it_did_alone(
    runner: DeviceRunner, phase: str, owners: tuple[str | None, ...], work: list[bool]
) -> None:
    seen = [Kernel("k", at, 5, owner, "", None, "gpu", "gpu 0") for at, owner in enumerate(owners)]
    paper, planned = Paper(), {row.scope: row for row in _planned()}
    write = device_module.write_kernels
    write(paper, PlanWriter(paper).assign_ids, ProfilerWindow(seen, {}), planned, phase=phase)  # type: ignore[arg-type]
    ops = [paper.ops[i] for i in paper.lines[-1][0]]
    assert ["bytes" in op for op in ops] == work
    assert all(
        (op["bytes"], op["flops"]) == (list(planned[owner].bytes), list(planned[owner].flops))
        for op, owner, actual in zip(ops, owners, work, strict=True) if actual and owner
    )  # fmt: skip


def test_a_mode_that_does_not_exist_changes_nothing(runner: DeviceRunner) -> None:
    assert (
        runner.set_mode("nonsense") == "unknown capture mode nonsense; modes: off, spans, windows, continuous"
    )
    assert runner.set_mode("spans") == "capture mode spans"


def test_a_device_without_timed_events_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_events(device: str, enable_timing: bool) -> None:
        raise RuntimeError("no timed events here")

    result: list[str] = []
    monkeypatch.setattr(torch, "Event", no_events)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: result.append("wait"))
    spec = tiny.SPECS["qwen2"]
    rows = tiny.decoder(spec, tiny.weights(spec)).plan_step()[:2]
    made = device_module.make_runner([lambda: result.append("op")] * 2, rows, torch.device("mps"), "spans")
    ticks = OpTimestamps(0)
    made.run(ticks)
    assert result == ["op", "wait", "op", "wait"] and len(ticks.durations) == 2
    assert made.select_timed_ops(rows) == rows
