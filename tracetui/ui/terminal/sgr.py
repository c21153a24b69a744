"""Fewer bytes for the same picture: only what changes in a style is sent."""

import re
from typing import Final

_SGR: Final = re.compile("\x1b\\[([0-9;]*)m")
_COLOUR: Final = re.compile("(?:^|;)([34]8;(?:2;\\d+;\\d+;\\d+|5;\\d+)|(?:3|4|9|10)\\d)(?=;|$)")

_MOVES: Final = re.compile("(?:\r\n|\x1b\\[[0-9;]*H)+")

Look = tuple[str, str, str]  # attributes, foreground, background
PLAIN: Final[Look] = ("", "", "")


def thinned(data: str) -> str:
    """Return terminal output in which a style that goes on is not closed and opened again.

    It begins and ends in the plain style, as every piece of Textual's output does.
    """
    out: list[str] = []
    sent = wanted = PLAIN
    at = 0
    for match in _SGR.finditer(data):
        if text := data[at : match.start()]:
            if _MOVES.fullmatch(text) or (text.isspace() and _blank_alike(sent, wanted)):
                out.append(text)
            else:
                out += (_change(sent, wanted), text)
                sent = wanted
        wanted = _after(wanted, match[1])
        at = match.end()
    out += (_change(sent, wanted), data[at:])
    return "".join(out)


def _after(style: Look, codes: str) -> Look:
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


def _blank_alike(one: Look, other: Look) -> bool:
    """Return whether blanks look the same in both styles."""
    return one[2] == other[2] and not one[0] and not other[0]


def _change(old: Look, new: Look) -> str:
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
