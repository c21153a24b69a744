"""Remember the files opened last: one path per line of a small private file, newest first."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.errors import CaptureError
from capture.files.addresses import is_url
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_state_folder

MAX_FILES: Final = 20
_MAX_PATH_CHARS: Final = 4096


def list_recent() -> list[Path]:
    """Return the files and folders opened last that still exist, newest first."""
    return [path for path in map(Path, _read_lines()) if path.exists()]


def remember(files: Sequence[str]) -> None:
    """Add files to the list; URLs, streams and names with line breaks are skipped."""
    local = [file for file in files if file != "-" and not is_url(file) and "\n" not in file]
    opened = [os.path.realpath(file) for file in local if Path(file).exists()]
    lines = list(dict.fromkeys((*opened, *_read_lines())))[:MAX_FILES]
    folder = find_state_folder()
    if folder is None or not opened:
        return
    with (
        suppress(CaptureError, UnicodeEncodeError),
        write_atomically(folder / "recent", overwrite=True) as file,
    ):
        file.write("".join(f"{line}\n" for line in lines if len(line) < _MAX_PATH_CHARS).encode())


def _read_lines() -> list[str]:
    folder = find_state_folder()
    try:
        text = (folder / "recent").read_text("utf-8", "replace") if folder else ""
    except OSError:
        return []
    return [line for line in text.splitlines() if line.startswith("/")][:MAX_FILES]
