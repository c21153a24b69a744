"""The program on a real pseudo-terminal: start, quit, signals, sizes, hostile names."""

import json
import os
import random
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture.native.schema import seal_record
from tests.tracetui.ui.pty import ROOT, Terminal
from tracetui.verbs import live

pytestmark = pytest.mark.terminal

HOSTILE = {
    "clipboard": "a\x1b]52;c;ZXZpbA==\x07b",
    "title": "t\x1b]0;owned\x07",
    "clear": "c\x1b[2Jd",
    "c1": "e\x9b31mf\x9d0;x\x9c",
    "bidi": "g\u202eh",
    "nul": "i\x00j\x0e\x0fk",
    "markup": "mm[splitk][/]",
    "newline": "l\nm\rn\x08o",
}
LONG_S = 30.0  # for a machine that does much else
PLAIN = ["ab", "gh", "mm[splitk][/]"]  # what must stand on the screen, as it is


def capture(folder: Path, names: list[str], name: str = "run.jsonl") -> Path:
    """A native file: one kernel a name, the first the longest."""
    head: dict[str, Any] = {"kind": "run", "schema": 1, "name": "pty", "model": "hand-1b"}
    rows = [
        {"kind": "kernel", "name": n, "t": i * 1000, "dur": 10_000 - i, "lens": "gpu", "step": 1}
        for i, n in enumerate(names)
    ]
    path = folder / name
    path.write_bytes(b"".join(seal_record(row) for row in (head, *rows)))
    return path


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    def start(*options: str, until: str = "kernel_00", **how: Any) -> Terminal:
        path = capture(tmp_path, [f"kernel_{i:02d}" for i in range(50)])
        how["env"] = {"XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **how.get("env", {})}
        terminal = Terminal("open", str(path), "--view", "kernels", *options, **how)
        terminal.wait(lambda text: until in text)
        return terminal

    return start


def given_back(terminal: Terminal) -> None:
    """Every mode is off again, the cursor is there, and the line discipline is as it was."""
    assert terminal.modes_left_on() == set()
    assert terminal.sent.count(b"\x1b[?1049h") == terminal.sent.count(b"\x1b[?1049l") == 1
    assert terminal.sent.count(b"\x1b[>") >= 1 and terminal.sent.count(b"\x1b[<u") >= 1  # the kitty keyboard
    assert termios.tcgetattr(terminal.child.child_fd) == terminal.modes_before


def test_keys_alone_and_quit(opened: Any) -> None:
    with opened() as terminal:
        terminal.keys("jj")
        terminal.wait(lambda text: "3/50" in text)
        terminal.keys("/kernel_1")
        terminal.wait(lambda text: "1/10" in text)
        terminal.keys("\r")
        terminal.wait(lambda text: "quit" in text)
        terminal.keys("q")
        assert terminal.end() == 0
        given_back(terminal)


TEN = [
    "TERM",
    "HUP",
    "INT",
    "QUIT",
    "USR1",
    "USR2",
    "ALRM",
    "XCPU",
    "VTALRM",
    "PROF",
]  # what schedulers and limits send


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.Signals[f"SIG{name}"] for name in TEN])
def test_a_signal_gives_the_terminal_back(opened: Any, number: signal.Signals) -> None:
    with opened() as terminal:
        terminal.child.kill(number)
        assert terminal.end(3.0) == 128 + number
        given_back(terminal)


def test_control_c_leaves(opened: Any) -> None:
    with opened() as terminal:
        terminal.keys("\x03")
        assert terminal.end() in (0, 130)
        given_back(terminal)


@pytest.mark.slow
def test_a_stalled_terminal_is_left_by_force(opened: Any) -> None:
    """Nobody reads: the queue to the terminal fills up, and still a signal ends it within its grace."""
    with opened(size=(200, 60)) as terminal:
        for _ in range(300):
            terminal.child.send("G")
            terminal.child.send("g")
        time.sleep(0.5)  # for the queue to fill; where it takes longer, less is proved
        os.kill(terminal.child.pid, signal.SIGTERM)
        until(lambda: not terminal.child.isalive())


