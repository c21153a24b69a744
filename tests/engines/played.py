"""A device that is played: events, windows, graphs and steps of three kernels whose clock is their number."""

from typing import Any, ClassVar

import pytest

from capture.record.profiler_windows import LeafWork as Kernel
from capture.record.profiler_windows import ProfilerWindow
from engines.fused import run_ahead as replay_module
from engines.fused.run_ahead import RunAhead
from engines.host.op_runners import Op
from engines.plan import PlannedOp
from engines.token_sampling import GREEDY
from tests.engines import tiny
from tests.engines.test_device import Paper


def kernel(name: str, start: int, launch: int, owner: str | None = None) -> Kernel:
    return Kernel(name, start, 5, owner, "", None, "gpu", "gpu 0", launch)


class Event:
    """Its clock is the number of ops that have run, in milliseconds."""

    ran: ClassVar[list[str]] = []

    def __init__(self, *, is_captured: bool) -> None:
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

    def stop(self) -> ProfilerWindow:
        seen = enumerate(Event.ran[self._from :])
        return ProfilerWindow([kernel(name.split(".")[-1], i, i // 3, owner=name) for i, name in seen])


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
        self.plan = (PlannedOp("embed", "embed", "copy", bytes=(7.0, 0.0)),
                     PlannedOp("attention", "attn.core", "attention", 0),
                     PlannedOp("sample", "sample", "other"))  # fmt: skip

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


def put_events(monkeypatch: pytest.MonkeyPatch, event: type[Event]) -> None:
    monkeypatch.setattr(replay_module, "create_event", event)


def replayed(mode: str = "spans", *, graph: bool = True, borders: bool = True) -> RunAhead:
    spec = tiny.SPECS["gemma3"]
    return RunAhead(
        tiny.decoder(spec, tiny.weights(spec)), GREEDY, mode, uses_graph=graph, can_time_graphs=borders
    )
