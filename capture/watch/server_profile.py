"""Short profiles of a server: started and stopped on request, within a share of the time."""

import time
from pathlib import Path
from typing import Final

from capture.watch.http_client import KEY_HINT, HttpClient, HttpResponse, NoAnswerError, NotListeningError
from capture.watch.servers import ServerKind

START_TIMEOUT_S: Final = 10.0  # to start a profile
STOP_TIMEOUT_S: Final = 600.0  # to stop one: the server writes its trace meanwhile
EXIT_TIMEOUT_S: Final = 3.0  # to stop one whose trace is not needed any more


class ServerProfile:
    """Starts and stops profiles of one server from one thread."""

    def __init__(self, client: HttpClient, kind: ServerKind, folder: Path | None) -> None:
        self._client, self._kind, self._folder = client, kind, folder
        self.is_running = False  # also if a start request got no response
        self.failure = ""  # why there is no profile, as a sentence
        self.is_refused = False  # whether another request is useless until the server restarts

    def start(self) -> bool:
        """Start a profile and return whether it started; `failure` gives the reason if not."""
        self.is_running = True
        self.failure, self.is_refused = "", False
        try:
            body = self._kind.start_body(self._folder)
            response = self._client.post("/start_profile", body, START_TIMEOUT_S)
        except NoAnswerError as e:
            self.failure = f"the server did not start a profile: {e}"
            self.stop(EXIT_TIMEOUT_S)  # the request may have arrived
            return False
        if not response.is_ok:
            self.is_running = False
            self.failure, self.is_refused = self._explain_refusal(response)
        return response.is_ok

    def stop(self, seconds: float = STOP_TIMEOUT_S) -> bool:
        """Stop the profile and return whether the server confirms it; a server that is gone has none."""
        if not self.is_running:
            return True
        try:
            response = self._client.post("/stop_profile", None, seconds)
        except NoAnswerError as e:
            self.is_running = not isinstance(e, NotListeningError)
            self.failure = f"the request to stop the profile failed: {e}"
            return False
        self.is_running = False
        if not response.is_ok:
            self.failure = f"the server did not stop the profile ({response.status}): {response.text}"
        return response.is_ok

    def _explain_refusal(self, response: HttpResponse) -> tuple[str, bool]:
        """Return why a server does not profile and how to change that, and whether retrying is useless."""
        if response.is_refusal:
            return f"the server refuses to profile ({response.status}): {KEY_HINT}", True
        if response.status in (404, 405) or (response.status == 400 and self._kind.PROFILE_FLAG):
            flag = self._kind.PROFILE_FLAG
            todo = f"start {self._kind.NAME} with {flag}" if flag else "its version may be too old"
            return f"profiling is off in the server ({response.status}): {todo}", True
        return f"the server did not start a profile ({response.status}): {response.text}", False


class ProfileSchedule:
    """When the next profile is due, so that profiles take at most their share of the time."""

    def __init__(self, seconds: float, every: float) -> None:
        self.seconds, self.every = seconds, every
        self._due = time.monotonic()

    @property
    def share(self) -> float:
        """Share of the time that profiles take."""
        return self.seconds / self.every

    @property
    def wait_s(self) -> float:
        """Seconds until the next profile."""
        return max(0.0, self._due - time.monotonic())

    def charge(self, seconds: float) -> None:
        """Charge the time from request to end of a profile, including the writing of the trace."""
        self._due = time.monotonic() + seconds / self.share - seconds

    def postpone(self, factor: float = 1.0) -> None:
        """Try again after the usual interval, or a multiple of it."""
        self._due = time.monotonic() + factor * self.every
