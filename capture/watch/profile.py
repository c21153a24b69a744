"""Short profiles of a server: begun and ended on order, at a stated part of the time, never left running."""

import time
from pathlib import Path
from typing import Final

from capture.watch.http import HEADER, REFUSED, Answer, Client, NoAnswerError, NobodyThereError
from capture.watch.servers import Kind

START_S: Final = 10.0  # that a server may take to begin a profile
STOP_S: Final = 600.0  # to end one: it writes its trace meanwhile
LEAVE_S: Final = 3.0  # to end one when nobody waits for the trace any more


class Profile:
    """Begins and ends profiles of one server, from one thread; another may ask it to let go."""

    def __init__(self, client: Client, kind: Kind, folder: Path | None) -> None:
        self._client, self._kind, self._folder = client, kind, folder
        self._on = False  # as far as we know: one that may have begun counts
        self.trouble = ""  # why there is none, as a sentence
        self.hopeless = False  # whether asking again will not help while the server goes on

    @property
    def on(self) -> bool:
        return self._on

    def start(self) -> bool:
        """Begin a profile and return whether it has begun; `trouble` says why not."""
        self._on = True
        self.trouble, self.hopeless = "", False
        try:
            answer = self._client.post("/start_profile", self._kind.start_body(self._folder), START_S)
        except NoAnswerError as e:
            self.trouble = f"the server did not begin a profile: {e}"
            self.stop(LEAVE_S)  # the order may have come through
            return False
        if not answer.ok:
            self._on = False
            self.trouble, self.hopeless = self._refusal(answer)
        return answer.ok

    def stop(self, seconds: float = STOP_S) -> bool:
        """End the profile and return whether the server says that it did; a server that is gone has none."""
        if not self._on:
            return True
        try:
            answer = self._client.post("/stop_profile", None, seconds)
        except NoAnswerError as e:
            self._on = not isinstance(e, NobodyThereError)
            self.trouble = f"the server was asked to end the profile: {e}"
            return False
        self._on = False
        if not answer.ok:
            self.trouble = f"the server did not end the profile ({answer.status}): {answer.text}"
        return answer.ok

    def _refusal(self, answer: Answer) -> tuple[str, bool]:
        """Return why a server does not profile, with what changes that, and whether it is of any use to ask
        again.
        """
        if answer.status in REFUSED:
            what = f"the server refuses to profile ({answer.status})"
            return f"{what}: {HEADER}='Authorization: Bearer KEY' sends a key with every request", True
        if answer.status in (404, 405) or (answer.status == 400 and self._kind.PROFILE_FLAG):
            flag = self._kind.PROFILE_FLAG
            todo = f"start {self._kind.NAME} with {flag}" if flag else "its version may be too old"
            return f"profiling is off in the server ({answer.status}): {todo}", True
        return f"the server did not begin a profile ({answer.status}): {answer.text}", False


class Duty:
    """When the next window is due: the time that windows take in all stays a stated part of the whole."""

    def __init__(self, seconds: float, every: float) -> None:
        self.seconds, self.every = seconds, every
        self._due = time.monotonic()

    @property
    def share(self) -> float:
        """The part of the time that windows take."""
        return self.seconds / self.every

    @property
    def wait_s(self) -> float:
        """Seconds until the next window."""
        return max(0.0, self._due - time.monotonic())

    def spent(self, seconds: float) -> None:
        """Count what a window took from its order to its end, with what the server wrote meanwhile."""
        self._due = time.monotonic() + seconds / self.share - seconds

    def put_off(self, factor: float = 1.0) -> None:
        """Ask again after the usual time, or a multiple of it."""
        self._due = time.monotonic() + factor * self.every
