"""Steps that run ahead, their device played by fakes: what is queued, timed, attributed and said."""

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch

from capture.record.launch_order import LaunchOrder, assign_replay_owners
from capture.record.profiler_windows import ProfilerWindow
from engines.fused import run_ahead as replay_module
from engines.host import op_runners
from engines.host.op_runners import OpTimestamps, PlanWriter
from engines.plan import PlannedOp
from tests.engines.played import Contexts, Event, Graph, Profiler, Step, kernel, noted, put_events, replayed
from tests.engines.test_device import Paper

MS = 1_000_000


ORDER = LaunchOrder((("gemv", "L0.attn.qkv"), ("gemv", "L0.attn.out"), ("norm", "L0.norm")))


def test_a_replays_kernels_are_those_of_the_step_in_their_order() -> None:
    rows = [kernel("norm", 30, 7), kernel("gemv", 10, 7), kernel("gemv", 20, 7), kernel("Memcpy DtoH", 40, 8)]
    actual = assign_replay_owners(ProfilerWindow(rows), [ORDER])
    assert [(k.name, k.start, k.owner) for k in actual.rows] == [
        ("gemv", 10, "L0.attn.qkv"), ("gemv", 20, "L0.attn.out"), ("norm", 30, "L0.norm"),
        ("Memcpy DtoH", 40, None),
    ]  # fmt: skip
    assert actual.problems == {}


def test_what_a_runtime_puts_before_a_graph_belongs_to_nobody() -> None:
    rows = [kernel("fill", 5, 7), *(kernel(n, 10 + i, 7) for i, n in enumerate(("gemv", "gemv", "norm")))]
    assert [k.owner for k in assign_replay_owners(ProfilerWindow(rows), [ORDER]).rows] == [
        None,
        *(o for _, o in ORDER.kernels),
    ]


@pytest.mark.parametrize("names", [("gemv", "norm"), ("gemv", "norm", "norm"), ("gemv", "norm", "gemv")])
def test_a_replay_that_is_another_is_not_guessed_at(names: tuple[str, ...]) -> None:
    good = [kernel(n, 100 + i, 8) for i, n in enumerate(("gemv", "gemv", "norm"))]
    rows = [kernel(n, 10 + i, 7, owner="cudaGraphLaunch") for i, n in enumerate(names)] + good
    actual = assign_replay_owners(ProfilerWindow(rows, {"launches without a kernel": 1}), [ORDER])
    assert [k.owner for k in actual.rows] == [None] * len(names) + [o for _, o in ORDER.kernels]
    assert actual.problems == {
        "launches without a kernel": 1, "replays whose kernels differ from those of the step": 1,
    }  # fmt: skip


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The device's part is played here; the list fills with the graphs that are captured."""
    pytest.importorskip("triton")
    for kept in (Event.ran, Step.made, Step.seen):
        kept.clear()
    captured: list[Graph] = []

    def capture(run: Any) -> Graph:
        captured.append(Graph(run))
        return captured[-1]

    put_events(monkeypatch, Event)
    monkeypatch.setattr(op_runners, "WindowProfiler", Profiler)
    monkeypatch.setattr(replay_module, "FusedStep", Step)
    monkeypatch.setattr(replay_module, "capture_graph", capture)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    return captured


@pytest.mark.parametrize("graph", [True, False])
def test_steps_go_on_from_each_other(graphs: list[Graph], graph: bool) -> None:
    replay = replayed(graph=graph)
    replay.warm_up(20)
    replay.set_input(torch.tensor([40]), 20)
    Step.seen.clear()
    assert replay.run(OpTimestamps(0), 20, 5) == [41, 42, 43, 44, 45]
    assert replay.run(OpTimestamps(0), 25, 1) == [46]
    assert Step.seen == [(40 + i, 20 + i) for i in range(6)], "the warm-up has left no trace"
    assert len(graphs) == (2 if graph else 0)
    replay.close()
    assert not any(g.alive for g in graphs)


