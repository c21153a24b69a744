"""The end of what a process prints, kept within bounds."""

import os
import threading
from collections import deque
from pathlib import Path
from typing import IO, Final

from capture.text import clean

KEPT: Final = 64 << 10  # bytes
_CHUNK: Final = 4096


class OutputTail:
    """Reads a stream in a thread until it ends, and keeps the last KEPT bytes, whatever they are."""

    def __init__(self, stream: IO[bytes], log: Path | None = None) -> None:
        """Add all that comes to the end of `log` too, as long as it can be written."""
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.read = 0  # bytes so far
        self._log = log.open("ab", buffering=0) if log is not None else None
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True, name="engine output")
        self._reader.start()

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines that are not blank, cleaned."""
        text = b"".join(tuple(self._chunks)).decode("utf-8", "replace")
        return [clean(line, 2000) for line in text.splitlines() if line.strip()][-count:]

    def wait(self, seconds: float) -> None:
        """Wait until the stream has ended, at most so long."""
        self._reader.join(seconds)

    def _read(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), _CHUNK):
            self._chunks.append(chunk)
            self._size += len(chunk)
            while self._size > KEPT:
                self._size -= len(self._chunks.popleft())
            self._add_to_log(chunk)
            self.read += len(chunk)
        if self._log is not None:
            self._log.close()

    def _add_to_log(self, chunk: bytes) -> None:
        if self._log is not None:
            try:
                self._log.write(chunk)
            except OSError:  # a full disk stops neither the program nor the screen
                self._log.close()
                self._log = None
