"""Replays a recording: the same bytes go into another file, at the pace at which they came."""

import re
import tempfile
import threading
from pathlib import Path
from typing import Final

from capture.source import Source

_START: Final = re.compile(rb'"t":(\d+)')
LONGEST_PAUSE: Final = 5.0  # seconds; a longer silence in the recording is cut to this


class Replay:
    """Writes the lines of a recording to a temporary file, in a thread."""

    def __init__(self, path: str | Path, speed: float) -> None:
        self._source = Source.of(path)
        self._speed = speed
        self._stop = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="tracetui-replay-")
        self.path = Path(self._folder.name) / self._source.path.name
        self.path.touch(0o600)
        self._writer = threading.Thread(target=self._write, daemon=True, name="replay")

    def start(self) -> None:
        """Begin to write."""
        self._writer.start()

    def stop(self) -> None:
        """Stop writing and remove the file."""
        self._stop.set()
        self._writer.join(1.0)
        self._folder.cleanup()

    def _write(self) -> None:
        before: int | None = None
        with self.path.open("ab", buffering=0) as out:
            for _, line in self._source.lines():
                start = _START.search(line)
                if start and before is not None:
                    self._stop.wait(self._pause(int(start[1]) - before))
                if self._stop.is_set():
                    return
                before = int(start[1]) if start else before
                out.write(line + b"\n")

    def _pause(self, ns: int) -> float:
        """Return the seconds to wait for so many ns of the recording."""
        return min(max(0.0, ns / 1e9 / self._speed), LONGEST_PAUSE)
