"""Work away from the screen: one question at a time, and only the newest one waits."""

import threading
from collections.abc import Callable

Job = Callable[[], object]


class Latest:
    """A daemon thread that runs the last job it was given; leaving the program never waits for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._wanted: Job | None = None
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self, job: Job) -> None:
        """Runs the job as soon as the running one is over; a job that still waits is forgotten."""
        with self._lock:
            self._wanted = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._lock.notify()

    def _work(self) -> None:
        while True:
            with self._lock:
                while self._wanted is None:
                    self._lock.wait()
                job, self._wanted = self._wanted, None
            job()
