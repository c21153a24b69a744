"""Terminals that can do less: what terminfo and the locale say of them, and the bytes that they are sent."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracetui.ui.pty import ROOT, Terminal
from tests.tracetui.ui.test_terminal import capture

COLOUR = re.compile(rb"\x1b\[[0-9;]*[34]8;[25];")
ASKED = "from tracetui.ui.terminal import tty; print(tty.has_many_colours(), tty.can_show_unicode())"


def asked(**env: str) -> list[str]:
    """What is thought of a terminal, by a process of its own: terminfo is read once in each."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env={"PATH": "/usr/bin:/bin", **env}, cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("infocmp") is None, reason="no infocmp here")
@pytest.mark.parametrize("term", ["vt100", "linux", "screen", "xterm", "xterm-256color", "screen-256color"])
def test_colours_are_those_of_terminfo(term: str) -> None:
    actual = subprocess.run(["infocmp", "-1", term], capture_output=True, text=True)
    if actual.returncode:
        pytest.skip(f"terminfo has no {term} here")
    count = re.search(r"colors#(\w+)", actual.stdout)
    many = count is not None and int(count[1], 0) >= 256
    assert asked(TERM=term)[0] == str(many)
    assert asked(TERM=term, COLORTERM="truecolor")[0] == "True"


def test_a_terminal_of_which_nothing_is_known_may_have_colours() -> None:
    assert asked(TERM="no-such-terminal")[0] == asked()[0] == "True"


@pytest.mark.parametrize(
    ("env", "unicode"),
    [
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, True),
        ({"TERM": "screen", "LANG": "C.UTF-8"}, True),
        ({"TERM": "xterm"}, True),  # nobody has asked for less
        ({"TERM": "vt100", "LANG": "C.UTF-8"}, False),
        ({"TERM": "vt220", "LANG": "C.UTF-8"}, False),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, False),
        ({"TERM": "screen.linux", "LANG": "C.UTF-8"}, False),
        ({"TERM": "xterm", "LC_ALL": "C"}, False),
        ({"TERM": "xterm", "LC_ALL": "POSIX", "LANG": "C.UTF-8"}, False),
        ({"TERM": "xterm", "LANG": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}, False),
    ],
)
def test_characters_are_those_of_the_locale_and_of_the_font(env: dict[str, str], unicode: bool) -> None:
    assert asked(**env)[1] == str(unicode)


@pytest.mark.corpus
@pytest.mark.terminal
@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "linux"},
        {"TERM": "vt100"},
        {"TERM": "screen.linux"},
        {"TERM": "xterm-256color", "LC_ALL": "C"},
    ],
    ids=["linux", "vt100", "screen.linux", "LC_ALL=C"],
)
@pytest.mark.slow
def test_a_poor_terminal_is_sent_ascii_and_its_own_colours(tmp_path: Path, env: dict[str, str]) -> None:
    path = capture(tmp_path, [f"kernel_{i:02d}" for i in range(30)])
    homes = {"XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "COLORTERM": ""}
    with Terminal("open", str(path), "--view", "kernels", env={**homes, **env}) as terminal:
        terminal.wait(lambda text: "kernel_00" in text and "quit" in text)
        for key in ("s", "\t", "2", "?"):
            terminal.keys(key)
            terminal.quiet(0.3)
        assert not [byte for byte in terminal.sent if byte > 0x7F]
        if env["TERM"] != "xterm-256color":
            assert COLOUR.findall(terminal.sent) == []
        terminal.keys("q")
        assert terminal.end() == 0
