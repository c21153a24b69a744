"""Short profiles of a server: started and stopped on request, within a budget of silence, and what they cost.

    python -m capture.watch.server_profile URL

stops the profile of a server when its standard input ends while one is on: the watcher was killed.
"""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from capture.watch.http_client import (
    KEY_HINT,
    HttpClient,
    HttpResponse,
    NoAnswerError,
    NotListeningError,
    ServerAddress,
    read_extra_headers,
)
from capture.watch.server_metrics import Progress
from capture.watch.servers import ServerKind

START_TIMEOUT_S: Final = 10.0  # to start a profile
STOP_TIMEOUT_S: Final = 600.0  # to stop one: the server writes its trace meanwhile
METER_POLL_S: Final = 0.02  # between two readings of the metrics in a profile
METER_TIMEOUT_S: Final = 30.0  # for one reading: a server that writes its trace may not answer
IDLE_S: Final = 0.3  # without requests and tokens, from which on a server is idle
RESUME_TIMEOUT_S: Final = 10.0  # for the first token after a profile
EXIT_TIMEOUT_S: Final = 3.0  # to stop one whose trace is not needed any more


class ServerProfile:
    """Starts and stops profiles of one server from one thread."""

    def __init__(self, client: HttpClient, kind: ServerKind, folder: Path | None) -> None:
        self._client, self._kind, self._folder = client, kind, folder
        self._guard = _ProfileGuard(str(client.address))
        self.is_running = False  # also if a start request got no response
        self.failure = ""  # why there is no profile, as a sentence
        self.is_refused = False  # whether another request is useless until the server restarts

    def start(self, steps: int) -> bool:
        """Start a profile of some steps and return whether it started; `failure` gives the reason if not."""
        self.is_running = True
        self._guard.set_armed(True)
        self.failure, self.is_refused = "", False
        try:
            body = self._kind.start_body(self._folder, steps)
            response = self._client.post("/start_profile", body, START_TIMEOUT_S)
        except NoAnswerError as e:
            self.failure = f"the server did not start a profile: {e}"
            self.stop(EXIT_TIMEOUT_S)  # the request may have arrived
            return False
        if not response.is_ok:
            self._note_stopped()
            self.failure, self.is_refused = self._explain_refusal(response)
        return response.is_ok

    def stop(self, seconds: float = STOP_TIMEOUT_S) -> bool:
        """Stop the profile and return whether the server confirms it; a server that is gone has none.

        One that ended after its steps may be unknown to the server by now: that is no failure.
        """
        if not self.is_running:
            return True
        try:
            response = self._client.post("/stop_profile", None, seconds)
        except NoAnswerError as e:
            if isinstance(e, NotListeningError):
                self._note_stopped()
            self.failure = f"the request to stop the profile failed: {e}"
            return False
        self._note_stopped()
        if "not in progress" in response.text:
            return True
        if not response.is_ok:
            self.failure = f"the server did not stop the profile ({response.status}): {response.text}"
        return response.is_ok

    def _note_stopped(self) -> None:
        self.is_running = False
        self._guard.set_armed(False)

    def _explain_refusal(self, response: HttpResponse) -> tuple[str, bool]:
        """Return why a server does not profile and how to change that, and whether retrying is useless."""
        if response.is_refusal:
            return f"the server refuses to profile ({response.status}): {KEY_HINT}", True
        if response.status in (404, 405) or (response.status == 400 and self._kind.PROFILE_FLAG):
            flag = self._kind.PROFILE_FLAG
            todo = f"start {self._kind.NAME} with {flag}" if flag else "its version may be too old"
            return f"profiling is off in the server ({response.status}): {todo}", True
        return f"the server did not start a profile ({response.status}): {response.text}", False


class WindowSchedule:
    """When the next window is due: later than its interval where the last was silent for too long."""

    def __init__(self, every: float, share: float) -> None:
        self.every, self.share = every, share  # seconds; of the time that windows may silence the server
        self._due = time.monotonic()

    @property
    def wait_s(self) -> float:
        """Seconds until the next window."""
        return max(0.0, self._due - time.monotonic())

    def charge(self, began: float, silence_s: float) -> None:
        """Charge the silence of a window that began at this time."""
        self._due = began + max(self.every, silence_s / self.share)

    def postpone(self, factor: float = 1.0) -> None:
        """Try again after the usual interval, or a multiple of it, and not before what is charged allows."""
        self._due = max(self._due, time.monotonic() + factor * self.every)


class Silence(NamedTuple):
    """A time without a token, as readings of the number of tokens tell it."""

    seconds: float = 0.0
    off_by_s: float = 0.0  # half the time between the readings about its begin, and about its end
    is_measured: bool = True  # else it is the time of the whole profile: it was no longer

    def find_longer(self, other: "Silence") -> "Silence":
        """Return the time that the longer of two lasted, as far as both are known."""
        least = max(self.seconds - self.off_by_s, other.seconds - other.off_by_s)
        most = max(self.seconds + self.off_by_s, other.seconds + other.off_by_s)
        return Silence((most + least) / 2, (most - least) / 2)

    def __str__(self) -> str:
        if not self.is_measured:
            return f"{self.seconds:.1f} s in all"
        return f"no token for {1000 * self.seconds:,.0f} ± {1000 * self.off_by_s:,.0f} ms"


