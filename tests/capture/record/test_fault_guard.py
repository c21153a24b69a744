"""An error of the recorder ends the recording once, and says so once."""

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
