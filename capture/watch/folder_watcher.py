"""Write each complete trace of a folder as a window of a recording, or report why not."""

import time
from collections import Counter
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.graphs.capture_files import is_capture
from capture.load_runs import load
from capture.loaders import find_loaders
from capture.run import Run
from capture.source import Source
from capture.watch.trace_folder import TraceFolder
from capture.watch.watch_recording import WatchRecording

POLL_S: Final = 0.3  # between two polls of a folder
MIN_PAUSE_RATIO: Final = 10  # of the pause to the duration of a poll
LOG: Final = "log"
NOTE: Final = "note"
_NO_WORK: Final = "without any work"
_NO_TRACE: Final = "no traces"
_BESIDE_WINDOWS: Final = (_NO_WORK, _NO_TRACE)  # vLLM's front end writes one of each for every profile
_MAX_NAMED_FILES: Final = 20  # further files are only counted


class FolderWatcher:
    """Follows a folder and writes its traces."""

    def __init__(self, folder: TraceFolder, recording: WatchRecording) -> None:
        self._folder, self._recording = folder, recording
        self._counts: Counter[str] = Counter()  # files without a window, by reason
        self._was_present: bool | None = None
        self.pause_s = POLL_S  # until the next poll
        self._skipped_count = 0
        self._is_window_begun: bool | None = None  # None: each file is a window of its own

    def begin_window(self) -> None:
        """Let all files from now on be one window: each rank of a server writes one for each profile."""
        self._is_window_begun = False

    def poll(self) -> bool:
        """Write complete files as windows, or as parts of one; return whether there were any."""
        began = time.monotonic()
        ready = self._folder.poll()
        self.pause_s = max(POLL_S, MIN_PAUSE_RATIO * (time.monotonic() - began))
        self._write_folder_state()
        return sum(self._write_trace(path) for path in ready) > 0

    @property
    def summary(self) -> str:
        """Counts of windows, and of files without one; those beside every window only while there is none."""
        windows = self._recording.windows
        words = [f"{windows:,} window{'s' * (windows != 1)}"]
        left_out = _BESIDE_WINDOWS if windows else ()
        words += [f"{count:,} {why}" for why, count in self._counts.items() if why not in left_out]
        if self._folder.skipped_count:
            words.append(f"{self._folder.skipped_count:,} older files skipped")
        return ", ".join(words)

    def _write_folder_state(self) -> None:
        folder = clean(str(self._folder.path), 200)
        if self._folder.is_present != self._was_present:
            if self._folder.is_present:
                self._recording.mark(f"waiting for traces in {folder}", "status")
            elif self._was_present is None:
                self._recording.mark(f"waiting for {folder}, which does not exist yet", "status")
            else:
                self._recording.mark(f"{folder} is gone; the windows read so far stay", NOTE)
            self._was_present = self._folder.is_present
        if self._folder.skipped_count > self._skipped_count:
            self._skipped_count = self._folder.skipped_count
            message = f"{self._skipped_count:,} older files of {folder} are skipped"
            self._recording.mark(f"{message}: tracetui open reads all of them", NOTE)

    def _write_trace(self, path: Path) -> bool:
        """Write a file as a window or a part of one, and return True; or report why it is not one."""
        name = clean(str(path.relative_to(self._folder.path)), 200)
        try:
            written_ns = path.stat().st_mtime_ns
            if not self._is_trace(path):
                self._counts[_NO_TRACE] += 1
                return False
            start = time.monotonic()
            runs = load(path, cache=False)
        except OSError:
            self._write_refusal("gone before they were read", name, "it is gone")
        except CaptureError as e:
            is_gone = not path.exists()
            self._write_refusal("gone before they were read" if is_gone else "unreadable", name, str(e))
        else:
            if any(_is_torn(run) for run in runs):
                reason = f"it is cut short; tracetui open {clean(str(path), 4096)} reads what it holds"
                self._write_refusal("cut short", name, reason)
                return False
            if self._is_window_begun is not None and not any(_has_work(run) for run in runs):
                self._counts[_NO_WORK] += 1
                return False
            rows = self._recording.write_window(runs, written_ns, joins=bool(self._is_window_begun))
            if self._is_window_begun is not None:
                self._is_window_begun = True
            seconds, number = time.monotonic() - start, self._recording.windows
            self._recording.mark(f"window {number}: {name}, {rows:,} events, read in {seconds:.1f} s", LOG)
            return True
        return False

    def _write_refusal(self, reason: str, name: str, why: str) -> None:
        """Count a file without a window, and name it while there are few."""
        self._counts[reason] += 1
        if self._counts[reason] <= _MAX_NAMED_FILES:
            self._recording.mark(f"{name} is not shown: {why}", NOTE)

    def _is_trace(self, path: Path) -> bool:
        head = Source.from_path(path).head
        return bool(find_loaders(head, path.suffix)) and not is_capture(path, head.text)


def _has_work(run: Run) -> bool:
    return run.has("kind") and bool((run.events["kind"] == "kernel").any())


def _is_torn(run: Run) -> bool:
    return bool(run.meta.get("truncated")) or any(n.id == "gzip_damaged" for n in run.log.notices)
