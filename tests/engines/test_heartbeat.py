"""The sign of life of an engine that has nothing else to write."""

import threading
from typing import Any

import pytest

from engines.host import heartbeat
from engines.host.heartbeat import Heartbeat


class Written:
    """An emitter that keeps its marks, and says when there are two heartbeats."""

    unwritten = ""

    def __init__(self) -> None:
        self.marks: list[tuple[str, str]] = []
        self.is_alive = threading.Event()

    def mark(self, text: str, path: str) -> None:
        self.marks.append((text, path))
        if [path for _, path in self.marks].count("heartbeat") == 2:
            self.is_alive.set()

    def flush(self) -> None: ...


def test_heartbeat_repeats_activity_while_nothing_else_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "FLUSH_INTERVAL_S", 0.01)
    monkeypatch.setattr(heartbeat, "BEAT_INTERVAL_S", 0.3)
    emitter: Any = Written()
    pulse = Heartbeat(emitter)
    pulse.start()
    pulse.write_status("reading")
    assert emitter.is_alive.wait(20)
    pulse.stop()
    assert emitter.marks[:3] == [("reading", "status"), *[("reading", "heartbeat")] * 2]
