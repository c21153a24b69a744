"""What a start without a file offers: files opened last, recordings, baselines, samples, the tour."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture import places, recent
from capture.text import clean, middle
from tracetui import units
from tracetui.samples import PREFIX, SAMPLES, resolved, sample

TOUR: Final = "t"
LEAVE: Final = ("", "q")
ASKED: Final = "a number, t for the tour, a path, or Enter to leave: "
_GROUPS: Final = {"opened last": 5, "recordings": 4, "baselines": 3, "samples": 4}  # and how many of each


@dataclass(frozen=True)
class Choice:
    """One thing that can be opened."""

    group: str
    path: Path
    name: str
    about: str = ""


def choices() -> list[Choice]:
    """Return what can be opened, by group; a file stands in the first group that has it."""
    seen: set[Path] = set()
    found: list[Choice] = []
    for choice in _of_groups():
        if choice.path not in seen and sum(c.group == choice.group for c in found) < _GROUPS[choice.group]:
            found.append(choice)
            seen.add(choice.path)
    return found


def _of_groups() -> Iterator[Choice]:
    for path in recent.recent():
        yield Choice("opened last", path, _at_home(path))
    for path in places.recordings():
        yield Choice("recordings", path.resolve(), path.stem, _size(path))
    for path in places.baselines():
        yield Choice("baselines", path.resolve(), f"baseline:{path.stem}", _size(path))
    for name, about in SAMPLES.items():
        yield Choice("samples", sample(name), PREFIX + name, about)


def lines(offered: Sequence[Choice], width: int) -> list[str]:
    """Return the menu: a heading a group, a number a choice, nothing wider than the terminal."""
    widest = max((len(clean(choice.name)) for choice in offered), default=0)
    room = max(20, min(widest, width - 6 if width < 60 else width // 2))
    out = []
    for number, choice in enumerate(offered, 1):
        if number == 1 or offered[number - 2].group != choice.group:
            out.append(choice.group)
        name = middle(clean(choice.name), room)
        out.append(f"{number:4}  {name:{room}}  {choice.about}"[:width].rstrip())
    return [*out, f"{TOUR:>4}  the tour: five minutes through a sample, you type the keys"]


def chosen(answer: str, offered: Sequence[Choice]) -> str | None:
    """Return the file or address that an answer means; None for a number that is none."""
    answer = answer.strip()
    if answer.isdecimal():
        number = int(answer)
        return str(offered[number - 1].path) if 0 < number <= len(offered) else None
    return os.path.expanduser(resolved(answer))  # noqa: PTH111 - a Path would spoil an address


def _at_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _size(path: Path) -> str:
    try:
        return units.size(path.stat().st_size)
    except OSError:
        return ""
