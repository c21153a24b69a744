"""Styles as a terminal is told them: what a sequence makes of a style, and the shortest way between two."""

import re
from functools import lru_cache
from typing import Final

_COLOUR: Final = re.compile("(?:^|;)([34]8;(?:2;\\d+;\\d+;\\d+|5;\\d+)|(?:3|4|9|10)\\d)(?=;|$)")

Style = tuple[str, str, str]  # attributes, foreground, background
PLAIN: Final[Style] = ("", "", "")


@lru_cache(maxsize=1 << 10)  # a theme has a few dozen, and each is asked for again with every line
def after(style: Style, codes: str) -> Style:
    """Return the style that a sequence leads to."""
    if codes in ("", "0"):
        return PLAIN
    attributes, front, back = style
    rest = codes
    for colour in _COLOUR.findall(codes):
        if colour.startswith(("4", "10")):
            back = colour
        else:
            front = colour
        rest = rest.replace(colour, "", 1)
    added = ";".join(code for code in rest.split(";") if code)
    return (f"{attributes};{added}" if attributes and added else attributes or added, front, back)


def of_blank(style: Style) -> Style:
    """Return the style of a blank, which has no ink, unless an attribute draws on it."""
    return style if style[0] else ("", "", style[2])


@lru_cache(maxsize=1 << 10)
def change(old: Style, new: Style) -> str:
    """Return the shortest sequence between two styles; an attribute or a default needs a fresh start."""
    if old == new:
        return ""
    if new == PLAIN:
        return "\x1b[0m"
    fresh = old[0] != new[0] or any(was and not now for was, now in zip(old[1:], new[1:], strict=True))
    codes = (
        ["0", *new]
        if fresh and old != PLAIN
        else [now for was, now in zip(old, new, strict=True) if was != now]
    )
    return f"\x1b[{';'.join(code for code in codes if code)}m"
