"""The first steps of a thread wait until it is known whose they are; a window leaves the log as it was."""

import os

import pytest

from capture.record.call_stack import EndedStep
from capture.record.process_notes import LastSteps
from capture.record.thread_recorder import MAX_HELD_NS, MAX_HELD_STEPS, StepBuffer


def step(number: int, start: int) -> EndedStep:
    return EndedStep(start, 10, [number, start, 5], None, None, "wall")


def test_eight_steps_are_held_and_all_others_passed_on() -> None:
    written: list[EndedStep] = []
    first = StepBuffer(written.append, LastSteps(0))
    for number in range(MAX_HELD_STEPS - 1):
        first.add(step(number, 100 * number))
    assert written == []
    first.add(step(7, 700))
    assert [s.start for s in written] == [0, 100, 200, 300, 400, 500, 600, 700]
    first.add(step(8, 800))
    assert written[-1].start == 800
    assert first.withdraw_rows() is None


def test_steps_that_take_long_are_passed_on_after_two_seconds() -> None:
    written: list[EndedStep] = []
    first = StepBuffer(written.append, LastSteps(0))
    first.add(step(0, 0))
    first.add(step(1, MAX_HELD_NS - 10))
    assert written == []
    first.add(step(2, MAX_HELD_NS))
    assert [s.start for s in written] == [0, MAX_HELD_NS - 10, MAX_HELD_NS]


def test_steps_of_a_draft_become_rows_and_those_of_its_target_steps() -> None:
    written: list[EndedStep] = []
    first = StepBuffer(written.append, LastSteps(0))
    for number in range(4):
        first.add(step(number, 100 * number))
    assert first.withdraw_rows() == [0, 0, 5, 1, 100, 5, 2, 200, 5, 3, 300, 5]
    first.add(step(4, 400))
    first.flush()
    assert [s.start for s in written] == [400]


@pytest.mark.parametrize("stated", [None, "3"])
def test_the_log_of_the_profiler_is_as_it_was_after_a_window(
    stated: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    from capture.record import profiler_windows
    from capture.record.profiler_windows import WindowProfiler

    monkeypatch.delenv(profiler_windows.KINETO_LEVEL_VARIABLE, raising=False)
    if stated is not None:
        monkeypatch.setenv(profiler_windows.KINETO_LEVEL_VARIABLE, stated)
    ours = WindowProfiler(gpu=False)
    for _ in range(2):
        ours.start()
        torch.ones(2) + 1
        ours.stop()
    assert capfd.readouterr().err == ""
    assert os.environ.get(profiler_windows.KINETO_LEVEL_VARIABLE) == stated
    with torch.autograd.profiler.profile(use_kineto=True):
        torch.ones(2) + 1
    assert "profiler_start" in capfd.readouterr().err


def test_a_torch_without_a_level_is_silenced_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from capture.record import profiler_windows

    monkeypatch.setattr(profiler_windows, "_find_level", lambda: None)
    monkeypatch.delenv(profiler_windows.KINETO_LEVEL_VARIABLE, raising=False)
    with profiler_windows.mute_kineto():
        assert os.environ[profiler_windows.KINETO_LEVEL_VARIABLE] == "99"
    assert profiler_windows.KINETO_LEVEL_VARIABLE not in os.environ
    monkeypatch.setenv(profiler_windows.KINETO_LEVEL_VARIABLE, "2")
    with profiler_windows.mute_kineto():
        assert os.environ[profiler_windows.KINETO_LEVEL_VARIABLE] == "2"
    assert os.environ[profiler_windows.KINETO_LEVEL_VARIABLE] == "2"
