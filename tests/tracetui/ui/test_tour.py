"""The tour goes on when its reader has typed what it asks for, and not before."""

from typing import Any

import pytest
from textual.pilot import Pilot

from capture.open import load
from tests.tracetui.in_process import tracetui
from tests.tracetui.ui.hand import play, settle
from tracetui.samples import sample
from tracetui.ui.app import Explorer
from tracetui.ui.options import Options
from tracetui.ui.tour import FILES, STOPS

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


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_typing_what_it_says_leads_to_its_end(size: tuple[int, int]) -> None:
    places: list[int] = []

    async def walk(app: Explorer, pilot: "Pilot[Any]") -> None:
        assert app.tour is not None
        for keys in KEYS:
            places.append(app.tour.at)
            await pilot.press("j")  # what it does not ask for leaves it where it is
            await pilot.press("k")
            await settle(pilot)
            assert app.tour.at == places[-1]
            await pilot.press(*keys)
            await settle(pilot)
        places.append(app.tour.at)
        told = app.main.query_one("#tour").size.height
        assert told == len(app.tour.lines(size[0])) <= 2

    runs = [load(sample(name.removeprefix("sample:")), cache=False)[0] for name in FILES]
    play(walk, runs, Options(view="summary", tour=True), size)
    assert places == list(range(len(STOPS)))


def test_a_stop_fits_a_narrow_screen() -> None:
    app = Explorer(None, Options(tour=True))
    assert app.tour is not None
    for app.tour.at in range(len(STOPS)):
        assert len(app.tour.lines(80)) <= 2


def test_without_a_terminal_the_stops_are_printed() -> None:
    done = tracetui("--tour")
    assert done.returncode == 0 and "no terminal" in done.stderr
    assert len(done.stdout.splitlines()) == len(STOPS)


def test_without_a_tour_there_is_none() -> None:
    async def look(app: Explorer, pilot: "Pilot[Any]") -> None:
        assert app.tour is None and not app.main.query_one("#tour").display

    play(look, [load(sample("decode"), cache=False)[0]])
