"""Steps that run ahead, their device played by fakes: what is queued, timed, attributed and said."""

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch

from capture.record.kernels import Row as Kernel
from capture.record.kernels import Window
from capture.record.launch_order import LaunchOrder, with_owners
from engines.fused import replay as replay_module
from engines.fused.replay import Replay
from engines.host.trace import Ledger, Op, Ticks
from engines.plan import Row
from engines.sample import GREEDY
from tests.engines import tiny
from tests.engines.test_device import Paper

MS = 1_000_000


def kernel(name: str, start: int, launch: int, owner: str | None = None) -> Kernel:
    return Kernel(name, start, 5, owner, "", None, "gpu", "gpu 0", launch)


ORDER = LaunchOrder((("gemv", "L0.attn.qkv"), ("gemv", "L0.attn.out"), ("norm", "L0.norm")))


def test_a_replays_kernels_are_those_of_the_step_in_their_order() -> None:
    rows = [kernel("norm", 30, 7), kernel("gemv", 10, 7), kernel("gemv", 20, 7), kernel("Memcpy DtoH", 40, 8)]
    actual = with_owners(Window(rows), [ORDER])
    assert [(k.name, k.start, k.owner) for k in actual.rows] == [
        ("gemv", 10, "L0.attn.qkv"), ("gemv", 20, "L0.attn.out"), ("norm", 30, "L0.norm"),
        ("Memcpy DtoH", 40, None),
    ]  # fmt: skip
    assert actual.problems == {}


def test_what_a_runtime_puts_before_a_graph_belongs_to_nobody() -> None:
    rows = [kernel("fill", 5, 7), *(kernel(n, 10 + i, 7) for i, n in enumerate(("gemv", "gemv", "norm")))]
    assert [k.owner for k in with_owners(Window(rows), [ORDER]).rows] == [
        None,
        *(o for _, o in ORDER.kernels),
    ]


@pytest.mark.parametrize("names", [("gemv", "norm"), ("gemv", "norm", "norm"), ("gemv", "norm", "gemv")])
def test_a_replay_that_is_another_is_not_guessed_at(names: tuple[str, ...]) -> None:
    good = [kernel(n, 100 + i, 8) for i, n in enumerate(("gemv", "gemv", "norm"))]
    rows = [kernel(n, 10 + i, 7, owner="cudaGraphLaunch") for i, n in enumerate(names)] + good
    actual = with_owners(Window(rows, {"launches without a kernel": 1}), [ORDER])
    assert [k.owner for k in actual.rows] == [None] * len(names) + [o for _, o in ORDER.kernels]
    assert actual.problems == {
        "launches without a kernel": 1, "replays whose kernels are not those of the step": 1,
    }  # fmt: skip


class Event:
    """Its clock is the number of ops that have run, in milliseconds."""

    ran: ClassVar[list[str]] = []

    def __init__(self, *, external: bool) -> None:
        self.at = 0

    def record(self) -> None:
        self.at = len(self.ran)

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "Event") -> float:
        return float(other.at - self.at)


