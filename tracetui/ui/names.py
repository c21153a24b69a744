"""Long names in few cells: cut in the middle, and where two come out alike, told apart."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

from tracetui.ui.terminal.paint import fit, width_of

LEAST = 8  # below this width there is no room to tell anything apart


def shortened(names: Sequence[str], width: int) -> dict[str, str]:
    """Return what each name is shortened to; different names look different wherever the width allows."""
    distinct = dict.fromkeys(names)
    cut = {name: fit(name, width).rstrip() for name in distinct}
    if width < LEAST:
        return cut
    for alike in _alike(cut):
        cut |= apart(alike, width)
    return cut


def apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Return names that look alike cut so that their first difference shows, or numbered."""
    start = _common(names)
    head = max(1, width // 3)
    cut = {name: _around(name, start, head, width) for name in names}
    for alike in _alike(cut):
        for number, name in enumerate(alike, 1):
            mark = f"~{number}"
            cut[name] = fit(cut[name], max(1, width - len(mark))).rstrip() + mark
    return cut


def _common(names: Sequence[str]) -> int:
    """Return how many characters all names begin with."""
    return sum(1 for _ in takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False)))


def _around(name: str, start: int, head: int, width: int) -> str:
    """Return the head of a name, a gap, and what follows from just before a position."""
    if start <= head:
        return fit(name, width).rstrip()
    tail = width - head - 1
    begin = max(head, min(start - 2, len(name) - tail))
    text = f"{name[:head]}…{name[begin : begin + tail]}"
    while width_of(text) > width:
        text = text[:-1]
    return text


def _alike(cut: dict[str, str]) -> list[list[str]]:
    by_look: defaultdict[str, list[str]] = defaultdict(list)
    for name, look in cut.items():
        by_look[look].append(name)
    return [names for names in by_look.values() if len(names) > 1]
