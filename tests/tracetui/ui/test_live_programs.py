"""`live -- CMD` by keys on a real terminal: programs that hang on, are killed, say nothing, or read."""

import os
import signal
import sys
from pathlib import Path

import pytest

from capture.native.emit import Emitter
from tests.tracetui.test_cli import tracetui
from tests.tracetui.test_process import _dead, until
from tests.tracetui.ui.pty import Terminal

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are told by /proc"),
]

# one step, a child in a session of its own, and then no ear for being asked to end
STUBBORN = """
import os, signal, subprocess, sys, time
from capture.native.emit import Emitter
child = subprocess.Popen(["setsid", "sleep", "1000"])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
emitter = Emitter(os.environ["TRACETUI_OUT"])
emitter.run("stubborn")
emitter.event("kernel", "held", t=1000, dur=500, step=1)
emitter.step(1, 1000, 900, tokens=1)
emitter.flush()
print("\\x1b]0;evil\\x07hostile \\x1b[31mred", flush=True)
print(f"pids {os.getpid()} {child.pid}", flush=True)
open("pids", "w").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(1000)
"""


def live(folder: Path, *command: str, size: tuple[int, int] = (100, 24)) -> Terminal:
    return Terminal("live", "-o", str(folder / "p.jsonl"), "--", *command, size=size, root=folder,
                    env={"PYTHONPATH": str(Path(__file__).parents[3])})  # fmt: skip


def pids(folder: Path) -> list[int]:
    told = folder / "pids"
    until(lambda: told.exists() and told.read_text().endswith("\n"), 60)
    return [int(word) for word in told.read_text().split()]


def test_q_waits_for_no_program_and_leaves_none(tmp_path: Path) -> None:
    with live(tmp_path, sys.executable, "-c", STUBBORN) as terminal:
        terminal.wait(lambda text: "held" in text, 60)
        program, child = pids(tmp_path)
        terminal.keys("q")
        assert terminal.end(30) == 0
        assert not _dead(program), "the screen was left before the program was killed"
        until(lambda: _dead(program) and _dead(child), 30)
    assert b"recorded" in terminal.sent


def test_a_killed_program_is_a_failure_though_the_screen_was_left_by_q(tmp_path: Path) -> None:
    with live(tmp_path, sys.executable, "-c", STUBBORN) as terminal:
        terminal.wait(lambda text: "held" in text, 60)
        program, child = pids(tmp_path)
        os.kill(program, signal.SIGKILL)
        terminal.wait(lambda text: "the program was ended by SIGKILL" in text)
        terminal.keys("q")
        assert terminal.end(30) == 5
        until(lambda: _dead(child), 30)
    assert b"tracetui: the program was ended by SIGKILL" in terminal.sent
    assert b"tracetui open " in terminal.sent


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("true",), "nothing was watched"),
        ((sys.executable, "-c", "import sys; sys.stdin.read()"), "no process of it imported torch"),
    ],
)
def test_a_program_that_writes_nothing_is_told_with_its_reason(
    command: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """Also one that reads its standard input: that is at its end, so it does not wait for ever."""
    with live(tmp_path, *command) as terminal:
        terminal.wait(lambda text: says in " ".join(text.split()), 60)
        terminal.keys("q")
        assert terminal.end(30) == 5
    assert not (tmp_path / "p.jsonl").exists()


def test_a_pipe_with_no_reader_holds_nobody_up(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for verb in ("live", "record"):
        done = tracetui(verb, "-o", str(fifo), "--", "touch", str(tmp_path / "ran"))
        assert done.returncode == 2 and "is there already" in done.stderr
    assert not (tmp_path / "ran").exists()
    with pytest.raises(OSError, match="No such device"):
        Emitter(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    emitter = Emitter(fifo)
    emitter.run("writer")
    for step in range(5000):
        emitter.step(step, step, 1)
    emitter.end()
    assert emitter.unwritten and os.read(reader, 14) == b'{"kind":"run",'
    os.close(reader)


def test_without_torch_the_install_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = tracetui(
        "record", "--model", "smollm2-135m", "--steps", "1", "-o", str(tmp_path / "p.jsonl"),
        env={"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 5 and not (tmp_path / "p.jsonl").exists()
    assert "torch is not installed; pip install 'tracetui[live]'" in done.stderr.splitlines()[-1]
