"""The loop of the engine over a played device: what belongs to a step, and what lies between two."""

from collections import deque
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines import decode_loop
from engines.decode_loop import DecodeEngine, RunLimits
from engines.host import op_runners
from engines.plan import TOKEN_WAIT, plan_host_op
from tests.engines import tiny
from tests.engines.test_device import Paper


class Clock:
    """A played clock, in nanoseconds."""

    def __init__(self) -> None:
        self.at = 0

    def __call__(self) -> int:
        return self.at


class Played:
    """Steps of 10 ns; before the third one a longer context is compiled, which takes 1,000."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked = clock, 0
        self.queue_next: list[bool] = []

    def set_mode(self, name: str) -> str:
        return name

    def set_input(self, token: torch.Tensor, position: int) -> None:
        pass

    def prepare(self, at: int, count: int) -> bool:
        self.asked += 1
        if self.asked == 3:
            self.clock.at += 1000
        return self.asked == 3

    def run(self, ticks: Any, at: int, count: int, *, queue_next: bool) -> list[int]:
        self.queue_next.append(queue_next)
        self.clock.at += 10
        ticks.mark()
        ticks.mark()
        return [5] * count

    def write(self, *args: Any, **facts: Any) -> None:
        pass


class Steps(Paper):
    """Keeps the begin and the wall time of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []

    def step(self, step: int, start: int, duration: int, **facts: Any) -> None:
        self.steps.append((start, duration))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    pytest.importorskip("triton")
    played = Clock()
    monkeypatch.setattr(decode_loop, "now", played)
    monkeypatch.setattr(op_runners, "now", played)
    return played


def decoded(clock: Clock, rest: Any = None, played: Played | None = None) -> list[tuple[int, int]]:
    """The steps of five tokens, as begin and wall time."""
    spec = tiny.SPECS["llama"]
    decoder, paper = tiny.decoder(spec, tiny.weights(spec)), Steps()
    decoder.sampler.token = torch.zeros(1, dtype=torch.long)
    commands = SimpleNamespace(pending=deque(), rejected=deque(), refresh=lambda: None, closed=Event())
    heart = SimpleNamespace(write_status=lambda text: None, touch=lambda: None, activity="")
    text = SimpleNamespace(decode_token=lambda token: "", encode=lambda prompt: [1])
    runner = SimpleNamespace(
        select_timed_ops=lambda planned: (plan_host_op("launch"), TOKEN_WAIT), set_mode=lambda name: name
    )
    parts: tuple[Any, ...] = (decoder, text, paper, heart, commands, RunLimits(steps=5), runner)
    DecodeEngine(*parts, played or Played(clock), rest)._decode_tokens(1)  # type: ignore[arg-type]
    return paper.steps


def test_what_is_compiled_for_a_longer_context_belongs_to_no_step(clock: Clock) -> None:
    assert decoded(clock) == [(0, 10), (10, 10), (1020, 10), (1030, 10), (1040, 10)]


def test_a_rest_between_two_steps_belongs_to_neither(clock: Clock) -> None:
    rests = iter((False, True, False, False, False))

    def rest() -> bool:
        taken = next(rests)
        clock.at += 500 * taken
        return taken

    assert [wall for _, wall in decoded(clock, rest)] == [10] * 5


def test_a_step_is_queued_ahead_but_for_the_last(clock: Clock) -> None:
    played = Played(clock)
    decoded(clock, played=played)
    assert played.queue_next == [True] * 4 + [False]
