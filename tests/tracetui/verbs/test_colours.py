"""An answer on a terminal has colours; elsewhere, and where they are refused, the same text has none."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

SGR = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = ("--width", "120")


def print_on_terminal(*words: str, env: Mapping[str, str]) -> str:
    """Run tracetui with a terminal as its output; return what it wrote there."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    program = subprocess.Popen(
        [sys.executable, "-m", "tracetui", *words], stdout=theirs, stdin=subprocess.DEVNULL, env=kept | env
    )
    os.close(theirs)
    written = b""
    while part := _read(ours):
        written += part
    os.close(ours)
    assert program.wait() == 0
    return written.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the program closed its end
        return b""


@pytest.mark.parametrize("words", [("report", "layers"), ("report", "summary"), ("report", "kernels")])
def test_a_terminal_gets_the_same_text_in_colours(words: tuple[str, ...]) -> None:
    command = (*words, "sample:decode", *WIDTH)
    coloured = print_on_terminal(*command, env={"TERM": "xterm"})
    plain = subprocess.run([sys.executable, "-m", "tracetui", *command], capture_output=True, check=True)
    assert len(SGR.findall(coloured)) > 20
    lines = [line.rstrip() for line in SGR.sub("", coloured).splitlines()]
    rows = 32 if words[1] == "layers" else None  # below is a legend: of the colours, or of signs instead
    assert lines[:rows] == plain.stdout.decode().splitlines()[:rows]


@pytest.mark.parametrize("env", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_refused(env: Mapping[str, str]) -> None:
    assert "\x1b" not in print_on_terminal("report", "kernels", "sample:decode", *WIDTH, env=env)


def test_a_decided_change_and_an_undecided_one_differ_in_colour() -> None:
    text = print_on_terminal(
        "diff", "sample:decode", "sample:slowed", "--format", "table", *WIDTH, env={"TERM": "xterm"}
    )
    rows = [line for line in text.splitlines() if "ffn_down" in SGR.sub("", line)[:12]]
    assert any(re.search(r"\x1b\[[0-9;]*33m *\+", row) for row in rows), text  # slower: yellow
