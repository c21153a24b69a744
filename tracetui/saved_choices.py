"""Save the user's choices in small text files, one per line, editable: columns of views and linked rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.files import user_dirs
from capture.files.atomic import write_atomically
from tracetui.look import RowLink

COLUMNS_HEAD = """\
# Columns chosen on the screen with v: a view and its columns per line, separated by tabs.
# The section [columns] of the config file takes precedence.
"""
LINKS_HEAD = """\
# Rows that are the same work under different names: diff reads this file, M on its screen writes it.
# A line has file of a, file of b, row of a, row of b, separated by tabs; * in file names matches anything.
"""


def load_columns() -> dict[str, tuple[str, ...]]:
    """Load the columns of each view."""
    lines = (clean(line.replace("\t", " ")).split() for line in _read_lines(user_dirs.find_columns_file()))
    return {view: tuple(columns) for view, *columns in filter(None, lines) if columns}


def save_columns(columns: Mapping[str, tuple[str, ...]]) -> None:
    """Save the columns of all views atomically; raise CaptureError without a private folder."""
    lines = ((view, *chosen) for view, chosen in sorted(columns.items()) if chosen)
    _write_lines(user_dirs.find_columns_file(), "columns", COLUMNS_HEAD, lines)


def load_links() -> tuple[RowLink, ...]:
    """Load the links; lines that are not links are skipped."""
    lines = (line.split("\t") for line in _read_lines(user_dirs.find_links_file()) if line.strip())
    return tuple(RowLink(clean(a), clean(b), fa, fb) for fa, fb, a, b in (p for p in lines if len(p) == 4))


def save_links(links: tuple[RowLink, ...]) -> None:
    """Save all links atomically; raise CaptureError without a private folder."""
    lines = ((k.file_a, k.file_b, k.a, k.b) for k in links)
    _write_lines(user_dirs.find_links_file(), "links", LINKS_HEAD, lines)


def _read_lines(file: Path | None) -> list[str]:
    """Return the lines that are no comments; none if there is no readable file."""
    try:
        text = file.read_text("utf-8", "replace") if file else ""
    except OSError:
        return []
    return [line for line in text.splitlines() if not line.startswith("#")]


def _write_lines(place: Path | None, what: str, head: str, lines: Iterable[Sequence[str]]) -> None:
    if place is None:
        raise CaptureError(f"there is no private folder to save {what} in", todo="set XDG_STATE_HOME")
    with write_atomically(place, overwrite=True) as file:
        file.write((head + "".join("\t".join(words) + "\n" for words in lines)).encode())
