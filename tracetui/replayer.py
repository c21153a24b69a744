"""A recording as if it were live: the same bytes into another file, at the pace at which they came."""

import re
import tempfile
import threading
from pathlib import Path
from typing import Final

from capture.source import Source

_T: Final = re.compile(rb'"t":(\d+)')
LONGEST_PAUSE: Final = 5.0  # seconds; a longer silence in the recording is cut to this


class Replay:
    """Writes the lines of a recording to a file of its own, in a thread."""

    def __init__(self, path: str | Path, speed: float) -> None:
        self._source = Source.of(path)
        self._speed = speed
        self._stop = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="tracetui-replay-")
        self.path = Path(self._folder.name) / self._source.path.name
        self.path.touch(0o600)
        self._writer = threading.Thread(target=self._write, daemon=True, name="replay")

    def start(self) -> None:
        self._writer.start()

    def stop(self) -> None:
        self._stop.set()
        self._writer.join(1.0)
        self._folder.cleanup()

    def _write(self) -> None:
        before: int | None = None
        with self.path.open("ab", buffering=0) as out:
            for _, line in self._source.lines():
                stamp = _T.search(line)
                if stamp and before is not None:
                    self._stop.wait(self._pause(int(stamp[1]) - before))
                if self._stop.is_set():
                    return
                before = int(stamp[1]) if stamp else before
                out.write(line + b"\n")

    def _pause(self, ns: int) -> float:
        return min(max(0.0, ns / 1e9 / self._speed), LONGEST_PAUSE)
