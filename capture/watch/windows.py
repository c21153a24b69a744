"""Windows of a server, in a thread of their own: profiled when due, and read when their traces are whole."""

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from capture.watch.folder import Folder
from capture.watch.http import Client
from capture.watch.profile import LEAVE_S, STOP_S, Duty, Profile
from capture.watch.recording import Recording
from capture.watch.servers import Kind
from capture.watch.traces import Traces

LOST_S: Final = 60.0  # after which a trace that has not come is missed
BACK_OFF: Final = 8.0  # times the usual pause at most, while a server fails to profile


class Windows(threading.Thread):
    """Profiles a server now and then until `over`, and leaves it profiling nothing."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        recording: Recording,
        folder: Path | None,
        duty: Duty,
        over: threading.Event,
    ) -> None:
        super().__init__(name="windows", daemon=True)
        self.busy: bool | None = None  # whether the server has requests; None where it does not tell
        self.reachable = True
        self._recording, self._duty, self._over = recording, duty, over
        self._own = Path(tempfile.mkdtemp(prefix="tracetui-")) if folder is None else None
        self._folder = Folder(folder or self._own or Path(), but=recording.out)
        self._folder.pass_over()
        self._traces = Traces(self._folder, recording)
        self._profile = Profile(client, kind, self._folder.path if kind.TAKES_FOLDER else None)
        self._failures = 0
        self._told = ""

    def begin_anew(self) -> None:
        """Ask a server that was away again for what it refused before it left."""
        self._profile.hopeless, self._failures = False, 0

    @property
    def left_on(self) -> str:
        """Why the server may still profile, as a sentence; empty where it does not."""
        return self._profile.trouble or "the server may still profile" if self._profile.on else ""

    def run(self) -> None:
        try:
            while not self._over.is_set():
                if self._is_due():
                    self._take()
                self._traces.poll()
                self._over.wait(self._traces.rest_s)
        finally:
            self._profile.stop(LEAVE_S)
            if self._own is not None:
                shutil.rmtree(self._own, ignore_errors=True)

    def _is_due(self) -> bool:
        if not self.reachable or self._profile.hopeless or self._duty.wait_s:
            return False
        if self.busy is False:
            self._tell("no window: the server has no request")
            return False
        return True

    def _take(self) -> None:
        """Profile for the stated time, then wait for the trace."""
        began, before = time.monotonic(), self._recording.windows
        if not self._profile.start():
            self._tell(self._profile.trouble)
            self._failures += 1
            self._duty.put_off(min(BACK_OFF, 2.0 ** (self._failures - 1)))
            return
        self._failures = 0
        self._tell("profiling …")
        self._over.wait(self._duty.seconds)
        ended = self._profile.stop(LEAVE_S if self._over.is_set() else STOP_S)
        spent = time.monotonic() - began
        self._duty.spent(spent)
        if ended:
            self._await_trace(before, spent)
        else:  # its trace, if one comes after all, is found like any other
            self._tell(self._profile.trouble)

    def _await_trace(self, before: int, spent: float) -> None:
        """Look until a trace has come, or it is missed."""
        deadline = time.monotonic() + LOST_S
        while not self._over.is_set() and time.monotonic() < deadline:
            if self._traces.poll() or self._recording.windows > before:
                self._tell(f"{self._traces.summary}; the last took the server {spent:.1f} s{self._next()}")
                return
            self._over.wait(self._traces.rest_s)
        if not self._over.is_set():
            self._tell(f"no trace came into {self._folder.path} within {LOST_S:.0f} s: is it the server's?")

    def _next(self) -> str:
        """Return when the next window comes, where the last was so costly that it comes late."""
        wait = self._duty.wait_s
        if wait <= 2 * self._duty.every:
            return ""
        return f", the next comes in {wait / 60:,.0f} min: windows stay at {self._duty.share:.1%} of the time"

    def _tell(self, words: str) -> None:
        """Write what became of the windows, once."""
        if words != self._told:
            self._told = words
            self._recording.mark(words, "windows")
            self._recording.flush()


def is_local(client: Client) -> bool:
    """Return whether the server runs on this machine, and can write where we can read."""
    host = client.address.host
    return host == "localhost" or (host.startswith("127.") or host == "::1")
