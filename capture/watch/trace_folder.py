"""Find the complete files in a folder that a profiler writes to."""

import contextlib
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPLETE_QUIET_S: Final = 0.5  # without a change until a closed file counts as complete
UNKNOWN_QUIET_S: Final = 2.0  # the same, if its end does not show whether it is closed
INCOMPLETE_QUIET_S: Final = 10.0  # the same, for a file that is not closed and will not change any more
MAX_DEPTH: Final = 8  # of nested folders
MAX_INITIAL_FILES: Final = 8  # read of the files present at the start; eight times as many later
_GZIP: Final = b"\x1f\x8b"
_ENDS: Final = {b"{": b"}", b"[": b"]"}
_TAIL: Final = 64
_CHUNK: Final = 1 << 20
_MAX_UNPACKED_BYTES: Final = 1 << 32  # unpacked at most to check whether a file is complete

Signature = tuple[int, int, int]  # size, modification time, inode


@dataclass
class _FileState:
    signature: Signature
    since: float
    is_done: bool = False


class TraceFolder:
    """Polls a folder; returns each file once, and again after a change."""

    def __init__(
        self, path: Path, excluded: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`excluded` is a file that is never returned."""
        self.path = path
        self.skipped_count = 0  # files skipped in favour of newer ones
        self.is_present = False
        self._excluded, self._clock = excluded, clock
        self._states: dict[Path, _FileState] = {}
        self._has_polled = False

    def ignore_current_files(self) -> None:
        """Return none of the present files until they change."""
        for path, signature in self._list_files().items():
            self._states[path] = _FileState(signature, self._clock(), is_done=True)
        self._has_polled = True

    def poll(self) -> list[Path]:
        """Return the files that have become complete, oldest first, and those that never will."""
        now, files = self._clock(), self._list_files()
        for path in self._states.keys() - files.keys():
            del self._states[path]
        for path, signature in files.items():
            if path not in self._states or self._states[path].signature != signature:
                self._states[path] = _FileState(signature, now)
        waiting = [path for path, state in self._states.items() if not state.is_done]
        waiting = self._keep_newest(sorted(waiting, key=lambda path: self._states[path].signature[1]))
        self._has_polled = self._has_polled or self.is_present
        ready = [path for path in waiting if self._is_ready(path, now - self._states[path].since)]
        for path in ready:
            self._states[path].is_done = True
        return ready

    def _keep_newest(self, waiting: list[Path]) -> list[Path]:
        """Return the newest of many files, and count the others as skipped."""
        older = waiting[:-MAX_INITIAL_FILES] if not self._has_polled else waiting[: -8 * MAX_INITIAL_FILES]
        for path in older:
            self._states[path].is_done = True
        self.skipped_count += len(older)
        return waiting[len(older) :]

    def _is_ready(self, path: Path, silent_s: float) -> bool:
        if silent_s < COMPLETE_QUIET_S:
            return False
        if silent_s >= INCOMPLETE_QUIET_S:
            return True
        closes = _is_closed(path)
        return closes is True or (closes is None and silent_s >= UNKNOWN_QUIET_S)

    def _list_files(self) -> dict[Path, Signature]:
        self.is_present = self.path.is_dir()
        files = dict(self._walk(self.path, 0)) if self.is_present else {}
        with contextlib.suppress(OSError):
            excluded_inode = self._excluded.stat().st_ino if self._excluded is not None else -1
            files = {path: signature for path, signature in files.items() if signature[2] != excluded_inode}
        return files

    def _walk(self, folder: Path, depth: int) -> Iterator[tuple[Path, Signature]]:
        """Yield the regular files below a folder that have a visible name and content."""
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            yield from self._walk(Path(entry.path), depth + 1)
                        continue
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_size:
                        yield Path(entry.path), (status.st_size, status.st_mtime_ns, status.st_ino)


def _is_closed(path: Path) -> bool | None:
    """Return whether a file ends as it began, or None if its end does not show it."""
    try:
        with path.open("rb") as file:
            head = file.read(_TAIL)
            if head.startswith(_GZIP):
                return _is_gzip_closed(path)
            file.seek(max(0, path.stat().st_size - _TAIL))
            return _is_json_closed(head, file.read())
    except OSError:
        return False


def _is_json_closed(head: bytes, tail: bytes) -> bool | None:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    end = _ENDS.get(head[:1])
    return tail.rstrip().endswith(end) if end else None


def _is_gzip_closed(path: Path) -> bool | None:
    """Return whether the last gzip stream of a file ends, and its content is closed."""
    head = tail = b""
    unpacked, inflate = 0, zlib.decompressobj(31)
    with path.open("rb") as file:
        while packed := inflate.unused_data or inflate.unconsumed_tail or file.read(_CHUNK):
            if inflate.eof:
                if not packed.startswith(_GZIP):
                    break
                inflate = zlib.decompressobj(31)
            try:
                chunk = inflate.decompress(packed, _CHUNK)
            except zlib.error:
                return False
            unpacked += len(chunk)
            head, tail = (head + chunk)[:_TAIL], (tail + chunk)[-_TAIL:]
            if unpacked > _MAX_UNPACKED_BYTES:
                return None
    return inflate.eof and _is_json_closed(head, tail) is not False
