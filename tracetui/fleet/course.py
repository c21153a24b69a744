"""A question to many files on its way: asked in a thread, answered at any moment from what has arrived."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from capture.errors import CaptureError, UnreadableError
from capture.open import Input, gather
from capture.text import clean
from tracetui import cancel
from tracetui.cancel import Cancelled, Token
from tracetui.fleet.ask import Fleet, finished, jobs_of
from tracetui.fleet.executors import executor
from tracetui.fleet.fold import Fold
from tracetui.fleet.hosts import Hosts
from tracetui.fleet.job import Job
from tracetui.look import Look
from tracetui.views import Answer, View

OFTEN: Final = 0.5  # seconds between two pictures of what has arrived
KEPT: Final = 16  # answers that are not asked for again
_LOOK: Final = 0.05  # seconds between two looks at whether the answer is still wanted


class Course:
    """One question to many files, and what has come of it so far."""

    def __init__(
        self, asked: View, jobs: Sequence[Job], on: str, news: Callable[[], object], hosts: Hosts
    ) -> None:
        self._asked, self._jobs, self._on, self._news, self._hosts = asked, jobs, on, news, hosts
        self._fold = Fold(len(jobs), asked.merging.shapes if asked.merging else {})
        self._faults: dict[int, str] = {}
        self._done = 0
        self._error: CaptureError | None = None
        self._lock, self._some, self._token = threading.Lock(), threading.Event(), Token()
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Tell whether all files were asked."""
        return self._done == len(self._jobs)

    def stop(self) -> None:
        """Ask no further file, and leave no process behind."""
        self._token.cancel()
        self._thread.join(10)

    def fleet(self) -> Fleet:
        """Return the answer of the files that were read, as soon as there is one. Raise CaptureError where
        none can be read, Cancelled where nobody waits for it any more.
        """
        while not self._some.wait(_LOOK):
            cancel.check()
        if self._error is not None:
            raise self._error
        with self._lock:
            whole, done = self._fold.so_far(), self._done
            faults = [self._faults[number] for number in sorted(self._faults)]
        if whole is None:
            what = f"none of {len(self._jobs)} files could be read"
            raise UnreadableError(what, why=faults[0] if faults else "")
        fleet = finished(self._asked, self._jobs, whole, tuple(faults), done, self._hosts)
        if done == len(self._jobs):
            return fleet
        so_far = f"{done:,} of {len(self._jobs):,} files so far"
        return replace(fleet, answer=replace(fleet.answer, notes=(so_far, *fleet.answer.notes)))

    def _run(self) -> None:
        told = 0.0
        try:
            with cancel.working_for(self._token):
                who, where = executor(self._on)
                with closing(who.run(self._jobs, where)) as arriving:  # type: ignore[type-var]
                    for done in arriving:
                        with self._lock:
                            self._fold.add(done.number, done.partial)
                            self._done += 1
                            if done.partial is None:
                                self._faults[done.number] = done.fault
                        if done.partial is not None and time.monotonic() - told > OFTEN:
                            told = time.monotonic()
                            self._some.set()
                            self._news()
        except Cancelled:
            return
        except CaptureError as e:
            self._error = e
        except Exception as e:
            why = f"{type(e).__name__}: {clean(str(e), 300)}"
            self._error = UnreadableError("the files could not be asked", why=why)
        finally:
            self._some.set()
        self._news()


class Asker:
    """Asks many files one question at a time: a new one ends the one before it."""

    def __init__(
        self, paths: Sequence[Input], on: str, hosts: Hosts, news: Callable[[], object], **ways: object
    ) -> None:
        """Ask the files of some paths on processes or a cluster; `ways` are those of `jobs_of`. Raises
        CaptureError where there are no files.
        """
        self.files = gather(paths)
        self._on, self._hosts, self._news, self._ways = on, hosts, news, ways
        self._lock = threading.Lock()
        self._courses: dict[tuple[str, Look], Course] = {}
        self._answers: dict[tuple[str, Look], Answer] = {}

    def answer(self, asked: View, look: Look) -> Answer:
        """Return the answer of the files that were read; `news` is called when there will be more."""
        key = (asked.name, look)
        if key in self._answers:
            return self._answers[key]
        course = self._course(asked, look)
        complete = course.complete  # before the answer, to which more may come
        answer = course.fleet().answer
        if complete:
            self._answers[key] = answer
            for old in list(self._answers)[:-KEPT]:
                del self._answers[old]
        return answer

    def close(self) -> None:
        """End the question that is on its way."""
        with self._lock:
            for course in self._courses.values():
                course.stop()
            self._courses.clear()

    def _course(self, asked: View, look: Look) -> Course:
        key = (asked.name, look)
        with self._lock:
            if key not in self._courses:
                jobs = jobs_of(asked, self.files, look, **self._ways)  # type: ignore[arg-type]
                for course in self._courses.values():
                    course.stop()
                self._courses = {key: Course(asked, jobs, self._on, self._news, self._hosts)}
            return self._courses[key]
