"""Menu shown without a file: recent files, recordings, baselines, samples, the tour."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture.clean_text import clean, shorten_middle
from capture.files import recent_files, user_dirs
from tracetui import units
from tracetui.samples import SAMPLE_PREFIX, SAMPLES, find_sample, resolve_file

TOUR: Final = "t"
LEAVE: Final = ("", "q")
PROMPT: Final = "a number, t for the tour, a path, or Enter to leave: "
_MAX_PER_GROUP: Final = {"opened last": 5, "recordings": 4, "baselines": 3, "samples": 4}  # entries


@dataclass(frozen=True)
class MenuEntry:
    """One thing that can be opened."""

    group: str
    path: Path
    name: str
    description: str = ""


def list_entries() -> list[MenuEntry]:
    """List what can be opened, by group; a file is listed once, in its first group."""
    entries: dict[Path, MenuEntry] = {}
    counts = Counter[str]()
    for entry in _iter_entries():
        if entry.path not in entries and counts[entry.group] < _MAX_PER_GROUP[entry.group]:
            entries[entry.path] = entry
            counts[entry.group] += 1
    return list(entries.values())


def _iter_entries() -> Iterator[MenuEntry]:
    for path in recent_files.list_recent():
        yield MenuEntry("opened last", path, _format_home_path(path))
    for path in user_dirs.list_recordings():
        yield MenuEntry("recordings", path.resolve(), path.stem, _format_file_size(path))
    for path in user_dirs.list_baselines():
        yield MenuEntry("baselines", path.resolve(), f"baseline:{path.stem}", _format_file_size(path))
    for name, about in SAMPLES.items():
        yield MenuEntry("samples", find_sample(name), SAMPLE_PREFIX + name, about)


def format_menu(offered: Sequence[MenuEntry], width: int) -> list[str]:
    """Return the lines of the menu: a heading per group, a number per entry, cut to the width."""
    widest = max((len(clean(choice.name)) for choice in offered), default=0)
    room = max(20, min(widest, width - 6 if width < 60 else width // 2))
    out = []
    for number, choice in enumerate(offered, 1):
        if number == 1 or offered[number - 2].group != choice.group:
            out.append(choice.group)
        name = shorten_middle(clean(choice.name), room)
        out.append(f"{number:4}  {name:{room}}  {choice.description}"[:width].rstrip())
    return [*out, f"{TOUR:>4}  the tour: five minutes through a sample, you type the keys"]


def resolve_choice(answer: str, offered: Sequence[MenuEntry]) -> str | None:
    """Return the file or address that the user's answer means; None for a number out of range."""
    answer = answer.strip()
    if answer.isdecimal():
        number = int(answer)
        return str(offered[number - 1].path) if 0 < number <= len(offered) else None
    return os.path.expanduser(resolve_file(answer))  # noqa: PTH111 - a Path would spoil an address


def _format_home_path(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _format_file_size(path: Path) -> str:
    try:
        return units.format_size(path.stat().st_size)
    except OSError:
        return ""
