"""A folder into which a profiler drops files: which of them are whole by now, and which are not."""

import contextlib
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SETTLED_S: Final = 0.5  # seconds without a change after which a file that closes is whole
SILENT_S: Final = 2.0  # likewise, where the end of a file does not tell
TORN_S: Final = 10.0  # likewise, after which a file that does not close will not change any more
DEEPEST: Final = 8  # folders in folders that are looked into
NEWEST: Final = 8  # files there at the start that are read, and of a crowd that comes at once
_GZIP: Final = b"\x1f\x8b"
_ENDS: Final = {b"{": b"}", b"[": b"]"}
_TAIL: Final = 64
_CHUNK: Final = 1 << 20
_MOST: Final = 1 << 32  # bytes that are unpacked to see whether a file is whole

Signature = tuple[int, int, int]  # size, time of the last change, number in the file system


@dataclass
class _Seen:
    signature: Signature
    since: float
    done: bool = False


class Folder:
    """Looks into a folder again and again; each file is told once, and again after a change."""

    def __init__(
        self, path: Path, but: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`but` is a file that is never told."""
        self.path = path
        self.left_out = 0  # files that were passed over because newer ones were there
        self.is_there = False
        self._but, self._clock = but, clock
        self._seen: dict[Path, _Seen] = {}
        self._looked = False

    def pass_over(self) -> None:
        """Tell nothing of the files that are there now, as long as they do not change."""
        for path, signature in self._files().items():
            self._seen[path] = _Seen(signature, self._clock(), done=True)
        self._looked = True

    def poll(self) -> list[Path]:
        """Return the files that have become whole, the oldest first, and those that never will."""
        now, files = self._clock(), self._files()
        for path in self._seen.keys() - files.keys():
            del self._seen[path]
        for path, signature in files.items():
            if path not in self._seen or self._seen[path].signature != signature:
                self._seen[path] = _Seen(signature, now)
        waiting = [path for path, seen in self._seen.items() if not seen.done]
        waiting = self._newest(sorted(waiting, key=lambda path: self._seen[path].signature[1]))
        self._looked = self._looked or self.is_there
        ready = [path for path in waiting if self._is_ready(path, now - self._seen[path].since)]
        for path in ready:
            self._seen[path].done = True
        return ready

    def _newest(self, waiting: list[Path]) -> list[Path]:
        """Return the newest of many files, and count the others as left out."""
        older = waiting[:-NEWEST] if not self._looked else waiting[: -8 * NEWEST]
        for path in older:
            self._seen[path].done = True
        self.left_out += len(older)
        return waiting[len(older) :]

    def _is_ready(self, path: Path, silent_s: float) -> bool:
        if silent_s < SETTLED_S:
            return False
        if silent_s >= TORN_S:
            return True
        closes = _closes(path)
        return closes is True or (closes is None and silent_s >= SILENT_S)

    def _files(self) -> dict[Path, Signature]:
        self.is_there = self.path.is_dir()
        files = dict(self._walk(self.path, 0)) if self.is_there else {}
        with contextlib.suppress(OSError):
            own = self._but.stat().st_ino if self._but is not None else -1
            files = {path: signature for path, signature in files.items() if signature[2] != own}
        return files

    def _walk(self, folder: Path, depth: int) -> Iterator[tuple[Path, Signature]]:
        """Yield the plain files below a folder that have a visible name and hold something."""
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            yield from self._walk(Path(entry.path), depth + 1)
                        continue
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_size:
                        yield Path(entry.path), (status.st_size, status.st_mtime_ns, status.st_ino)


def _closes(path: Path) -> bool | None:
    """Return whether a file ends as it began; None where its end does not tell."""
    try:
        with path.open("rb") as file:
            head = file.read(_TAIL)
            if head.startswith(_GZIP):
                return _gzip_closes(path)
            file.seek(max(0, path.stat().st_size - _TAIL))
            return _json_closes(head, file.read())
    except OSError:
        return False


def _json_closes(head: bytes, tail: bytes) -> bool | None:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    end = _ENDS.get(head[:1])
    return tail.rstrip().endswith(end) if end else None


def _gzip_closes(path: Path) -> bool | None:
    """Return whether the last stream of a packed file ends, and so does what it holds."""
    head = tail = b""
    unpacked, inflate = 0, zlib.decompressobj(31)
    with path.open("rb") as file:
        while packed := inflate.unused_data or inflate.unconsumed_tail or file.read(_CHUNK):
            if inflate.eof:
                if not packed.startswith(_GZIP):
                    break
                inflate = zlib.decompressobj(31)
            try:
                out = inflate.decompress(packed, _CHUNK)
            except zlib.error:
                return False
            unpacked += len(out)
            head, tail = (head + out)[:_TAIL], (tail + out)[-_TAIL:]
            if unpacked > _MOST:
                return None
    return inflate.eof and _json_closes(head, tail) is not False
