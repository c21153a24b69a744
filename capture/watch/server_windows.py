"""Profile a server periodically in a background thread, and read the traces when they are complete."""

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from capture.watch.folder_watcher import FolderWatcher
from capture.watch.http_client import HttpClient
from capture.watch.server_profile import (
    EXIT_TIMEOUT_S,
    RESUME_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ServerProfile,
    ServiceMeter,
    Silence,
    WindowSchedule,
)
from capture.watch.servers import ServerKind
from capture.watch.trace_folder import TraceFolder
from capture.watch.watch_recording import WatchRecording

TRACE_TIMEOUT_S: Final = 60.0  # after which a missing trace is reported
STEPS_TIMEOUT_S: Final = 5.0  # for the steps of a window, where the server counts them
STEP_POLL_S: Final = 0.02  # between two looks at their number
MAX_BACKOFF: Final = 8.0  # times the usual interval, while a server fails to profile
MAX_SILENCE_S: Final = 0.5  # of one profile, if one of fewer steps can be shorter


class ServerWindows(threading.Thread):
    """Profiles a server periodically until `over` is set, and leaves no profile running."""

    def __init__(
        self,
        client: HttpClient,
        kind: ServerKind,
        recording: WatchRecording,
        folder: Path | None,
        schedule: WindowSchedule,
        steps: int,
        seconds: float,
        over: threading.Event,
    ) -> None:
        """`steps` are those of a window; a server that does not count them is profiled for these seconds."""
        super().__init__(name="windows", daemon=True)
        self.is_busy: bool | None = None  # whether the server has requests; None if unknown
        self.is_reachable = True
        self._recording, self._schedule, self._over = recording, schedule, over
        self._own_folder = Path(tempfile.mkdtemp(prefix="tracetui-")) if folder is None else None
        self._folder = TraceFolder(folder or self._own_folder or Path(), excluded=recording.out)
        self._folder.ignore_current_files()
        self._traces = FolderWatcher(self._folder, recording)
        self._client, self._kind, self._steps, self._seconds = client, kind, steps, seconds
        self._steps_at_once = 1  # of one profile; the first tells what more of them may cost
        self._profile = ServerProfile(client, kind, self._folder.path if kind.TAKES_FOLDER else None)
        self._failures = 0
        self._last_status = ""

    def reset_failures(self) -> None:
        """Retry what a server refused before it restarted."""
        self._profile.is_refused, self._failures = False, 0

    @property
    def exit_warning(self) -> str:
        """A warning if the server may still be profiling, else empty."""
        return self._profile.failure or "the server may still profile" if self._profile.is_running else ""

    def run(self) -> None:
        try:
            while not self._over.is_set():
                if self._is_due():
                    self._take_window()
                self._traces.poll()
                self._over.wait(self._traces.pause_s)
        finally:
            self._profile.stop(EXIT_TIMEOUT_S)
            if self._own_folder is not None:
                shutil.rmtree(self._own_folder, ignore_errors=True)

    def _is_due(self) -> bool:
        if not self.is_reachable or self._profile.is_refused or self._schedule.wait_s:
            return False
        if self.is_busy is False:
            self._write_status("no window: the server has no requests")
            return False
        return True

    def _take_window(self) -> None:
        """Profile until a window has its steps, a few at a time, so that no silence is long."""
        began, done, silence_s = time.monotonic(), 0, 0.0
        while done < self._steps and not self._over.is_set():
            meter = ServiceMeter(self._client, self._kind)
            meter.start()
            if meter.is_idle:
                meter.finish(0.0)
                if not done:
                    self._write_status("no window: the server has no requests")
                break
            if not done:
                self._traces.begin_window()
            left = self._steps - done
            steps = min(self._steps_at_once, left) if meter.counts_steps else left
            if (silence := self._profile_steps(meter, steps)) is None:
                break
            done, silence_s = done + steps, silence_s + silence.seconds
            self._schedule.charge(began, silence_s)
            self._adapt_steps(silence.seconds)
            if not self._wait_for_trace(done, silence, silence_s):
                break

    def _profile_steps(self, meter: ServiceMeter, steps: int) -> Silence | None:
        """Take one profile and return how long the server was silent, or None if the profile failed."""
        start = time.monotonic()
        self._recording.mark_profile(is_begin=True)
        if not self._profile.start(steps):
            self._write_status(self._profile.failure)
            self._failures += 1
            self._schedule.postpone(min(MAX_BACKOFF, 2.0 ** (self._failures - 1)))
            meter.finish(0.0)
            self._recording.mark_profile(is_begin=False)
            return None
        self._failures = 0
        self._write_status("profiling …")
        self._wait_for_steps(meter, steps)
        has_stopped = self._profile.stop(EXIT_TIMEOUT_S if self._over.is_set() else STOP_TIMEOUT_S)
        seconds = time.monotonic() - start
        if not has_stopped:  # a late trace is still found by later polls
            self._schedule.charge(start, seconds)
            self._write_status(self._profile.failure)
            return None
        meter.finish(0.0 if self._over.is_set() else RESUME_TIMEOUT_S)
        self._recording.mark_profile(is_begin=False)
        return meter.silence if meter.silence.seconds else Silence(seconds, is_measured=False)

    def _adapt_steps(self, silence_s: float) -> None:
        """Halve the steps of the next profile after a long silence; double them after a short one.

        A silence can grow faster than the steps: three took six times as long as two.
        """
        if silence_s > MAX_SILENCE_S:
            self._steps_at_once = max(1, self._steps_at_once // 2)
        elif silence_s < MAX_SILENCE_S / 4:
            self._steps_at_once = min(self._steps, 2 * self._steps_at_once)

    def _wait_for_steps(self, meter: ServiceMeter, steps: int) -> None:
        """Wait until so many steps are over; for the configured time if nobody counts them."""
        start = time.monotonic()
        meter.begin_steps()
        while not self._over.wait(STEP_POLL_S):
            limit_s = STEPS_TIMEOUT_S if meter.counts_steps else self._seconds
            if time.monotonic() - start >= limit_s or (meter.counts_steps and meter.count_steps() > steps):
                return

    def _wait_for_trace(self, done: int, silence: Silence, silence_s: float) -> bool:
        """Poll until a trace has come, say what it cost, and return True; or report that it is missing."""
        deadline = time.monotonic() + TRACE_TIMEOUT_S
        while not self._over.is_set() and time.monotonic() < deadline:
            if self._traces.poll():
                cost = f"{done} of {self._steps} steps, {silence}"
                cost += f" ({1000 * silence_s:,.0f} ms in all)" if silence_s > silence.seconds else ""
                self._write_status(f"{self._traces.summary}; the last: {cost}{self._describe_next()}")
                return True
            self._over.wait(self._traces.pause_s)
        if not self._over.is_set():
            problem = f"no trace in {self._folder.path} within {TRACE_TIMEOUT_S:.0f} s"
            self._write_status(f"{problem}: does the server write there?")
        return False

    def _describe_next(self) -> str:
        """Describe when the next window is due, if the last was so expensive that it comes late."""
        wait = self._schedule.wait_s
        if wait <= 2 * self._schedule.every:
            return ""
        share = f"{self._schedule.share:.1%}"
        return f"; next in {wait / 60:,.0f} min: windows silence the server for {share} of the time"

    def _write_status(self, message: str) -> None:
        """Write a message about the windows, unless it repeats the last one."""
        if message != self._last_status:
            self._last_status = message
            self._recording.mark(message, "windows")
            self._recording.flush()


def is_local(client: HttpClient) -> bool:
    """Return whether the server runs on this machine, so that its files can be read."""
    host = client.address.host
    return host in ("localhost", "::1") or host.startswith("127.")