def test_a_longer_context_gets_a_step_of_its_own(graphs: list[Graph]) -> None:
    replay = replayed()
    replay.warm_up(510)
    replay.set_input(torch.tensor([0]), 510)
    Step.seen.clear()
    replay.run(OpTimestamps(0), 510, 3)
    assert Step.made == [512, 2048]
    assert [s for s in Step.seen if s[1] == 512][-1] == (2, 512)


def test_a_replay_is_waited_for_by_an_event_that_lies_behind_it(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event within a graph may still stand as its last replay left it."""
    waited: list[tuple[bool, int]] = []

    class Strict(Event):
        def __init__(self, *, is_captured: bool) -> None:
            super().__init__(is_captured=is_captured)
            self.external = is_captured

        def synchronize(self) -> None:
            waited.append((self.external, self.at))

    put_events(monkeypatch, Strict)
    replay = replayed()
    replay.set_input(torch.tensor([0]), 9)
    replay.run(OpTimestamps(0), 9, 1)
    end = len(Event.ran)
    assert waited == [(False, end)], "before any border within the graph is asked"


def test_every_step_of_a_block_has_its_own_layers(graphs: list[Graph]) -> None:
    replay, paper = replayed(), Paper()
    replay.set_input(torch.tensor([0]), 9)
    replay.run(ticks := OpTimestamps(0), 9, 3)
    assert len(ticks.times) == 3, "launch and wait"
    replay.write(paper, PlanWriter(paper).assign_ids, context=12, step=4)  # type: ignore[arg-type]
    names = [[paper.ops[i]["name"] for i in ops] for ops, _, _ in paper.lines]
    assert names == [["embed", "layer", "head"]] * 3
    assert [durations for _, _, durations in paper.lines] == [[MS] * 3] * 3  # an op is a millisecond here
    starts = [starts for _, starts, _ in paper.lines]
    for before, after in pairwise(starts):
        assert after[0] == before[0] + 3 * MS, "queued behind each other"


def test_what_comes_after_an_end_is_not_written(graphs: list[Graph]) -> None:
    replay, paper = replayed(), Contexts()
    replay.set_input(torch.tensor([0]), 9)
    replay.run(OpTimestamps(0), 9, 4)
    replay.write(paper, PlanWriter(paper).assign_ids, context=11)  # type: ignore[arg-type]
    assert paper.contexts == [10, 11]


def test_kernels_of_a_window_are_attributed_by_position(graphs: list[Graph]) -> None:
    replay, paper = replayed("continuous"), Paper()
    numbers = PlanWriter(paper).assign_ids  # type: ignore[arg-type]
    replay.set_input(torch.tensor([0]), 9)
    for at in (9, 11):  # the first is a warm-up
        replay.run(OpTimestamps(0), at, 2)
        replay.write(paper, numbers, context=at + 2, phase="decode")
    ops, starts, _ = paper.lines[-1]
    assert starts == list(range(6))
    assert [(paper.ops[i]["name"], paper.ops[i].get("layer"), paper.ops[i].get("op")) for i in ops] == [
        ("embed", None, "embed"), ("core", 0, "attn.core"), ("sample", None, "sample"),
    ] * 2  # fmt: skip
    assert [paper.ops[i].get("bytes") for i in ops] == [[7.0, 0.0], None, None] * 2, "one in each step"
    assert paper.marks == []


def test_an_unknown_mode_changes_nothing(graphs: list[Graph]) -> None:
    assert replayed().set_mode("all") == "unknown capture mode all; modes: off, spans, windows, continuous"


def test_a_bare_step_holds_no_event(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the ones that lie behind the steps, and are not timed."""
    made: list[bool] = []

    class Counted(Event):
        def __init__(self, *, is_captured: bool) -> None:
            super().__init__(is_captured=is_captured)
            made.append(is_captured)

    put_events(monkeypatch, Counted)
    replay, paper = replayed("off"), Paper()
    replay.set_input(torch.tensor([3]), 9)
    assert replay.run(OpTimestamps(0), 9, 3) == [4, 5, 6]
    replay.write(paper, PlanWriter(paper).assign_ids, context=12)  # type: ignore[arg-type]
    assert made == [False] * len(graphs) and paper.lines == []
    assert replay.set_mode("spans") == "capture mode spans"
    assert replay.run(OpTimestamps(0), 12, 1) == [7]
    replay.write(paper, PlanWriter(paper).assign_ids, context=13)  # type: ignore[arg-type]
    assert len(paper.lines) == 1, "events are back when they are asked for"


def test_a_longer_context_is_prepared_before_its_step(graphs: list[Graph]) -> None:
    replay = replayed()
    replay.warm_up(510)
    replay.set_input(torch.tensor([0]), 510)
    assert not replay.prepare(510, 2) and Step.made == [512]
    assert replay.prepare(510, 3) and Step.made == [512, 2048]
    Step.seen.clear()
    assert replay.run(OpTimestamps(0), 510, 3) == [1, 2, 3]
    assert Step.made == [512, 2048] and Step.seen == [(0, 510), (1, 511), (2, 512)]


def test_a_window_across_two_classes_knows_the_kernels_of_both(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer context has a kernel of its own between the same others."""

    class Grown(Step):
        def __init__(self, decoder: Any, device_state: Any, sampling: Any, context: int) -> None:
            super().__init__(decoder, device_state, sampling, context)
            name = "merge" if context > 512 else "core"
            self.ops = (self.ops[0], noted(f"L0.{name}", lambda: None), self.ops[2])

    monkeypatch.setattr(replay_module, "FusedStep", Grown)
    replay = replayed("continuous")
    replay.set_input(torch.tensor([0]), 511)
    replay.prepare(511, 2)
    replay.run(OpTimestamps(0), 511, 1)  # a warm-up
    replay.set_input(torch.tensor([0]), 511)
    replay.run(OpTimestamps(0), 511, 2)
    assert replay._window is not None
    steps, window = replay._window
    assert (steps, window.problems) == (2, {})
    owners = [k.owner for k in window.rows]
    assert owners == ["embed", "L0.core", "sample", "embed", "L0.merge", "sample"]


class Late(Event):
    """Says what was launched when somebody waited for it, and for which step that was."""

    waits: ClassVar[list[tuple[int, int]]] = []

    def synchronize(self) -> None:
        self.waits.append((self.at // 3, len(self.ran) // 3))


def test_the_next_step_is_queued_before_the_last_is_read(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token a report: while the host waits for one step, the next lies in the queue already."""
    Late.waits.clear()
    put_events(monkeypatch, Late)
    replay, paper = replayed(), Contexts()
    replay.warm_up(20)
    replay.set_input(torch.tensor([40]), 20)
    Event.ran.clear()
    tokens = []
    for at in range(20, 24):
        tokens += replay.run(OpTimestamps(0), at, 1, queue_next=at < 23)
        replay.write(paper, PlanWriter(paper).assign_ids, context=at + 1)  # type: ignore[arg-type]
    assert tokens == [41, 42, 43, 44]
    assert Late.waits == [(1, 2), (2, 3), (3, 4), (4, 4)], "(waited for, launched by then)"
    assert paper.contexts == [21, 22, 23, 24], "the borders of each are read before its graph runs again"
    assert [durations for _, _, durations in paper.lines] == [[MS] * 3] * 4
    assert len(Event.ran) == 4 * 3, "and none in vain"


def test_what_was_queued_behind_an_end_leaves_no_trace(graphs: list[Graph]) -> None:
    replay = replayed()
    replay.set_input(torch.tensor([0]), 9)
    drawn = replay._device_state.sampling_scratch.step
    drawn.fill_(5)
    assert replay.run(OpTimestamps(0), 9, 2, queue_next=True) == [1, 2]
    drawn.add_(3)  # as the kernels of three steps count
    replay.drop_queued_steps()
    assert drawn.item() == 7, "the next draw is that of the third step"
    replay.set_input(torch.tensor([30]), 4)
    assert replay.run(OpTimestamps(0), 4, 2) == [31, 32]


def test_a_window_holds_nothing_but_its_own_step(graphs: list[Graph]) -> None:
    """No step is queued ahead of a window, and none within it."""
    replay = replayed("continuous")
    replay.set_input(torch.tensor([0]), 9)
    seen = []
    for at in range(9, 13):
        replay.run(OpTimestamps(0), at, 1, queue_next=True)
        seen.append(len(replay._window[1].rows) if replay._window else 0)
        replay.forget_times()
    assert seen == [0, 3, 3, 3], "the first is a warm-up"


def test_a_graph_whose_borders_nobody_times_has_windows_still(graphs: list[Graph]) -> None:
    """As on ROCm."""
    replay, paper = replayed("continuous", borders=False), Paper()
    replay.set_input(torch.tensor([0]), 9)
    numbers = PlanWriter(paper).assign_ids  # type: ignore[arg-type]
    for at in (9, 10):
        replay.run(OpTimestamps(0), at, 1)
        replay.write(paper, numbers, context=at + 1)
    ((ops, _, _),) = paper.lines
    assert [paper.ops[i]["kind"] for i in ops] == ["kernel"] * 3 and len(graphs) == 2
    assert [paper.ops[i].get("op") for i in ops] == ["embed", "attn.core", "sample"]


COUNT = 148  # kernels of a step of a small model


class Skewed(Profiler):
    """Its clock is off: a kernel of some windows seems to begin before its launch, and is struck out."""

    windows: ClassVar[list[bool]] = []  # whether that happens, window by window; the last for all others

    def stop(self) -> ProfilerWindow:
        skewed = self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        rows = [kernel("gemv", i, i // COUNT, owner=n) for i, n in enumerate(Event.ran[self._from :])]
        return (
            ProfilerWindow(rows[1:], {"kernels that started before their launch": 1})
            if skewed
            else ProfilerWindow(rows)
        )


class Many(Step):
    def __init__(self, decoder: Any, device_state: Any, sampling: Any, context: int) -> None:
        self.plan = tuple(PlannedOp(f"r{i}", f"r{i}", "other") for i in range(COUNT))
        self.ops = tuple(noted(f"r{i}", lambda: None) for i in range(COUNT))


@pytest.mark.parametrize(
    ("windows", "owned", "said"),
    [
        ([True, False], COUNT, []),
        ([True, True, False], COUNT, []),
        ([False, True], 0, ["started before their launch", "differ from those of the step"]),
        ([True], 0, ["started before their launch", "differ from those of the step"]),
    ],
    ids=["learned again", "learned at last", "a replay is skewed", "never learned"],
)
def test_a_skewed_kernel_is_attributed_or_refused_with_a_note(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch, windows: list[bool], owned: int, said: list[str]
) -> None:
    """The names tell nothing, as of kernels that a step launches again and again: only the count does."""
    monkeypatch.setattr(op_runners, "WindowProfiler", Skewed)
    monkeypatch.setattr(replay_module, "FusedStep", Many)
    monkeypatch.setattr(Skewed, "windows", windows)
    replay, paper = replayed("continuous"), Paper()
    numbers = PlanWriter(paper).assign_ids  # type: ignore[arg-type]
    replay.set_input(torch.tensor([0]), 9)
    for at in (9, 10):  # the first is a warm-up
        replay.run(OpTimestamps(0), at, 1)
        replay.write(paper, numbers, context=at + 1)
    ops, _, _ = paper.lines[-1]
    assert sum("op" in paper.ops[i] for i in ops) == owned
    assert len(paper.marks) == len(said)
    assert all(words in mark for words, mark in zip(said, paper.marks, strict=True))
