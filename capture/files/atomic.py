"""Write files atomically: a complete temporary file is renamed to its place."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.source import describe_error

_CREATE_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)


@contextmanager
def write_atomically(path: Path, *, overwrite: bool = False, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a private file that gets its name once it is complete and, unless `sync` is off, on the disk.

    Raises UsageError if the name exists and `overwrite` is not set, CaptureError if writing fails.
    """
    label = clean(str(path), 4096)
    if not overwrite and path.is_symlink() | path.exists():
        raise UsageError("already exists", where=label, todo="overwrite it with --force")
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(draft, _CREATE_FLAGS, 0o600), "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        _move_into_place(draft, path, overwrite)
        if sync:
            _sync_folder(path.parent)
    except FileExistsError:
        raise UsageError("already exists", where=label, todo="overwrite it with --force") from None
    except OSError as e:
        raise CaptureError("cannot be written", where=label, why=describe_error(e)) from None
    finally:
        with suppress(OSError):
            draft.unlink()


def _move_into_place(draft: Path, path: Path, overwrite: bool) -> None:
    """Rename the draft; without `overwrite`, a hard link keeps a file that appeared meanwhile."""
    if overwrite:
        draft.replace(path)
    else:
        os.link(draft, path)


def _sync_folder(path: Path) -> None:
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
