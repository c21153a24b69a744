"""The screen of every view in five themes, as golden texts: what stands there, and in which colours.

A text has the lines of the screen; below each, a letter for every cell; and what a letter is in each theme.
"""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from textual.pilot import Pilot

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES
from tests.tracetui.analysis.test_ranks import together
from tests.tracetui.analysis.test_training import training_run
from tests.tracetui.runs import decode
from tests.tracetui.ui.hand import play, settle
from tests.tracetui.ui.test_colours import READABLE, as_xterm, contrast
from tests.tracetui.views.test_views import everything
from tracetui.glyphs import CHANGE_SIGNS, NARROW_CHANGE_SIGNS
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.terminal.theme import NAMES
from tracetui.views import load_views

pytestmark = pytest.mark.xdist_group("pictures")  # all views are drawn once

Pilots = Pilot[Any]
Cells = list[tuple[str, Style]]
Screens = dict[str, dict[str, list[Cells]]]  # view → theme → lines

SIZE = (80, 24)
LETTERS = "." + string.ascii_letters + string.digits + "".join(map(chr, range(0xC0, 0x100)))
NONE = "none"
SIGNS = {*"".join(CHANGE_SIGNS), *NARROW_CHANGE_SIGNS, *"!+-%"}
FOCUSED = {
    "detail": (("op", "mlp.down"),),
    "calls": (("scope", "layers 0–5"),),
    "pair": (("name", "ffn_down"),),
}
SHOWN = [v.name for v in load_views()]


def cells(app: Explorer) -> list[Cells]:
    """Each character of the screen with its style, line by line."""
    strips = app.screen._compositor.render_strips()
    return [[(c, s.style or Style()) for s in strip for c in s.text] for strip in strips]


def sources() -> Iterator[tuple[list[Run], list[str]]]:
    """Runs, and the views that are shown of them: most of two alike, the others of what feeds them."""
    loaded = {
        "sections": ["metallic/recording.jsonl"],
        "cycles": ["latencyprism/normal_perf_data.csv", "latencyprism/abnormal_perf_data.csv"],
    }
    ranked = together([{0: 100, 1: 104, 2: 99, 3: 120 + step} for step in range(8)])
    own = {"ranks": [ranked], "rankmap": [ranked], "collectives": [ranked], "training": [training_run()]}
    yield [decode(steps=40, layers=6), everything()], [n for n in SHOWN if n not in (*loaded, *own)]
    for name, runs in own.items():
        yield runs, [name]
    for name, files in loaded.items():
        with chdir(FIXTURES):  # so that no folder of this machine stands on the screen
            runs = [load(Path(file), cache=False)[0] for file in files]
        yield runs, [name]


@cache
def screens() -> Screens:
    """Every view in every theme: in those with colour from one screen, without colour from another one."""
    found: Screens = {name: {} for name in SHOWN}
    for runs, names in sources():
        _show(runs, names, NAMES, found)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NO_COLOR", "1")
            _show(runs, names, {NONE: ""}, found)
    return found


def _show(runs: list[Run], names: list[str], themes: Mapping[str, str], found: Screens) -> None:
    """Adds the views of these runs to what is found."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        for name in names:
            session = app.workspace.session.with_view(name)
            focus = FOCUSED.get(name)
            app.answers.show_session(session.drill_down(name, focus) if focus else session)
            await settle(pilot)
            for theme, full in themes.items():
                app.theme = full or app.theme
                await pilot.pause()
                await pilot.pause()
                found[name][theme] = cells(app)

    two = ScreenOptions(view="summary", run="2", baseline="1")
    play(script, runs, two if len(runs) > 1 else ScreenOptions(view="summary"), size=SIZE)


def told(style: Style) -> str:
    """A style in words that do not hang on how it was made."""
    attributes = [a for a in ("bold", "dim", "italic", "underline", "reverse") if getattr(style, a)]
    front, back = (c.name if c is not None else "-" for c in (style.color, style.bgcolor))
    return " ".join([f"{front} on {back}", *attributes])


def text(line: Cells) -> str:
    return "".join(c for c, _ in line)


def described(of_themes: dict[str, list[Cells]]) -> Iterator[str]:
    """The golden text of one view; a line that has other words without colour stands there twice."""
    letters: dict[tuple[str, ...], str] = {}
    *colours, none = of_themes
    assert none == NONE

    def rows(lines: Sequence[Cells], head: str) -> Iterator[str]:
        """The text of a line, and its looks."""
        columns = zip(*lines, strict=True)
        looks = [tuple(told(s) if s is not None else "" for _, s in column) for column in columns]
        row = "".join(letters.setdefault(look, LETTERS[len(letters)]) for look in looks)
        yield (head + text(lines[0])).rstrip()
        yield "  " + " ".join(f"{letter}{len(list(run))}" for letter, run in groupby(row))

    for lines in zip(*of_themes.values(), strict=True):
        *coloured, plain = lines
        assert len({text(line) for line in coloured}) == 1, "a theme changes the words"
        nowhere = [(c, None) for c, _ in coloured[0]]
        if text(plain) == text(coloured[0]):
            yield from rows(lines, "")
        else:
            yield from rows([*coloured, nowhere], "")
            yield from rows([*([(c, None) for c, _ in plain] for _ in colours), plain], "without colour: ")
    for look, letter in letters.items():
        own = (f"{theme}: {how}" for theme, how in zip(of_themes, look, strict=True) if how)
        yield f"{letter} = " + "; ".join(own)


@pytest.mark.corpus
@pytest.mark.parametrize("name", SHOWN)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"pictures/{name}", "\n".join(described(screens()[name])) + "\n")


@pytest.mark.parametrize("theme", sorted(NAMES))
@pytest.mark.parametrize("name", SHOWN)
def test_all_that_stands_on_the_screen_can_be_read(name: str, theme: str) -> None:
    """Words and the signs of cells; sixteen colours as xterm has them."""
    seen = {s for line in screens()[name][theme] for c, s in line if c.isalnum() or c in SIGNS}
    shown = {as_xterm(style) for style in seen} if theme == "ansi" else seen
    weak = {told(s): round(contrast(s), 2) for s in shown if contrast(s) < READABLE}
    assert weak == {}


@pytest.mark.parametrize("name", SHOWN)
def test_sixteen_colours_are_those_of_the_terminal(name: str) -> None:
    styles = {style for line in screens()[name]["ansi"] for _, style in line}
    colours = {c for s in styles for c in (s.color, s.bgcolor) if c is not None}
    assert [c.name for c in colours if not (c.is_default or (c.number is not None and c.number < 16))] == []


@pytest.mark.parametrize("name", SHOWN)
def test_without_colour_there_is_none(name: str) -> None:
    styles = {style for line in screens()[name][NONE] for _, style in line}
    assert [c for s in styles for c in (s.color, s.bgcolor) if c is not None and not c.is_default] == []


@pytest.mark.parametrize(("name", "odd"), [("layers", "+100%!"), ("shifts", "+100%"), ("rankmap", "+18%")])
def test_the_hottest_cell_says_it_without_colour(name: str, odd: str) -> None:
    """Rank 3 works 120 µs where the median of 100, 104, 99 and 120 is 102: 18 % over it."""
    assert any(odd in text(line) for line in screens()[name][NONE])


@pytest.mark.parametrize("name", SHOWN)
def test_every_picture_is_of_what_feeds_the_view(name: str) -> None:
    shown = "\n".join(text(line) for line in screens()[name]["dark"])
    assert "needs it" not in shown and "does not tell several" not in shown