class Profiler:
    """Sees the ops since it was started, under one number as a graph's kernels are."""

    overhead_ns = 1000

    def __init__(self, *, gpu: bool) -> None:
        self._from = 0

    def start(self) -> None:
        self._from = len(Event.ran)

    def stop(self) -> Window:
        seen = enumerate(Event.ran[self._from :])
        return Window([kernel(name.split(".")[-1], i, i // 3, owner=name) for i, name in seen])


class Graph:
    def __init__(self, run: Any) -> None:
        self.replay, self.alive = run, True

    def reset(self) -> None:
        self.alive = False


class Step:
    """Three kernels: the position moves on, a layer notes it, the next token is one more."""

    made: ClassVar[list[int]] = []
    seen: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, decoder: Any, device_state: Any, sampling: Any, context: int) -> None:
        self.made.append(context)
        self.rows = (Row("embed", "embed", "copy"), Row("attention", "attn.core", "attention", 0),
                     Row("sample", "sample", "other"))  # fmt: skip

        def embed() -> None:
            device_state.position += 1

        def layer() -> None:
            self.seen.append((int(device_state.token), int(device_state.position)))

        def sample() -> None:
            device_state.token += 1

        self.ops = tuple(map(noted, ("embed", "L0.attn.core", "sample"), (embed, layer, sample)))


class Contexts(Paper):
    """Keeps the context of each line."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[int] = []

    def columns(self, ops: list[int], starts: list[int], durations: list[int], **facts: Any) -> None:
        super().columns(ops, starts, durations, **facts)
        self.contexts.append(facts["context"])


def noted(name: str, op: Op) -> Op:
    def noting() -> None:
        op()
        Event.ran.append(name)

    return noting


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

    monkeypatch.setattr(replay_module, "_event", Event)
    monkeypatch.setattr(replay_module, "Profiler", Profiler)
    monkeypatch.setattr(replay_module, "FusedStep", Step)
    monkeypatch.setattr(replay_module, "capture", capture)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    return captured


def replayed(mode: str = "spans", *, graph: bool = True) -> Replay:
    spec = tiny.SPECS["gemma3"]
    return Replay(tiny.decoder(spec, tiny.weights(spec)), GREEDY, mode, graph=graph)


@pytest.mark.parametrize("graph", [True, False])
def test_steps_go_on_from_each_other(graphs: list[Graph], graph: bool) -> None:
    replay = replayed(graph=graph)
    replay.warm_up(20)
    replay.place(torch.tensor([40]), 20)
    Step.seen.clear()
    assert replay.run(Ticks(0), 20, 5) == [41, 42, 43, 44, 45]
    assert replay.run(Ticks(0), 25, 1) == [46]
    assert Step.seen == [(40 + i, 20 + i) for i in range(6)], "the warm-up has left no trace"
    assert len(graphs) == (2 if graph else 0)
    replay.close()
    assert not any(g.alive for g in graphs)


def test_a_longer_context_gets_a_step_of_its_own(graphs: list[Graph]) -> None:
    replay = replayed()
    replay.warm_up(510)
    replay.place(torch.tensor([0]), 510)
    Step.seen.clear()
    replay.run(Ticks(0), 510, 3)
    assert Step.made == [512, 2048]
    assert [s for s in Step.seen if s[1] == 512][-1] == (2, 512)


def test_a_replay_is_waited_for_by_an_event_that_lies_behind_it(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event within a graph may still stand as its last replay left it."""
    waited: list[tuple[bool, int]] = []

    class Strict(Event):
        def __init__(self, *, external: bool) -> None:
            super().__init__(external=external)
            self.external = external

        def synchronize(self) -> None:
            waited.append((self.external, self.at))

    monkeypatch.setattr(replay_module, "_event", Strict)
    replay = replayed()
    replay.place(torch.tensor([0]), 9)
    replay.run(Ticks(0), 9, 1)
    end = len(Event.ran)
    assert waited[0] == (False, end), "before any border within the graph is asked"


def test_every_step_of_a_block_has_its_own_layers(graphs: list[Graph]) -> None:
    replay, paper = replayed(), Paper()
    replay.place(torch.tensor([0]), 9)
    replay.run(ticks := Ticks(0), 9, 3)
    assert len(ticks.at) == 3, "launch and wait"
    replay.write(paper, Ledger(paper).numbers, context=12, step=4)  # type: ignore[arg-type]
    names = [[paper.ops[i]["name"] for i in ops] for ops, _, _ in paper.lines]
    assert names == [["embed", "layer", "head"]] * 3
    assert [durations for _, _, durations in paper.lines] == [[MS] * 3] * 3  # an op is a millisecond here
    starts = [starts for _, starts, _ in paper.lines]
    for before, after in pairwise(starts):
        assert after[0] == before[0] + 3 * MS, "queued behind each other"


def test_what_comes_after_an_end_is_not_written(graphs: list[Graph]) -> None:
    replay, paper = replayed(), Contexts()
    replay.place(torch.tensor([0]), 9)
    replay.run(Ticks(0), 9, 4)
    replay.write(paper, Ledger(paper).numbers, context=11)  # type: ignore[arg-type]
    assert paper.contexts == [10, 11]


def test_kernels_of_a_window_are_attributed_by_position(graphs: list[Graph]) -> None:
    replay, paper = replayed("continuous"), Paper()
    numbers = Ledger(paper).numbers  # type: ignore[arg-type]
    replay.place(torch.tensor([0]), 9)
    for at in (9, 11):  # the first is a warm-up
        replay.run(Ticks(0), at, 2)
        replay.write(paper, numbers, context=at + 2)
    ops, starts, _ = paper.lines[-1]
    assert starts == list(range(6))
    assert [(paper.ops[i]["name"], paper.ops[i].get("layer"), paper.ops[i].get("op")) for i in ops] == [
        ("embed", None, "embed"), ("core", 0, "attn.core"), ("sample", None, "sample"),
    ] * 2  # fmt: skip
    assert paper.marks == []


def test_an_unknown_mode_changes_nothing(graphs: list[Graph]) -> None:
    assert replayed().mode("all") == "there is no mode all; there are off, spans, windows, continuous"


def test_a_bare_step_holds_no_event(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the one that lies behind each graph, and is not timed."""
    made: list[bool] = []

    class Counted(Event):
        def __init__(self, *, external: bool) -> None:
            super().__init__(external=external)
            made.append(external)

    monkeypatch.setattr(replay_module, "_event", Counted)
    replay, paper = replayed("off"), Paper()
    replay.place(torch.tensor([3]), 9)
    assert replay.run(Ticks(0), 9, 3) == [4, 5, 6]
    replay.write(paper, Ledger(paper).numbers, context=12)  # type: ignore[arg-type]
    assert made == [False] * len(graphs) and paper.lines == []
    assert replay.mode("spans") == "capture mode spans"
    assert replay.run(Ticks(0), 12, 1) == [7]
    replay.write(paper, Ledger(paper).numbers, context=13)  # type: ignore[arg-type]
    assert len(paper.lines) == 1, "events are back when they are asked for"


def test_a_longer_context_is_prepared_before_its_step(graphs: list[Graph]) -> None:
    replay = replayed()
    replay.warm_up(510)
    replay.place(torch.tensor([0]), 510)
    assert not replay.prepare(510, 2) and Step.made == [512]
    assert replay.prepare(510, 3) and Step.made == [512, 2048]
    Step.seen.clear()
    assert replay.run(Ticks(0), 510, 3) == [1, 2, 3]
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
    replay.place(torch.tensor([0]), 511)
    replay.prepare(511, 2)
    replay.run(Ticks(0), 511, 1)  # a warm-up
    replay.run(Ticks(0), 511, 2)
    assert replay._window is not None and replay._window.problems == {}
    owners = [k.owner for k in replay._window.rows]
    assert owners == ["embed", "L0.core", "sample", "embed", "L0.merge", "sample"]
