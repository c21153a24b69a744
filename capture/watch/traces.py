"""The traces of a folder as windows of a recording: every file is shown, or named with the reason why not."""

import time
from collections import Counter
from pathlib import Path
from typing import Final

from capture.captures import is_capture
from capture.errors import CaptureError
from capture.loaders import recognise
from capture.open import load
from capture.run import Run
from capture.source import Source
from capture.text import clean
from capture.watch.folder import Folder
from capture.watch.recording import Recording

LOOK_S: Final = 0.3  # between two looks into a folder
LEISURE: Final = 10  # of all the time, looking takes one part in so many at most
LOG: Final = "log"
NOTE: Final = "note"
_NAMED: Final = 20  # files that are named one by one; the others are counted


class Traces:
    """Follows a folder, and writes what is dropped into it."""

    def __init__(self, folder: Folder, recording: Recording) -> None:
        self._folder, self._recording = folder, recording
        self._counts: Counter[str] = Counter()  # files that are not shown, by the reason
        self._was_there: bool | None = None
        self.rest_s = LOOK_S  # until the next look
        self._left_out = 0

    def poll(self) -> bool:
        """Write the windows of the files that have become whole; return whether there was any."""
        began = time.monotonic()
        ready = self._folder.poll()
        self.rest_s = max(LOOK_S, LEISURE * (time.monotonic() - began))
        self._tell_folder()
        before = self._recording.windows
        for path in ready:
            self._take(path)
        return self._recording.windows > before

    @property
    def summary(self) -> str:
        """How many windows there are, and what is not shown."""
        windows = self._recording.windows
        words = [f"{windows:,} window{'s' * (windows != 1)}"]
        words += [f"{count:,} {why}" for why, count in self._counts.items()]
        if self._folder.left_out:
            words.append(f"{self._folder.left_out:,} older files left out")
        return ", ".join(words)

    def _tell_folder(self) -> None:
        place = clean(str(self._folder.path), 200)
        if self._folder.is_there != self._was_there:
            if self._folder.is_there:
                self._recording.mark(f"waiting for traces in {place}", "status")
            elif self._was_there is None:
                self._recording.mark(f"waiting for {place}, which is not there yet", "status")
            else:
                self._recording.mark(f"{place} is gone; what was read stays", NOTE)
            self._was_there = self._folder.is_there
        if self._folder.left_out > self._left_out:
            self._left_out = self._folder.left_out
            what = f"{self._left_out:,} older files of {place} are left out"
            self._recording.mark(f"{what}: tracetui open reads all of them", NOTE)

    def _take(self, path: Path) -> None:
        """Write a file as a window, or say why it is none."""
        name = clean(str(path.relative_to(self._folder.path)), 200)
        try:
            written_ns = path.stat().st_mtime_ns
            if not self._is_trace(path):
                self._counts["no traces"] += 1
                return
            began = time.monotonic()
            runs = load(path, cache=False)
        except OSError:
            self._refuse("gone before they were read", name, "it is gone")
        except CaptureError as e:
            gone = not path.exists()
            self._refuse("gone before they were read" if gone else "unreadable", name, str(e))
        else:
            if any(_is_torn(run) for run in runs):
                how = f"it is cut short; tracetui open {clean(str(path), 4096)} reads what it holds"
                self._refuse("cut short", name, how)
                return
            rows = self._recording.window(runs, written_ns)
            took = time.monotonic() - began
            number = self._recording.windows
            self._recording.mark(f"window {number}: {name}, {rows:,} events, read in {took:.1f} s", LOG)

    def _refuse(self, reason: str, name: str, why: str) -> None:
        """Count a file that is not shown, and name it while those are few."""
        self._counts[reason] += 1
        if self._counts[reason] <= _NAMED:
            self._recording.mark(f"{name} is not shown: {why}", NOTE)

    def _is_trace(self, path: Path) -> bool:
        head = Source.of(path).head
        return bool(recognise(head, path.suffix)) and not is_capture(path, head.text)


def _is_torn(run: Run) -> bool:
    return bool(run.meta.get("truncated")) or any(n.id == "gzip_damaged" for n in run.log.notices)
