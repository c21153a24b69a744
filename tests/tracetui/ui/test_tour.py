"""The tour goes on when its reader has typed what it asks for, and not before."""

from typing import Any

import pytest
from textual.pilot import Pilot

from capture.load_runs import load
from tests.tracetui.in_process import tracetui
from tests.tracetui.ui.hand import play, settle
from tracetui.samples import find_sample
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.tour import TOUR_FILES, TOUR_STEPS

KEYS = (
    ("2",),
    ("s",),
    ("slash", *"norm", "enter"),
    ("escape",),
    ("enter",),
    ("escape",),
    ("o",),
    ("3",),
    ("4",),
    ("F",),
    ("d",),
    ("question_mark",),
)


@pytest.mark.corpus
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.slow
def test_typing_what_it_says_leads_to_its_end(size: tuple[int, int]) -> None:
    places: list[int] = []

    async def walk(app: Explorer, pilot: "Pilot[Any]") -> None:
        assert app.tour is not None
        for keys in KEYS:
            places.append(app.tour.step_index)
            await pilot.press("j")  # what it does not ask for leaves it where it is
            await pilot.press("k")
            await settle(pilot)
            assert app.tour.step_index == places[-1]
            await pilot.press(*keys)
            await settle(pilot)
        places.append(app.tour.step_index)
        actual = app.main_screen.query_one("#tour").size.height
        assert actual == len(app.tour.draw(size[0])) <= 2

    runs = [load(find_sample(name.removeprefix("sample:")), cache=False)[0] for name in TOUR_FILES]
    play(walk, runs, ScreenOptions(view="summary", tour=True), size)
    assert places == list(range(len(TOUR_STEPS)))


def test_a_stop_fits_a_narrow_screen() -> None:
    app = Explorer(None, ScreenOptions(tour=True))
    assert app.tour is not None
    for app.tour.step_index in range(len(TOUR_STEPS)):
        assert len(app.tour.draw(80)) <= 2


def test_without_a_terminal_the_stops_are_printed() -> None:
    result = tracetui("--tour")
    assert result.returncode == 0 and "no terminal" in result.stderr
    assert len(result.stdout.splitlines()) == len(TOUR_STEPS)


def test_without_a_tour_there_is_none() -> None:
    async def look(app: Explorer, pilot: "Pilot[Any]") -> None:
        assert app.tour is None and not app.main_screen.query_one("#tour").display

    play(look, [load(find_sample("decode"), cache=False)[0]])
