"""`live -- CMD` by keys on a real terminal: programs that hang on, are killed, say nothing, or read."""

import os
import signal
import sys
from pathlib import Path

import pytest

from capture.native.emit import Emitter
from tests.tracetui.process.test_engine_process import _dead, until
from tests.tracetui.test_cli import run_process
from tests.tracetui.ui.pty import Terminal

pytestmark = [
    pytest.mark.slow,
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


def live(folder: Path, *command: str, options: tuple[str, ...] = ()) -> Terminal:
    return Terminal("live", "-o", str(folder / "p.jsonl"), *options, "--", *command, size=(100, 24),
                    root=folder, env={"PYTHONPATH": str(Path(__file__).parents[3])})  # fmt: skip


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
        (("true",), "nothing was recorded"),
        ((sys.executable, "-c", "import sys; sys.stdin.read()"), "its standard input was empty"),
    ],
)
def test_a_program_that_writes_nothing_is_told_with_its_reason(
    command: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """Also one that reads its standard input: that is at its end, so it does not wait for ever."""
    with live(tmp_path, *command) as terminal:
        text = terminal.wait(lambda text: says in " ".join(text.split()), 60)
        assert "R restarts it    O shows its output    q quits" in text
        terminal.keys("q")
        assert terminal.end(30) == 5
    assert not (tmp_path / "p.jsonl").exists()


# prints 3,000 lines before its only step, bytes that a terminal would obey, and a line at its end
TALKS = """
import os, signal, sys, threading
from capture.native.emit import Emitter
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
for n in range(3000):
    print("line", n)
print("hostile \\x1b]0;evil\\x07 \\x1b[31mred \\u202e", flush=True)
print("to stderr", file=sys.stderr, flush=True)
emitter = Emitter(os.environ["TRACETUI_OUT"])
emitter.run("talks")
emitter.event("kernel", "held", t=1000, dur=500, step=1)
emitter.step(1, 1000, 900, tokens=1)
emitter.flush()
over.wait(1000)
print("the end", flush=True)
"""


def test_what_a_program_prints_is_shown_and_kept_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with live(tmp_path, sys.executable, "-c", TALKS, options=("--log", str(log))) as terminal:
        terminal.wait(lambda text: "held" in text, 60)
        assert "O output" in terminal.text
        terminal.keys("O")
        shown = terminal.wait(lambda text: "to stderr" in text)
        assert "line 2999" in shown and "hostile \ufffd]0;evil\ufffd \ufffd[31mred" in shown
        terminal.keys("g")
        terminal.wait(lambda text: "Output of the program" in text and "to stderr" not in text)
        terminal.keys("\x1b")
        terminal.wait(lambda text: "held" in text and "Output of the program" not in text)
        terminal.keys("q")
        assert terminal.end(30) == 0
    assert b"\x1b]0;evil" not in terminal.sent
    lines = log.read_bytes().splitlines()
    assert lines[:2] == [b"line 0", b"line 1"] and len(lines) >= 3002
    assert b"hostile \x1b]0;evil\x07 \x1b[31mred" in lines[3000], "the file has what was printed"


def test_a_log_is_never_written_over_and_is_for_programs(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("precious")
    with Terminal("live", "--log", str(tmp_path / "log.txt"), "--", "true") as terminal:
        assert terminal.end(30) == 2
    with Terminal("live", "--log", str(tmp_path / "other.txt")) as other:
        assert other.end(30) == 2
    assert b"already exists" in terminal.sent and b"--log needs a program" in other.sent
    assert (tmp_path / "log.txt").read_text() == "precious"


def test_a_pipe_with_no_reader_holds_nobody_up(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for verb in ("live", "record"):
        result = run_process(verb, "-o", str(fifo), "--", "touch", str(tmp_path / "ran"))
        assert result.returncode == 2 and "already exists" in result.stderr
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
    result = run_process(
        "record", "--model", "smollm2-135m", "--steps", "1", "-o", str(tmp_path / "p.jsonl"),
        env={"PYTHONPATH": path},
    )  # fmt: skip
    assert result.returncode == 5 and not (tmp_path / "p.jsonl").exists()
    assert "torch is not installed; pip install 'tracetui[live]'" in result.stderr.splitlines()[-1]
