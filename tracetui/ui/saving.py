"""A view in a file: whole or not at all, and never over another file."""

import contextlib
import os
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.source import reason
from capture.text import clean

FORMATS: Final = {".csv": "csv", ".json": "json", ".md": "md", ".txt": "table", ".svg": "svg"}


def format_of(name: str) -> str:
    """What a file name asks for by its suffix."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError("a file name says by its end what to write", todo=f"end it in {', '.join(FORMATS)}")
    return FORMATS[suffix]


def save(name: str, text: str) -> Path:
    """Writes beside the target, then links it into place: that fails where a file stands already."""
    path = Path(name).expanduser()
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except (OSError, ValueError) as e:
        why = "a file of that name is there already" if isinstance(e, FileExistsError) else reason(e)
        raise UsageError(f"{clean(str(path), 500)} was not written", why=why) from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            draft.unlink()
    return path