@pytest.mark.corpus
@pytest.mark.parametrize("ignored", [False, True], ids=["plain", "nohup"])
def test_a_lost_line_ends_the_program(tmp_path: Path, ignored: bool) -> None:
    path = capture(tmp_path, ["kernel_00"])
    ignore = "signal.signal(signal.SIGHUP, signal.SIG_IGN); " if ignored else ""
    code = f"import signal, sys; {ignore}from tracetui.cli import main; sys.exit(main(sys.argv[1:]))"
    master, slave = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code, "open", str(path), "--view", "kernels"],
        stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while b"kernel_00" not in seen:
        seen += os.read(master, 1 << 16)
    os.close(master)
    assert child.wait(LONG_S) != 0


@pytest.mark.slow
def test_a_drawing_is_made_for_the_size_that_the_screen_has_now(opened: Any) -> None:
    """The last kernel of a timeline, and not the first, reaches to the last column, whatever the size was."""

    def fills(text: str) -> bool:
        rows = [line.rstrip() for line in text.splitlines() if "▏" in line]
        return bool(rows) and len(rows[0]) < columns and len(rows[-1]) == columns

    with opened("--view", "timeline", until="gpu") as terminal:
        for columns, lines in ((100, 30), (60, 20), (140, 40), (80, 24)):
            terminal.resize(columns, lines)
            terminal.wait(fills)


@pytest.mark.slow
def test_ctrl_l_draws_what_something_else_has_wiped_away(opened: Any) -> None:
    with opened() as terminal:
        terminal.wait(lambda text: "Summary" in text and "quit" in text)  # all that is drawn after the table
        before = terminal.text
        terminal.wiped()
        assert "kernel_00" not in terminal.text
        terminal.keys("j\x0c")
        terminal.wait(lambda text: "2/50" in text and "kernel_49" not in text and "kernel_00" in text)
        assert terminal.text.splitlines()[:-2] == before.splitlines()[:-2]
        terminal.keys("q")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_storm_of_sizes(opened: Any) -> None:
    with opened() as terminal:
        draw = random.Random(3)
        for _ in range(60):
            terminal.resize(draw.choice([1, 19, 40, 80, 300]), draw.choice([1, 4, 10, 24, 90]))
            terminal.read(0.005)
        terminal.resize(80, 24)
        terminal.wait(lambda text: "kernel_00" in text and "quit" in text)
        terminal.keys("q")
        assert terminal.end() == 0
        given_back(terminal)


@pytest.mark.slow
def test_ctrl_z_stops_and_fg_comes_back(opened: Any) -> None:
    with opened() as terminal:
        terminal.keys("\x1a")
        stopped(terminal)
        assert terminal.modes_left_on() == set()
        terminal.child.kill(signal.SIGCONT)
        terminal.quiet(0.3)
        terminal.keys("jj")
        terminal.wait(lambda text: "3/50" in text)
        terminal.keys("q")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_stop_that_nobody_announced_leaves_one_reader_of_keys(opened: Any) -> None:
    """Two would take the keys from each other, and the one that gets none would never end."""
    with opened() as terminal:
        threads = Path(f"/proc/{terminal.child.pid}/task")
        terminal.quiet(1.0)  # the thread that loads the other views has ended
        before = len(list(threads.iterdir()))
        for _ in range(3):
            terminal.child.kill(signal.SIGSTOP)
            stopped(terminal)
            terminal.child.kill(signal.SIGCONT)
            terminal.quiet(0.3)
        terminal.keys("jj")
        terminal.wait(lambda text: "3/50" in text)
        until(lambda: len(list(threads.iterdir())) == before)
        terminal.keys("q")
        assert terminal.end(LONG_S) == 0


def stopped(terminal: Terminal) -> None:
    """Waits until the program is stopped, taking what it writes before."""
    until(lambda: not terminal.read() and _state(terminal.child.pid) == "T")


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


@pytest.mark.slow
def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    path = capture(tmp_path, list(HOSTILE.values()))
    with Terminal("open", str(path), "--view", "kernels", "--no-cache", size=(100, 30)) as terminal:
        text = terminal.wait(lambda text: "mm[splitk][/]" in text)
        assert "gh" in text  # the override is gone, the letters stay
        terminal.keys("ejjq")
        assert terminal.end() == 0
        for foreign in (b"\x1b]52", b"\x1b]0;", b"\x1b[2J", b"\x9b31m", "\u202e".encode(), b"\x00", b"\x0e"):
            assert foreign not in terminal.sent.replace(b"\x1b[?1049h\x1b[2J", b"")
        given_back(terminal)


