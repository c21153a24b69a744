"""The screen of every view in five themes, as golden texts: what stands there, and in which colours.

A text has the lines of the screen; below each, a letter for every cell; and what a letter is in each theme.
"""

import string
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

import pytest
from rich.style import Style
from textual.pilot import Pilot

from tests.tracetui.runs import decode
from tests.tracetui.ui.hand import play, settle
from tests.tracetui.ui.test_colours import READABLE, contrast
from tests.tracetui.views.test_views import everything
from tracetui.ui.app import Explorer
from tracetui.ui.options import Options
from tracetui.ui.terminal.theme import NAMES
from tracetui.views import VIEWS, view, views

Pilots = Pilot[Any]
Cells = list[tuple[str, Style]]
Screens = dict[str, dict[str, list[Cells]]]  # view → theme → lines

SIZE = (80, 24)
LETTERS = "." + string.ascii_letters + string.digits
WITHOUT = "none"
FOCUSED = {
    "detail": (("op", "mlp.down"),),
    "calls": (("scope", "layers 0–5"),),
    "pair": (("name", "ffn_down"),),
}
SHOWN = [v.name for v in views() if v.name not in ("sections", "cycles", "sides")]  # which want other sources


def cells(app: Explorer) -> list[Cells]:
    """Each character of the screen with its style, line by line."""
    strips = app.screen._compositor.render_strips()
    return [[(c, s.style or Style()) for s in strip for c in s.text] for strip in strips]


@cache
def screens() -> Screens:
    """Every view in the themes with colour, from one screen."""
    found: Screens = {}

    async def script(app: Explorer, pilot: Pilots) -> None:
        for name in SHOWN:
            session = app.workspace.session.on_view(name)
            focus = FOCUSED.get(name)
            app.questions.show(session.inside(name, focus) if focus else session)
            await settle(pilot)
            found[name] = {}
            for theme, full in NAMES.items():
                app.theme = full
                await pilot.pause()
                await pilot.pause()
                found[name][theme] = cells(app)

    runs = [decode(steps=40, layers=6), everything()]
    play(script, runs, Options(view="summary", run="2", baseline="1"), size=SIZE)
    return found


def told(style: Style) -> str:
    """A style in words that do not hang on how it was made."""
    attributes = [a for a in ("bold", "dim", "italic", "underline", "reverse") if getattr(style, a)]
    front, back = (c.name if c is not None else "-" for c in (style.color, style.bgcolor))
    return " ".join([f"{front} on {back}", *attributes])


def described(of_themes: dict[str, list[Cells]]) -> Iterator[str]:
    """The golden text of one view."""
    letters: dict[tuple[str, ...], str] = {}
    themes = list(of_themes)
    for lines in zip(*of_themes.values(), strict=True):
        text = "".join(c for c, _ in lines[0])
        assert all("".join(c for c, _ in line) == text for line in lines), "a theme changes the words"
        looks = [tuple(told(style) for _, style in cell) for cell in zip(*lines, strict=True)]
        row = "".join(letters.setdefault(look, LETTERS[len(letters)]) for look in looks)
        yield text.rstrip()
        yield "  " + " ".join(f"{letter}{len(list(run))}" for letter, run in groupby(row))
    for look, letter in letters.items():
        yield f"{letter} = " + "; ".join(f"{theme}: {own}" for theme, own in zip(themes, look, strict=True))


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"pictures/{name}", "\n".join(described(screens()[name])) + "\n")


@pytest.mark.parametrize("theme", ["dark", "light", "colour-blind"])
@pytest.mark.parametrize("name", SHOWN)
def test_all_that_stands_on_the_screen_can_be_read(name: str, theme: str) -> None:
    words = {style for line in screens()[name][theme] for c, style in line if c.isalnum()}
    weak = {told(s): round(contrast(s), 2) for s in words if contrast(s) < READABLE}
    assert weak == {}


@pytest.mark.parametrize("name", SHOWN)
def test_sixteen_colours_are_those_of_the_terminal(name: str) -> None:
    styles = {style for line in screens()[name]["ansi"] for _, style in line}
    colours = {c for s in styles for c in (s.color, s.bgcolor) if c is not None}
    assert [c.name for c in colours if not (c.is_default or (c.number is not None and c.number < 16))] == []


def test_without_colour_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    seen: list[str] = []

    async def script(app: Explorer, pilot: Pilots) -> None:
        for name in SHOWN[:6]:
            app.questions.show(app.workspace.session.on_view(name))
            await settle(pilot)
            for line in cells(app):
                for _, style in line:
                    coloured = [c for c in (style.color, style.bgcolor) if c is not None and not c.is_default]
                    seen.extend(c.name for c in coloured)

    play(script, [everything()], Options(view="summary"), size=SIZE)
    assert set(seen) == set()


def test_every_view_has_its_picture() -> None:
    left_out = {"sections", "cycles", "sides"}
    assert set(SHOWN) | left_out == {view("import" if m == "imported" else m).name for m in VIEWS}
