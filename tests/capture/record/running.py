"""Programs that run already, to attach to: the one of goes_on.py, and what it tells of itself."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from capture.errors import EngineError
from tracetui.process import AttachedProcess

PROGRAM = Path(__file__).parent / "goes_on.py"


def plain_environment() -> dict[str, str]:
    """Return the environment of a program that knows nothing of us."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("TRACETUI")}


class Running:
    """The program of goes_on.py, which runs until it is left."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(PROGRAM)], env=plain_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.pid = self._child.pid

    def ask(self) -> dict[str, Any]:
        """Return what it is like now."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return dict(json.loads(self._child.stdout.readline()))

    def leave(self) -> tuple[int, str]:
        """Return its exit code and what it said on stderr in all its time."""
        errors = self._child.communicate(timeout=60)[1]
        return self._child.returncode, errors

    def __enter__(self) -> Self:
        self.ask()  # it goes on now
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()


def alone(iterations: int) -> dict[str, Any]:
    """Return what the program is like after so many iterations that nobody watched."""
    command = [sys.executable, str(PROGRAM), str(iterations)]
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def attach_once(pid: int, out: Path, seconds: float) -> int:
    """Attach, watch so long and detach; return the steps that were seen."""
    out.touch()
    attached = AttachedProcess(pid, out)
    try:
        time.sleep(seconds)
        attached.stop()
        told = attached.reports.read_reports()[pid]
        assert told.faults == []
        return told.counts[0]
    finally:
        attached.stop()


def not_possible() -> str:
    """Return why no process can be attached to here; empty where it is possible."""
    child = subprocess.Popen([sys.executable, "-c", "import torch; print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=plain_environment())  # fmt: skip
    try:
        assert child.stdout is not None
        child.stdout.readline()
        AttachedProcess(child.pid, Path(os.devnull)).stop()
    except EngineError as e:
        return str(e)
    finally:
        child.kill()
        child.communicate()
    return ""
