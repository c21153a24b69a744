"""Fewer bytes, the same picture."""

import pyte
from hypothesis import given
from hypothesis import strategies as st

from tracetui.ui.terminal.sgr import thinned

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
SEQUENCES = st.lists(CODES, min_size=1, max_size=4).map(lambda codes: f"\x1b[{';'.join(codes)}m")
PIECES = st.one_of(st.text("ab ", max_size=5), SEQUENCES, st.just("\x1b[0m"), st.just("\x1b[3;5H"))


def picture(data: str) -> list[list[tuple[object, ...]]]:
    screen = pyte.Screen(20, 6)
    pyte.Stream(screen).feed(data)
    return [[_seen(screen.buffer[y][x]) for x in range(20)] for y in range(6)]


def _seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    """What an eye can tell: a blank has no ink, unless it is underlined, struck out or turned round."""
    inked = cell.data != " " or cell.underscore or cell.strikethrough or cell.reverse
    return tuple(cell if inked else cell._replace(fg="", bold=False, italics=False, blink=False))


@given(st.lists(PIECES, max_size=25))
def test_the_picture_is_the_same(pieces: list[str]) -> None:
    data = "".join(pieces) + "\x1b[0m"
    assert picture(thinned(data)) == picture(data)
    assert thinned(data).endswith(data.rsplit("m", 1)[1])


def test_a_style_that_goes_on_is_sent_once() -> None:
    row = "\x1b[38;2;1;2;3;48;2;4;5;6mab\x1b[0m\x1b[38;2;9;9;9;48;2;4;5;6mcd\x1b[0m"
    assert thinned(row + row[: row.index("\x1b[0m") + 4]) == (
        "\x1b[38;2;1;2;3;48;2;4;5;6mab\x1b[38;2;9;9;9mcd\x1b[38;2;1;2;3mab\x1b[0m"
    )
