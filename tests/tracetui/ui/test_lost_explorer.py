"""The explorer is stopped, or killed, while a program writes: nothing of the recording is lost by that."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from tests.tracetui.ui.pty import Terminal

OPS = 5
STEPS = 400  # that are to be written while nobody looks

PROGRAM = f"""
import json, os, signal, threading, time
from capture.native.emit import Emitter
emitter = Emitter(os.environ["TRACETUI_OUT"])
emitter.run("writer", {{"pid": os.getpid()}})
emitter.plan({{"id": i, "name": f"op {{i}}", "lens": "wall"}} for i in range({OPS}))
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
step = 0
while not over.is_set():
    t = 10**9 + step * 10**6
    emitter.columns(range({OPS}), [t + i for i in range({OPS})], [step + i for i in range({OPS})], step=step)
    emitter.step(step, t, 10**6, tokens=1)
    emitter.flush()
    step += 1
    time.sleep(0.001)
emitter.end()
"""

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(sys.platform != "linux", reason="the parent's death is a signal on Linux"),
]


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def steps_in(path: Path) -> int:
    return path.read_bytes().count(b'{"kind":"step"') if path.exists() else 0


def watched(path: Path) -> Terminal:
    return Terminal("live", "-o", str(path), "--", sys.executable, "-c", PROGRAM, size=(100, 24))


def steps_told(screen: str) -> int:
    """The number of steps in the summary."""
    found = re.search(r"([\d,]+) (?:decode )?steps", screen)
    return int(found[1].replace(",", "")) if found else 0


def whole(path: Path) -> int:
    """How many steps were recorded, once each of them is found to be right."""
    (run,) = load(path, cache=False)
    assert run.log.dropped == 0
    kernels = run.events.filter(pl.col("kind") == "kernel")
    count = kernels.height // OPS
    assert kernels["step"].to_list() == [step for step in range(count) for _ in range(OPS)]
    assert kernels["dur"].to_list() == [step + i for step in range(count) for i in range(OPS)]
    return count


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_a_stopped_explorer_holds_nobody_up_and_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    with watched(path) as terminal:
        terminal.wait(lambda text: steps_told(text) > 10, 60)
        terminal.child.kill(signal.SIGSTOP)
        before = steps_in(path)
        until(lambda: steps_in(path) > before + STEPS)
        terminal.child.kill(signal.SIGCONT)
        terminal.wait(lambda text: steps_told(text) > before + STEPS, 60)
        terminal.keys("q")
        assert terminal.end(30) == 0
    assert whole(path) == steps_in(path) > before + STEPS


def test_a_killed_explorer_takes_its_program_along_and_leaves_its_recording(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    with watched(path) as terminal:
        terminal.wait(lambda text: steps_told(text) > 10, 60)
        before = steps_in(path)
        terminal.child.kill(signal.SIGKILL)
        (run,) = load(path, cache=False)
        until(lambda: gone(int(run.meta["pid"])))
    assert whole(path) >= before
