"""The program inside tmux and inside GNU screen: storms, signals, sizes, and a server that is lost."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tracetui.ui.pty import ROOT, Terminal
from tests.tracetui.ui.test_storms import STORMS
from tests.tracetui.ui.test_terminal import LONG_S, TEN, capture, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.terminal,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

RUN = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
ESCAPE = 0.7  # seconds after which a multiplexer takes an escape for a key alone
STORMY = ("the palette and words", "clicks", "a paste of 100 kB")


@dataclass
class Inside:
    """The program in a pane of a multiplexer, whose client is on a terminal of ours; a shell waits for it."""

    kind: str
    folder: Path
    profile: Path
    terminal: Terminal

    @property
    def pid(self) -> int | None:
        """The process of the program; None where it has ended."""
        asked = f"open\0{self.profile}".encode()
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if asked in words and b"-m\0tracetui" in words and not words.startswith((b"sh", b"/bin/sh")):
                return int(entry.name)
        return None

    def ended(self, code: int) -> None:
        """Waits until the program has ended; its pane is as it was, and echoes what is typed."""
        self.terminal.wait(lambda text: f"ended with {code}. cooked" in text, LONG_S)
        if self.kind == "tmux":
            flags = "#{alternate_on} #{mouse_any_flag} #{cursor_flag} #{keypad_cursor_flag}"
            assert self.tmux("display", "-p", flags) == "0 0 1 0"

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-S", f"{self.folder}/s", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def words(kind: str, folder: Path, script: str) -> list[str]:
    if kind == "tmux":
        return ["tmux", "-S", f"{folder}/s", "-f", "/dev/null", "new-session", script]
    return ["screen", "-c", "/dev/null", "sh", "-c", script]


@pytest.fixture(params=["tmux", "screen"])
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inside]:
    kind = request.param
    if shutil.which(kind) is None:
        pytest.skip(f"no {kind} here")
    path = capture(tmp_path, [f"kernel_{i:02d}" for i in range(50)])
    program = shlex.join([sys.executable, "-m", "tracetui", "open", str(path), "--view", "kernels"])
    mode = "$(stty -a | grep -q ' icanon' && stty -a | grep -q ' echo ' && echo cooked)"
    script = f"cd {ROOT}; {program}; code=$?; echo; echo ended with $code. {mode}; exec cat"
    os.chmod(tmp_path, 0o700)  # noqa: PTH101 - screen asks for it
    env = {f"XDG_{name}_HOME": str(tmp_path) for name in ("STATE", "CACHE")}
    env |= {"SCREENDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    with Terminal(*words(kind, tmp_path, script), argv0=("-c", RUN), env=env) as terminal:
        within = Inside(kind, tmp_path, path, terminal)
        terminal.wait(lambda text: "kernel_00" in text and "quit" in text, LONG_S)
        try:
            yield within
        finally:
            for pid in filter(None, [within.pid]):
                os.kill(pid, signal.SIGKILL)
            if kind == "screen":  # which outlives its client
                with contextlib.suppress(OSError, ValueError):  # or is gone with it
                    terminal.keys("\x01\\y")
                    terminal.quiet()
            else:
                with contextlib.suppress(subprocess.CalledProcessError):  # it is gone already
                    within.tmux("kill-server")


def leave(terminal: Terminal) -> None:
    """Out of whatever a storm has opened, then out of the program."""
    terminal.quiet(ESCAPE)
    for _ in range(4):
        terminal.keys("\x1b")
        terminal.quiet(ESCAPE)
    terminal.keys("q")


@pytest.mark.parametrize("storm", STORMY)
def test_a_storm_in_one_write(inside: Inside, storm: str) -> None:
    inside.terminal.keys(STORMS[storm])
    leave(inside.terminal)
    inside.ended(0)


@pytest.mark.parametrize("name", TEN[::5])
def test_a_signal_gives_the_pane_back(inside: Inside, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    assert inside.pid is not None
    os.kill(inside.pid, number)
    inside.ended(128 + number)


def test_a_storm_of_sizes(inside: Inside) -> None:
    draw = random.Random(11)
    for _ in range(60):
        inside.terminal.resize(draw.randrange(2, 300), draw.randrange(2, 120))
        inside.terminal.keys("j")
        inside.terminal.read(0.005)
    inside.terminal.resize(80, 24)
    inside.terminal.wait(lambda text: "kernel_" in text and "quit" in text, LONG_S)
    leave(inside.terminal)
    inside.ended(0)


def test_a_server_that_is_lost_ends_the_program(inside: Inside) -> None:
    program = inside.pid
    assert program is not None
    server = _parent(_parent(program))
    os.kill(server, signal.SIGKILL)
    until(lambda: inside.pid != program)


def test_a_client_that_goes_away_ends_nothing(inside: Inside) -> None:
    program = inside.pid
    inside.terminal.child.close(force=True)
    _stays(lambda: inside.pid == program)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def _stays(holds: Callable[[], bool], seconds: float = 1.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.05)
