"""A view in a file, in the format that the file's name ends in."""

from pathlib import Path
from typing import Final

from capture.atomic import whole_file
from capture.errors import UsageError
from tracetui.views import View

FORMATS: Final = {
    ".md": "md",
    ".csv": "csv",
    ".json": "json",
    ".txt": "table",
    ".html": "html",
    ".svg": "svg",
    ".png": "png",
}
PICTURES: Final = ("svg", "png")
MOST: Final = 100  # exports of one view that are numbered


def format_of(name: str) -> str:
    """Return the format that a file name asks for by its suffix. Raises UsageError for any other suffix."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError("a file name says by its end what to write", todo=f"end it in {', '.join(FORMATS)}")
    return FORMATS[suffix]


def is_picture(name: str) -> bool:
    """Tell whether a file name asks for a picture of the screen."""
    return FORMATS.get(Path(name).suffix.lower()) in PICTURES


def proposed(view: View) -> str:
    """Return a name that no file here has: `.md` for a view of two runs, `.csv` for the others."""
    stem, suffix = view.name, ".md" if view.runs == 2 else ".csv"
    names = (f"{stem}{number}{suffix}" for number in ("", *(f"-{n}" for n in range(2, MOST))))
    return next((name for name in names if not Path(name).exists()), f"{stem}{suffix}")


def other_ending(name: str) -> str:
    """Return the name with the next of the endings in place of its own."""
    path, endings = Path(name), list(FORMATS)
    suffix = path.suffix.lower()
    place = endings.index(suffix) + 1 if suffix in endings else 0
    stem = name.removesuffix(path.suffix) if suffix in endings else name
    return stem + endings[place % len(endings)]


def save(name: str, content: bytes) -> Path:
    """Write the file whole or not at all. Raises UsageError where it exists."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        path = Path(name)
    with whole_file(path) as file:
        file.write(content)
    return path
