"""A view in a file, in the format that the file's name ends in."""

from pathlib import Path
from typing import Final

from capture.atomic import whole_file
from capture.errors import UsageError
from tracetui.views import View

FORMATS: Final = {".md": "md", ".csv": "csv", ".json": "json", ".txt": "table", ".svg": "svg"}
MOST: Final = 100  # exports of one view that are numbered


def format_of(name: str) -> str:
    """What a file name asks for by its suffix."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError("a file name says by its end what to write", todo=f"end it in {', '.join(FORMATS)}")
    return FORMATS[suffix]


def proposed(view: View) -> str:
    """A name that is free here: what was compared is told as Markdown, what was measured goes on as CSV."""
    stem, suffix = view.name, ".md" if view.runs == 2 else ".csv"
    names = (f"{stem}{number}{suffix}" for number in ("", *(f"-{n}" for n in range(2, MOST))))
    return next((name for name in names if not Path(name).exists()), f"{stem}{suffix}")


def other_ending(name: str) -> str:
    """The same name with the next of the endings."""
    path, known = Path(name), list(FORMATS)
    suffix = path.suffix.lower()
    place = known.index(suffix) + 1 if suffix in known else 0
    stem = name.removesuffix(path.suffix) if suffix in known else name
    return stem + known[place % len(known)]


def save(name: str, text: str) -> Path:
    """Whole or not at all, and never over another file."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        path = Path(name)
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    return path
