"""An error of the recorder ends the recording once, and says so once."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from capture.record.fault_guard import FaultGuard


def test_fault_guard_runs_nothing_after_first_fault(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    recording: Any = SimpleNamespace(close=lambda: calls.append("closed"))
    guard = FaultGuard(recording)

    def fail() -> None:
        calls.append("failed")
        raise ValueError("of our\nown")

    guard.guard(lambda: calls.append("done"))
    guard.guard(fail)
    guard.guard(fail)
    guard.stop_recording(ValueError("another"))
    assert guard.is_off and calls == ["done", "failed", "closed"]
    output = "tracetui: recording stopped: ValueError: of our own\n"
    assert capsys.readouterr().err == output


def test_fault_guard_lets_error_of_signal_handler_pass() -> None:
    class LateError(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise LateError

    guard = FaultGuard(SimpleNamespace(close=lambda: None))  # type: ignore[arg-type]
    former = signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(LateError):
            guard.guard(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, former)
    with pytest.raises(KeyboardInterrupt):
        guard.guard(lambda: signal.default_int_handler(signal.SIGINT, None))
    assert not guard.is_off
