"""Fewer bytes, the same picture."""

import pyte
from hypothesis import given
from hypothesis import strategies as st

from tracetui.ui.terminal.screen_diff import ScreenCache

WIDTH, HEIGHT = 20, 6
CODES = st.sampled_from(
    [
        "1",
        "2",
        "3",
        "4",
        "7",
        "31",
        "42",
        "93",
        "104",
        "38;5;9",
        "48;5;200",
        "38;2;1;2;3",
        "48;2;40;31;7",
        "39;49",
    ]
)
STYLES = st.lists(CODES, min_size=1, max_size=4).map(lambda codes: f"\x1b[{';'.join(codes)}m")
TEXTS = st.text("ab ▂é", min_size=1, max_size=8)
PLACED = st.tuples(st.integers(1, HEIGHT), st.integers(1, WIDTH - 16))


@st.composite
def drawings(draw: st.DrawFn) -> str:
    """What Textual writes at once: texts in styles, each line from a place on."""
    out = []
    for row, column in draw(st.lists(PLACED, max_size=4, unique_by=lambda place: place[0])):
        out.append(f"\x1b[{row};{column}H")
        for style, text in draw(st.lists(st.tuples(STYLES, TEXTS), max_size=2)):
            out += [style, text, "\x1b[0m"]
    return "".join(out)


def picture(pieces: list[str]) -> list[list[tuple[object, ...]]]:
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    for data in pieces:
        stream.feed(data)
    return [[_seen(screen.buffer[y][x]) for x in range(WIDTH)] for y in range(HEIGHT)]


def _seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    """What an eye can tell: a blank has no ink, unless it is underlined, struck out or turned round."""
    inked = cell.data != " " or cell.underscore or cell.strikethrough or cell.reverse
    return tuple(cell if inked else cell._replace(fg="", bold=False, italics=False, blink=False))


@given(st.lists(drawings(), max_size=8), st.integers(0, 8))
def test_the_picture_is_the_same(pieces: list[str], forgotten: int) -> None:
    seen, sent = ScreenCache(), []
    for number, data in enumerate(pieces):
        if number == forgotten:
            seen.forget()
        sent.append(seen.reduce_output(data))
        assert picture(sent) == picture(pieces[: number + 1])


@given(drawings())
def test_nothing_is_sent_twice(data: str) -> None:
    seen = ScreenCache()
    seen.reduce_output(data)
    assert "".join(c for c in seen.reduce_output(data) if c in "ab▂é") == ""


def test_only_what_differs_is_sent_and_a_style_that_goes_on_once() -> None:
    seen = ScreenCache()
    first = "\x1b[2;1H\x1b[38;2;1;2;3;48;2;4;5;6mgemm_0001\x1b[0m\x1b[38;2;9;9;9;48;2;4;5;6m 12 ms\x1b[0m"
    assert seen.reduce_output(first) == (
        "\x1b[2;1H\x1b[38;2;1;2;3;48;2;4;5;6mgemm_0001\x1b[38;2;9;9;9m 12 ms\x1b[0m"
    )
    assert seen.reduce_output(first.replace("0001", "0002").replace("12", "13")) == (
        "\x1b[2;9H\x1b[38;2;1;2;3;48;2;4;5;6m2\x1b[2C\x1b[38;2;9;9;9m3\x1b[0m"
    )


def test_wide_characters_are_sent_again_and_what_stands_beside_them_is_right() -> None:
    """Terminals differ in how wide they are: nothing after them on the line is taken for known."""
    line = "\x1b[1;1Ha漢b\x1b[1;5Hcd"
    seen = ScreenCache()
    assert picture([seen.reduce_output(line)]) == picture([line])
    assert "漢" in seen.reduce_output(line)


def test_nothing_is_known_after_what_is_not_understood() -> None:
    seen, line = ScreenCache(), "\x1b[1;1Hab"
    assert seen.reduce_output(line) == line
    assert seen.reduce_output(line) == ""
    assert seen.reduce_output(line + "\x1b[2;2H") == "\x1b[2;2H"
    assert seen.reduce_output("\x1b[2J") == "\x1b[2J"
    assert seen.reduce_output(line) == line
