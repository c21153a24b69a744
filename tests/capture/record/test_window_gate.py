"""Windows stay away from captures of CUDA graphs and from profilers of the program's own: played devices."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from capture.record import window_gate
from capture.record.profiler_windows import ProfilerWindow, WindowBudget
from capture.record.window_gate import WindowGate


class Stream:
    """A device that waiting for it while it is captured would break: `waits` says what was done when."""

    def __init__(self) -> None:
        self.is_capturing = False
        self.waits: list[str] = []

    def torch(self) -> Any:
        cuda = SimpleNamespace(
            is_initialized=lambda: True, is_current_stream_capturing=lambda: self.is_capturing
        )
        autograd = SimpleNamespace(_profiler_enabled=lambda: False)
        return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_autograd=autograd))


class PlayedProfiler:
    overhead_ns = 0
    stream: Stream

    def __init__(self, *, gpu: bool) -> None:
        pass

    def start(self) -> None:
        self._wait("start")

    def stop(self) -> ProfilerWindow:
        self._wait("stop")
        return ProfilerWindow([])

    def discard(self) -> None:
        self._wait("abandon")

    def _wait(self, what: str) -> None:
        assert not self.stream.is_capturing, f"{what} breaks the capture"
        self.stream.waits.append(what)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    stream = Stream()
    monkeypatch.setattr(PlayedProfiler, "stream", stream, raising=False)
    monkeypatch.setattr(window_gate, "WindowProfiler", PlayedProfiler)
    monkeypatch.setattr(window_gate, "WindowBudget", lambda budget: WindowBudget(1.0, warm_up=0))
    yield stream


def test_a_window_waits_for_the_end_of_a_capture(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    stream.is_capturing = True
    assert not watched.open_window("me", gpu=True) and stream.waits == []
    stream.is_capturing = False
    assert watched.open_window("me", gpu=True) and watched.owner == "me"
    assert watched.close_window(5, 1) == ProfilerWindow([]) and stream.waits == ["start", "stop"]


def test_a_capture_that_is_about_to_begin_ends_the_window_first(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    assert watched.open_window("me", gpu=True)
    watched.begin_capture()
    stream.is_capturing = True
    assert stream.waits == ["start", "abandon"] and watched.owner is None
    stream.is_capturing = False
    assert not watched.open_window("me", gpu=True), "the stream of another thread may be captured still"
    watched.end_capture()
    assert watched.open_window("me", gpu=True)


def test_no_window_opens_until_all_of_several_captures_are_over(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    watched.begin_capture()
    watched.begin_capture()
    watched.end_capture()
    assert not watched.open_window("me", gpu=True)
    watched.end_capture()
    watched.end_capture()
    assert watched.open_window("me", gpu=True)


def test_a_capture_that_nobody_announced_leaves_the_window_alone_for_good(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    assert watched.open_window("me", gpu=True)
    stream.is_capturing = True
    assert watched.close_window(5, 1) is None and stream.waits == ["start"]
    stream.is_capturing = False
    assert not watched.open_window("me", gpu=True)


def test_a_window_that_nobody_will_read_is_dropped_at_the_next_call_in_it(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    assert watched.open_window("me", gpu=False) and watched.is_open("me") and not watched.is_open("you")
    watched.stop_opening()
    assert not watched.is_open("you") and stream.waits == ["start"], "another thread cannot end it"
    assert not watched.is_open("me") and stream.waits == ["start", "abandon"]
    assert watched.owner is None and not watched.open_window("me", gpu=False)


def test_one_thread_has_a_window_at_a_time(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    assert watched.open_window("me", gpu=False) and not watched.open_window("you", gpu=False)


def test_a_profiler_of_the_programs_own_has_the_room(stream: Stream) -> None:
    watched = WindowGate(stream.torch())
    assert watched.open_window("me", gpu=False)
    watched.block_windows()
    assert stream.waits == ["start", "abandon"]
    assert not watched.open_window("me", gpu=False)


@pytest.mark.parametrize(
    ("step", "calls", "share"),
    [  # in microseconds; what 25 for a step and 2.5 for a call leave of two in a hundred
        (40_000, 200, 0.02 - 525 / 40_000),
        (10_000, 20, 0.02 - 75 / 10_000),
        (100, 1, 0.002),
    ],
)
def test_windows_have_what_the_steps_leave_of_the_budget(
    step: int, calls: int, share: float, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, spent, handling, slower = 0, 0, 5_000_000, 1_000_000
    monkeypatch.setattr(window_gate, "now", lambda: at)
    monkeypatch.setattr(PlayedProfiler, "overhead_ns", handling)
    watched = WindowGate(stream.torch())
    watched.add_plain_step(1_000 * step)
    while at < 30_000_000_000:
        at += 1_000 * step
        if watched.open_window("me", gpu=False):
            at += slower + handling
            spent += slower + handling
            assert watched.close_window(1_000 * step + slower, calls) is not None
        else:
            watched.add_plain_step(1_000 * step)
    assert 0.85 * share < spent / at < 1.1 * share
