"""Storms of keys, clicks, pastes and sizes, each in one write: the program lives and leaves cleanly."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandList
from textual.pilot import Pilot

from tests.kills import ENGINE
from tests.tracetui.ui.hand import decode, play, until
from tests.tracetui.ui.pty import Terminal
from tests.tracetui.ui.test_terminal import capture, given_back
from tracetui.ui.app import Explorer, Palette

pytestmark = pytest.mark.slow

PALETTE = "\x10"
PASTE = "\x1b[200~{}\x1b[201~"


def click(column: int, row: int) -> str:
    return f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"


def clicks(count: int) -> str:
    draw = random.Random(5)
    return "".join(click(draw.randrange(1, 81), draw.randrange(1, 25)) for _ in range(count))


STORMS = {
    "two clicks beside the palette": PALETTE + click(2, 23) * 2,
    "five clicks beside the palette": PALETTE + click(79, 24) * 5,
    "a page in the palette": PALETTE + "\x1b[5~\x1b[6~\x1b[5~",
    "the palette closed at once": (PALETTE + "\x1b[27u") * 3,
    "the palette and words": PALETTE + "sort by\x1b[B\x1b[B\r",
    "clicks": clicks(400),
    "clicks and palettes": "".join(PALETTE + clicks(3) for _ in range(12)),
    "a paste of 100 kB": PASTE.format("x" * 100_000),
    "a paste of keys and lines": PASTE.format("q\n\x10\r" * 500),
    "broken sequences": "\x1b[\x1b[<;;M\x1b[<999999999999;1;1M\x1bO\x1b[?1;2c\x1b[I\x1b[O",
    "keys": "jkGg/a\rs12345eEtTwW?\x1b" * 20,
}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    path = capture(tmp_path, [f"kernel_{i:02d}" for i in range(50)])
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    terminal = Terminal("open", str(path), "--view", "kernels", env=env)
    terminal.wait(lambda text: "kernel_00" in text)
    return terminal


def leave(terminal: Terminal) -> None:
    """Out of whatever the storm has opened, then out of the program."""
    terminal.quiet()
    for _ in range(4):
        terminal.keys("\x1b[27u")
        terminal.quiet(0.2)
    terminal.keys("q")
    assert terminal.end(20) == 0
    given_back(terminal)


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
def test_a_storm_in_one_write(terminal: Terminal, storm: str) -> None:
    with terminal:
        terminal.keys(storm)
        leave(terminal)


def test_clicks_beside_the_palette_end_neither_the_screen_nor_the_program(tmp_path: Path) -> None:
    result = tmp_path / "done"
    program = ("--", sys.executable, "-c", ENGINE, str(result))
    with Terminal("live", "--view", "kernels", "-o", str(tmp_path / "prof.jsonl"), *program) as terminal:
        terminal.wait(lambda text: "op 1" in text, 60)
        terminal.keys(STORMS["two clicks beside the palette"])
        terminal.quiet()
        before = result.stat().st_size
        terminal.keys("\x1b[27u")
        terminal.wait(lambda text: "op 1" in text and result.stat().st_size > before, 60)
        leave(terminal)


def test_a_storm_of_sizes(terminal: Terminal) -> None:
    draw = random.Random(7)
    with terminal:
        for _ in range(150):
            terminal.resize(draw.randrange(0, 300), draw.randrange(0, 120))
            terminal.keys("j")
            terminal.read(0.005)
        terminal.resize(80, 24)
        terminal.wait(lambda text: "kernel_" in text)
        leave(terminal)


@pytest.mark.parametrize("action", ["page_up", "page_down"])
def test_no_page_is_turned_before_the_list_is_laid_out(action: str) -> None:
    """The moment between the list and its lines: on a slow terminal a key may fall into it."""

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await pilot.press("ctrl+p")
        await until(app, pilot, "quit")
        palette = app.screen
        assert isinstance(palette, Palette)
        commands = palette.query_one(CommandList)
        commands.highlighted = 1
        commands.styles.display = "none"  # as before its first layout: no room, and no line
        await pilot.pause()
        commands._clear_caches()
        palette._action_command_list(action)
        assert app.is_running and app.crash is None

    play(script, [decode()])