class ServiceMeter(threading.Thread):
    """Reads the metrics of a server often while it is profiled: its steps, and how long it was silent."""

    def __init__(self, client: HttpClient, kind: ServerKind) -> None:
        super().__init__(name="meter", daemon=True)
        self._client, self._kind = client, kind
        self._read_samples = kind.create_reader()
        self._first, self._last = threading.Event(), threading.Event()
        self._begun: Progress | None = None
        self._now: Progress | None = None
        self._read_at = self._quiet_since = self._quiet_off_by_s = 0.0
        self._has_requests = False  # in all readings since the last token
        self.silence = Silence()  # the longest while there were requests

    @property
    def is_idle(self) -> bool:
        """Whether the server has no requests by its metrics; waits until they say so for a while."""
        self._first.wait(METER_TIMEOUT_S)
        while self._now is not None and not self._now.requests and self.is_alive():
            if self._read_at - self._quiet_since >= IDLE_S:
                return True
            time.sleep(METER_POLL_S)
        return False

    @property
    def counts_steps(self) -> bool:
        return self._now is not None and self._now.steps is not None

    def begin_steps(self) -> None:
        """Count steps from the next reading on: the profile has started."""
        self._begun = None

    def count_steps(self) -> float:
        """Return the steps since the profile started."""
        if self._begun is None or self._now is None:
            return 0.0
        return (self._now.steps or 0.0) - (self._begun.steps or 0.0)

    def finish(self, seconds: float = RESUME_TIMEOUT_S) -> None:
        """Wait for the next token, or for the last request to end; then read no more."""
        self._last.set()
        self.join(seconds)

    def run(self) -> None:
        end = 0.0  # of the profile, once `finish` was called
        while not end or time.monotonic() < end + RESUME_TIMEOUT_S:
            is_further = self._note(self._read(), time.monotonic())
            self._first.set()
            is_idle = self._now is not None and not self._now.requests and self._read_at - end >= IDLE_S
            if end and (is_further or is_idle):
                return
            if self._last.is_set() and not end:
                end = time.monotonic()
            time.sleep(METER_POLL_S)

    def _note(self, progress: Progress | None, at: float) -> bool:
        """Note a reading, and return whether there are more tokens than before.

        A token came at some time between two readings: the middle is taken, as a busy server answers late.
        """
        if progress is None:
            return False
        before, self._now = self._now, progress
        off_by_s = (at - self._read_at) / 2 if before is not None else 0.0
        came_at, self._read_at = at - off_by_s, at
        self._begun = self._begun or progress
        is_further = before is None or progress.tokens != before.tokens
        if is_further:
            if before is not None:
                silence_s = self._limit_to_waits(came_at - self._quiet_since, before, progress)
                silence = Silence(silence_s, self._quiet_off_by_s + off_by_s)
                self.silence = self.silence.find_longer(silence) if silence_s else self.silence
            self._quiet_since, self._quiet_off_by_s = came_at, off_by_s
        self._has_requests = (self._has_requests or is_further) and progress.requests > 0
        return is_further

    def _limit_to_waits(self, quiet_s: float, before: Progress, now: Progress) -> float:
        """Return the part of a time without tokens in which requests waited.

        A silent server and an idle one both report no requests if the last step ended all: how long the next
        ones waited for a first token tells them apart.
        """
        count = now.first_tokens - before.first_tokens
        if self._has_requests:
            return quiet_s
        return min(quiet_s, (now.waited_s - before.waited_s) / count) if count > 0 else 0.0

    def _read(self) -> Progress | None:
        with contextlib.suppress(NoAnswerError):
            response = self._client.get("/metrics", METER_TIMEOUT_S)
            if response.is_ok:
                return Progress.from_samples(self._kind.NAMES, self._read_samples(response.body))
        return None


class _ProfileGuard:
    """A process that outlives this one if it is killed, and stops the profile that is on."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._child: subprocess.Popen[bytes] | None = None

    def set_armed(self, is_armed: bool) -> None:
        """Note whether a profile is on, so that it is stopped if this process is killed."""
        if self._child is None and is_armed:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self._url],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.write(b"on\n" if is_armed else b"off\n")
                self._child.stdin.flush()


def _guard_profile(url: str) -> None:
    """Read from standard input whether a profile is on; stop it, twice, if the input ends while it is."""
    client = HttpClient(ServerAddress.from_url(url), read_extra_headers())
    is_on = False
    for line in sys.stdin.buffer:
        is_on = line.strip() == b"on"
    for pause_s in (0.0, EXIT_TIMEOUT_S) if is_on else ():
        time.sleep(pause_s)  # again, because a request to start one may still have been under way
        with contextlib.suppress(NoAnswerError):
            client.post("/stop_profile", None, EXIT_TIMEOUT_S)  # a server that lost its engine never answers


if __name__ == "__main__":
    _guard_profile(sys.argv[1])
