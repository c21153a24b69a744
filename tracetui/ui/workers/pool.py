"""Threads for work of which only the newest is wanted."""

import threading
from collections.abc import Callable
from typing import Final

from tracetui import cancel
from tracetui.cancel import Cancelled, Token

Job = Callable[[], object]

THREADS: Final = 3


class Pool:
    """Runs the newest job at once, in a daemon thread; leaving the program never waits for it.

    A new job cancels the one before it. A cancelled job ends at its next `cancel.check` and keeps its thread
    until then; when all threads are kept like that, the newest job waits for one, and takes the place of a
    job that waited before it.
    """

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._name, self._most = name, threads
        self._changed = threading.Condition()
        self._waiting: tuple[Job, Token] | None = None
        self._token = Token()  # of the newest job
        self._threads = self._idle = 0

    @property
    def threads(self) -> int:
        """How many threads there are, busy or not."""
        return self._threads

    @property
    def busy(self) -> int:
        """How many threads have a job at this moment."""
        with self._changed:
            return self._threads - self._idle

    def start(self, job: Job) -> Token:
        """Cancel the job before this one and run this one; return the token that cancels it."""
        with self._changed:
            self._token.cancel()
            self._token = Token()
            self._waiting = job, self._token
            if not self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._changed.notify()
            return self._token

    def cancel(self) -> None:
        """Cancel the newest job; nothing takes its place."""
        with self._changed:
            self._token.cancel()
            self._waiting = None

    def _work(self) -> None:
        while True:
            job, token = self._next()
            try:
                with cancel.working_for(token):
                    job()
            except Cancelled:
                pass
            except BaseException:
                with self._changed:
                    self._threads -= 1
                raise
            del job, token  # what they hold on to may be large

    def _next(self) -> tuple[Job, Token]:
        with self._changed:
            self._idle += 1
            while self._waiting is None:
                self._changed.wait()
            self._idle -= 1
            taken, self._waiting = self._waiting, None
            return taken
