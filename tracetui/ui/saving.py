"""A view in a file, in the format that the file's name ends in."""

from pathlib import Path
from typing import Final

from capture.atomic import whole_file
from capture.errors import UsageError

FORMATS: Final = {".csv": "csv", ".json": "json", ".md": "md", ".txt": "table", ".svg": "svg"}


def format_of(name: str) -> str:
    """What a file name asks for by its suffix."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError("a file name says by its end what to write", todo=f"end it in {', '.join(FORMATS)}")
    return FORMATS[suffix]


def save(name: str, text: str) -> Path:
    """Whole or not at all, and never over another file."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        path = Path(name)
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    return path
