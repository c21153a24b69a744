"""A log of runs: a folder, or a bucket, with one part per run. There is no server and no lock.

A part is written under a hidden name and then given its own, which says what is in it; so a killed writer
leaves nothing half, and two that add the same run add one part.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from capture.clean_text import clean
from capture.errors import CaptureError, UnreadableError, UsageError
from capture.files import remote_files
from capture.files.addresses import is_url, mask_credentials
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_state_folder, make_private
from capture.source import describe_error
from tracetui.history.part import SUFFIX, build_file_name, encode_part, read_part

LEFTOVER_AGE_S: Final = 3600  # of a hidden file whose writer must be gone


def find_own_log() -> str:
    """Return the folder of the user's own log; raise CaptureError without a private folder."""
    state = find_state_folder()
    folder = make_private(state / "log") if state else None
    if folder is None:
        raise CaptureError("there is no private folder for the log", todo="name one: --log DIR")
    return str(folder)


@dataclass(frozen=True)
class RunLog:
    """The log in a folder, or behind a URL such as s3://bucket/log."""

    address: str

    @property
    def label(self) -> str:
        """Return the address for messages."""
        return mask_credentials(self.address) if is_url(self.address) else clean(self.address, 4096)

    def list_parts(self) -> list[str]:
        """Return the names of all parts, those of the earliest runs first; raise UsageError without a log."""
        names: list[str] | None = None
        try:
            if is_url(self.address):
                # a bucket has no folders without files
                names = remote_files.list_folder(self.address) or None
            else:
                names = [entry.name for entry in os.scandir(self.address)]
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnreadableError("cannot be read", where=self.label, why=describe_error(error)) from None
        if names is None:
            todo = f"tracetui log add FILE --log {self.label} makes one"
            raise UsageError("there is no log", where=self.label, todo=todo)
        return sorted(name for name in names if name.endswith(SUFFIX) and not name.startswith("."))

    def read(self, name: str) -> pl.DataFrame:
        """Return a part; raise UnreadableError if it is damaged, newer or gone."""
        where = f"{self.label.rstrip('/')}/{clean(name, 300)}"
        if is_url(self.address):
            return read_part(remote_files.read_bytes(self._locate(name)), where)
        return read_part(Path(self.address) / name, where)

    def add(self, part: pl.DataFrame) -> tuple[str, bool]:
        """Write a part; return its name, and False if the log has it. Raise CaptureError on failure."""
        name, content = build_file_name(part), encode_part(part)
        if is_url(self.address):
            return name, remote_files.write_new(self._locate(name), content)
        folder = Path(self.address)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mode = folder.stat().st_mode & 0o666
            if (folder / name).exists():
                return name, False
        except OSError as error:
            raise CaptureError("cannot be written", where=self.label, why=describe_error(error)) from None
        try:
            with write_atomically(folder / name) as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)  # who may read the folder may read its parts
        except UsageError:  # another writer was faster
            return name, False
        return name, True

    def remove(self, name: str) -> None:
        """Remove a part; raise CaptureError if that fails."""
        if is_url(self.address):
            remote_files.remove(self._locate(name))
            return
        try:
            (Path(self.address) / name).unlink(missing_ok=True)
        except OSError as error:
            raise CaptureError(
                "cannot be removed", where=f"{self.label}/{name}", why=describe_error(error)
            ) from None

    def remove_leftovers(self) -> int:
        """Remove the hidden files of killed writers; return how many."""
        if is_url(self.address):
            return 0
        count, now = 0, time.time()
        for path in Path(self.address).glob(f".*{SUFFIX}.*"):
            with suppress(OSError):
                if now - path.lstat().st_mtime > LEFTOVER_AGE_S:
                    path.unlink()
                    count += 1
        return count

    def resolve(self, word: str, names: Sequence[str]) -> str:
        """Return the part whose run, or file, has a name that begins with a word; raise UsageError."""
        fitting = [n for n in names if n.startswith(word) or n.partition("-")[2].startswith(word)]
        if len(fitting) == 1:
            return fitting[0]
        what = f"{len(fitting)} runs begin with {word!r}" if fitting else f"no run begins with {word!r}"
        raise UsageError(what, where=self.label, todo="tracetui log lists them")

    def _locate(self, name: str) -> str:
        return f"{self.address.rstrip('/')}/{name}"
