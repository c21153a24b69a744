"""Writes files that are whole or not there: beside their place first, then moved into it at once."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from capture.errors import CaptureError, UsageError
from capture.source import reason
from capture.text import clean

_NEW: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)


@contextmanager
def whole_file(path: Path, *, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """Give a private file to write into, which gets its name only once it is whole and on the disk.

    Raises UsageError where the name is taken and may not be written over, CaptureError where writing fails.
    """
    label = clean(str(path), 4096)
    if not overwrite and path.is_symlink() | path.exists():
        raise UsageError("is there already", where=label, todo="--force writes over it")
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(draft, _NEW, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _move_into_place(draft, path, overwrite)
    except FileExistsError:
        raise UsageError("is there already", where=label, todo="--force writes over it") from None
    except OSError as e:
        raise CaptureError("could not be written", where=label, why=reason(e)) from None
    finally:
        with suppress(OSError):
            draft.unlink()


def _move_into_place(draft: Path, path: Path, overwrite: bool) -> None:
    """Give the draft its name; a hard link never replaces a file that came there meanwhile."""
    if overwrite:
        draft.replace(path)
    else:
        os.link(draft, path)
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
