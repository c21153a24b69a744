"""Two marked steps, and two marked launches, are compared with `d`."""

from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tracetui.ui.hand import decode, play, press, screen
from tracetui.ui.app import Explorer

Pilots = Pilot[Any]
SIZES = ((80, 24), (120, 40), (200, 60))


@pytest.mark.parametrize("size", SIZES)
def test_two_marked_steps_are_compared(size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "5", "m", "down", "m", "d")
        lines = screen(app)
        assert "› Steps › step 1 and 2" in lines[0]
        assert lines[2].startswith(" step 2 (b) took ") and "step 1 (a: " in lines[2]
        assert lines[3].split()[:4] == ["what▲", "a", "b", "Δ"]
        await press(pilot, "escape")
        assert app.workspace.session.view == "steps"

    play(script, [decode()], size=size)


@pytest.mark.parametrize("size", SIZES)
def test_a_marked_launch_is_compared_with_that_under_the_cursor(size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter", "enter")
        assert "› Launches" in screen(app)[0]
        await press(pilot, "m", "down", "d")
        lines = screen(app)
        assert lines[2].startswith(" launch ") and "step 1 → 2" in lines[3]
        assert lines[4].split()[:4] == ["what", "a", "b", "Δ"]

    play(script, [decode()], size=size)


def test_d_without_a_mark_keeps_its_meaning_and_tells_about_launches() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "5", "d")
        assert app.workspace.session.view == "diff"
        await press(pilot, "2", "enter", "enter", "d")
        assert app.workspace.session.view == "launches"
        assert "mark one with m" in screen(app)[-2]
        await press(pilot, "m", "down", "m", "down", "m", "d")
        assert "marked: 3" in screen(app)[-2]

    play(script, [decode("one"), decode("two")])


def test_d_with_marked_kernels_says_which_marks_it_compares() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "m", "down", "m", "d")
        assert "d compares two marked steps or launches" in screen(app)[-2]

    play(script, [decode()], size=(80, 24))


def test_d_typed_ahead_waits_for_the_steps() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "5", "m", "down", "m", "2")
        for key in ("5", "d"):
            app.keyboard.press(key, key)
        await press(pilot)
        assert "step 1 and 2" in screen(app)[0]

    play(script, [decode("one"), decode("two")])


def test_marks_that_wait_for_a_slow_answer_are_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that lead elsewhere skip those that have waited for long, but not the marks that they compare."""
    monkeypatch.setattr("tracetui.ui.keyboard.STALE_KEY_S", 0.0)

    async def script(app: Explorer, pilot: Pilots) -> None:
        for key in ("5", "m", "down", "m", "d"):
            app.keyboard.press(key, key if len(key) == 1 else None)
        await press(pilot)
        assert "› Steps › step 1 and 2" in screen(app)[0]

    play(script, [decode()])
