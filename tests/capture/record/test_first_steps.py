"""The first steps of a thread wait until it is known whose they are; a window leaves the log as it was."""

import os

import pytest

from capture.record.calls import EndedStep
from capture.record.first_steps import LONGEST_NS, MOST, FirstSteps


def step(number: int, start: int) -> EndedStep:
    return EndedStep(start, 10, [number, start, 5], None, None, "wall")


def test_eight_steps_are_held_and_all_others_passed_on() -> None:
    written: list[EndedStep] = []
    first = FirstSteps(written.append)
    for number in range(MOST - 1):
        first.add(step(number, 100 * number))
    assert written == []
    first.add(step(7, 700))
    assert [s.start for s in written] == [0, 100, 200, 300, 400, 500, 600, 700]
    first.add(step(8, 800))
    assert written[-1].start == 800
    assert first.take_back() is None


def test_steps_that_take_long_are_passed_on_after_two_seconds() -> None:
    written: list[EndedStep] = []
    first = FirstSteps(written.append)
    first.add(step(0, 0))
    first.add(step(1, LONGEST_NS - 10))
    assert written == []
    first.add(step(2, LONGEST_NS))
    assert [s.start for s in written] == [0, LONGEST_NS - 10, LONGEST_NS]


def test_steps_of_a_draft_become_rows_and_those_of_its_target_steps() -> None:
    written: list[EndedStep] = []
    first = FirstSteps(written.append)
    for number in range(4):
        first.add(step(number, 100 * number))
    assert first.take_back() == [0, 0, 5, 1, 100, 5, 2, 200, 5, 3, 300, 5]
    first.add(step(4, 400))
    first.settle()
    assert [s.start for s in written] == [400]


@pytest.mark.parametrize("stated", [None, "3"])
def test_the_log_of_the_profiler_is_as_it_was_after_a_window(
    stated: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    from capture.record import kineto_log
    from capture.record.kernels import Profiler

    monkeypatch.delenv(kineto_log.LEVEL, raising=False)
    if stated is not None:
        monkeypatch.setenv(kineto_log.LEVEL, stated)
    ours = Profiler(gpu=False)
    for _ in range(2):
        ours.start()
        torch.ones(2) + 1
        ours.stop()
    assert capfd.readouterr().err == ""
    assert os.environ.get(kineto_log.LEVEL) == stated
    with torch.autograd.profiler.profile(use_kineto=True):
        torch.ones(2) + 1
    assert "profiler_start" in capfd.readouterr().err


def test_a_torch_without_a_level_is_silenced_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from capture.record import kineto_log

    monkeypatch.setattr(kineto_log, "_levels", [None])
    monkeypatch.delenv(kineto_log.LEVEL, raising=False)
    with kineto_log.silent():
        assert os.environ[kineto_log.LEVEL] == "99"
    assert kineto_log.LEVEL not in os.environ
    monkeypatch.setenv(kineto_log.LEVEL, "2")
    with kineto_log.silent():
        assert os.environ[kineto_log.LEVEL] == "2"
    assert os.environ[kineto_log.LEVEL] == "2"
