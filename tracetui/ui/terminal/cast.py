"""A session as an asciicast: what was sent to the terminal, and when, for asciinema and its players."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from capture import places
from capture.errors import UsageError


class Cast:
    """Writes to a new file what a terminal is sent."""

    def __init__(self, path: Path) -> None:
        """Begin the file; raise UsageError where one is there already, or none can be made."""
        if not places.create(path):
            raise UsageError("is there already", where=str(path), todo="choose another name for --cast")
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._began, self._size = time.monotonic(), (0, 0)

    def wrote(self, data: str, size: tuple[int, int]) -> None:
        """Take what was sent to a terminal that has this size now."""
        at = round(time.monotonic() - self._began, 6)
        if self._size == (0, 0):
            head = {"version": 2, "width": size[0], "height": size[1], "timestamp": int(time.time())}
            self._line({**head, "env": {"TERM": os.environ.get("TERM", "")}})
        elif size != self._size:
            self._line([at, "r", f"{size[0]}x{size[1]}"])
        self._size = size
        self._line([at, "o", data])

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _line(self, content: object) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(json.dumps(content, ensure_ascii=False) + "\n")
        except OSError:  # a full disk ends the cast, not the session
            with suppress(OSError):
                self._file.close()
