"""Which files were opened last: a line each in a small private file, the newest first."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.addresses import is_url
from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.places import state_folder

MOST: Final = 20  # files that are remembered
_LONGEST: Final = 4096  # characters of a path


def recent() -> list[Path]:
    """Return the files and folders that were opened last and still exist, the newest first."""
    return [path for path in map(Path, _lines()) if path.exists()]


def remember(files: Sequence[str]) -> None:
    """Put files in front of the others; addresses, streams and names of several lines are not kept. Where
    there is no private folder nothing is.
    """
    named = [file for file in files if file != "-" and not is_url(file) and "\n" not in file]
    opened = [os.path.realpath(file) for file in named if Path(file).exists()]
    lines = list(dict.fromkeys((*opened, *_lines())))[:MOST]
    folder = state_folder()
    if folder is None or not opened:
        return
    with suppress(CaptureError, UnicodeEncodeError), whole_file(folder / "recent", overwrite=True) as file:
        file.write("".join(f"{line}\n" for line in lines if len(line) < _LONGEST).encode())


def _lines() -> list[str]:
    folder = state_folder()
    try:
        text = (folder / "recent").read_text("utf-8", "replace") if folder else ""
    except OSError:
        return []
    return [line for line in text.splitlines() if line.startswith("/")][:MOST]
