"""The explorer on a terminal of 120×40, measured from outside: what it shows and when, and what it takes."""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable

import pexpect
import psutil
import pyte

from tests.tracetui.ui.pty import ROOT

STEPS = re.compile(r"ctx ([\d,]+)|steps +([\d,]+)|([\d,]+) steps")


class Screen:
    """One explorer; a thread reads what it paints."""

    def __init__(self, *argv: str) -> None:
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.began = time.monotonic()
        self.child = pexpect.spawn(
            sys.executable, ["-m", "tracetui", *argv], cwd=str(ROOT), env=env, dimensions=(40, 120)
        )
        self.process = psutil.Process(self.child.pid)
        self.seen: dict[int, float] = {}  # a number of steps, and when it was first to be seen
        self.text = ""
        self._screen = pyte.Screen(120, 40)
        self._stream = pyte.ByteStream(self._screen)
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._over.is_set():
            try:
                self._stream.feed(self.child.read_nonblocking(1 << 16, timeout=0.02))
            except pexpect.TIMEOUT:
                continue
            except (pexpect.EOF, OSError):
                return
            at, self.text = time.monotonic(), "\n".join(self._screen.display)
            if steps := self.steps:
                self.seen.setdefault(steps, at)

    @property
    def steps(self) -> int:
        """The number of steps that stands on the screen, or the context where each step adds one to it."""
        found = STEPS.search(self.text)
        return int((found[1] or found[2] or found[3]).replace(",", "")) if found else 0

    def wait(self, holds: Callable[[str], object], seconds: float = 600.0) -> float:
        """Seconds from the start until the screen looks as it should."""
        while not holds(self.text):
            if time.monotonic() - self.began > seconds or not self.child.isalive():
                raise SystemExit(f"the screen never came:\n{self.text}")
            time.sleep(0.002)
        return time.monotonic() - self.began

    def delays(self, written: dict[int, float]) -> list[float]:
        """Of each step how long after it was written it, or a later one, was to be seen; in order."""
        looks = sorted(self.seen.items())
        found, i = [], 0
        for step, at in sorted(written.items()):
            while i < len(looks) and (looks[i][0] < step or looks[i][1] < at):
                i += 1
            if i < len(looks):
                found.append(looks[i][1] - at)
        return sorted(found)

    @property
    def seconds_of_cpu(self) -> float:
        user, system, *_ = self.process.cpu_times()
        return float(user + system)

    @property
    def megabytes(self) -> float:
        return float(self.process.memory_info().rss / 1e6)

    def close(self) -> None:
        """Kills the explorer, and waits for what it had started: the next to be measured is alone."""
        self._over.set()
        self._reader.join()
        others = self.process.children(recursive=True)
        self.child.kill(signal.SIGKILL)
        self.child.wait()
        psutil.wait_procs(others)