def test_a_file_that_cannot_be_read_is_a_sentence_and_exit_3(tmp_path: Path) -> None:
    path = tmp_path / "nothing.bin"
    path.write_bytes(os.urandom(3000))
    with Terminal("open", str(path), "--view", "kernels") as terminal:
        terminal.wait(lambda text: "q quits" in text and "nothing.bin" in "".join(text.split()))
        terminal.keys("q")
        assert terminal.end() == 3
        given_back(terminal)


def test_a_crash_is_a_sentence_and_not_exit_0(tmp_path: Path) -> None:
    path = capture(tmp_path, ["kernel_00"])
    code = (
        "import sys; from tracetui.ui.pages.help_page import HelpPage; from tracetui.cli import main\n"
        "def boom(self, size): raise RuntimeError('a fault of the screen')\n"
        "HelpPage.draw_lines = boom; sys.exit(main(sys.argv[1:]))"
    )
    terminal = Terminal(size=(100, 24), argv0=("-c", code, "open", str(path), "--view", "kernels"),
                        env={"XDG_STATE_HOME": str(tmp_path)})  # fmt: skip
    with terminal:
        terminal.wait(lambda text: "kernel_00" in text)
        terminal.keys("?")
        assert terminal.end() not in (0, None)
        after = terminal.sent.rsplit(b"\x1b[?1049l", 1)[1].decode()
        assert "a fault of the screen" in after and "Traceback" not in after
        given_back(terminal)
    (note,) = (tmp_path / "tracetui").glob("crash-*")
    assert "Traceback" in note.read_text()


def test_without_a_terminal_no_screen_is_tried(tmp_path: Path) -> None:
    path = capture(tmp_path, ["kernel_00"])
    result = subprocess.run(
        [sys.executable, "-m", "tracetui", "open", str(path), "--view", "kernels"],
        stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, timeout=20,
    )  # fmt: skip
    assert b"\x1b" not in result.stdout + result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TMUX": "socket,1,0"}], ids=["no-colour", "tmux"])
def test_copying_and_colours_follow_the_environment(opened: Any, env: dict[str, str]) -> None:
    with opened(env=env) as terminal:
        terminal.keys("y")
        terminal.wait(lambda text: "sent to the terminal's clipboard" in text)
        if "TMUX" in env:
            assert b"\x1bPtmux;\x1b\x1b]52;c;" in terminal.sent
        else:
            assert b"\x1b]52;c;" in terminal.sent
            assert b"38;2;" not in terminal.sent and b"48;2;" not in terminal.sent
        terminal.keys("q")
        assert terminal.end() == 0


@pytest.mark.slow
def test_no_clipboard_means_none(opened: Any) -> None:
    with opened("--no-clipboard") as terminal:
        terminal.keys("yY")
        terminal.wait(lambda text: "clipboard is disabled" in text)
        assert b"]52;" not in terminal.sent
        terminal.keys("q")
        assert terminal.end() == 0


def test_the_file_that_was_made_for_these_tests_is_native(tmp_path: Path) -> None:
    lines = capture(tmp_path, ["one"]).read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run", "kernel"]


@pytest.mark.slow
def test_an_engine_that_is_refused_leaves_no_recording_behind(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    with Terminal("live", "--model", "nosuch", env=state) as terminal:
        terminal.wait(lambda text: "unknown model nosuch" in text, 60)
        terminal.keys("q")
        assert terminal.end(15) == 2
        terminal.read()
        assert "nothing was recorded" in terminal.text
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_what_was_recorded_is_kept_and_what_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    assert not live.keep_if_recorded(out)
    out.write_text("precious\n")
    assert live.keep_if_recorded(out) and out.read_text() == "precious\n"
    status = '{"kind":"run","schema":1,"name":"toy"}\n{"kind":"mark","name":"importing","path":"status"}\n'
    kernel = '{"kind":"kernel","name":"k","t":1,"dur":5}\n'
    out.write_text(status + kernel)
    assert live.keep_if_recorded(out) and out.exists()
    out.write_text(status)
    assert not live.keep_if_recorded(out) and not out.exists()
