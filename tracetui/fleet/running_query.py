"""A query over many files in progress: computed in a thread, answered at any time from what has arrived."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from capture.clean_text import clean
from capture.errors import CaptureError, UnreadableError
from capture.load_runs import Input, expand_inputs
from capture.tasks import Cancelled, CancelToken, check_cancelled, use_token
from tracetui.fleet.ask_files import FileResults, FleetAnswer, finish_answer, iter_results, make_jobs
from tracetui.fleet.file_job import FileJob
from tracetui.fleet.rank_hosts import Hosts
from tracetui.look import Look
from tracetui.views import Answer, View

UPDATE_SECONDS: Final = 0.5  # between two partial answers
MAX_CACHED_ANSWERS: Final = 16
_POLL_SECONDS: Final = 0.05  # between two checks for cancellation


class RunningQuery:
    """One question to many files, and the results so far."""

    def __init__(
        self, view: View, jobs: Sequence[FileJob], on: str, notify: Callable[[], object], hosts: Hosts
    ) -> None:
        self._view, self._jobs, self._on, self._notify, self._hosts = view, jobs, on, notify, hosts
        self._results = FileResults(view, jobs)
        self._error: CaptureError | None = None
        self._lock, self._has_results, self._token = threading.Lock(), threading.Event(), CancelToken()
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)
        self._thread.start()

    @property
    def is_complete(self) -> bool:
        """True after the last file."""
        return self._results.count == len(self._jobs)

    def stop(self) -> None:
        """Start no further file, and leave no process behind."""
        self._token.cancel()
        self._thread.join(10)

    def compute_answer(self) -> FleetAnswer:
        """Compute the answer of the files that have arrived; wait for the first.

        Raise CaptureError if none can be read, Cancelled if the caller was cancelled.
        """
        while not self._has_results.wait(_POLL_SECONDS):
            check_cancelled()
        if self._error is not None:
            raise self._error
        with self._lock:
            merged, faults, count = self._results.merge_arrived()
        fleet = finish_answer(self._view, self._jobs, merged, faults, count, self._hosts)
        if count == len(self._jobs):
            return fleet
        note = f"{count:,} of {len(self._jobs):,} files so far"
        return replace(fleet, answer=replace(fleet.answer, notes=(note, *fleet.answer.notes)))

    def _run(self) -> None:
        try:
            with use_token(self._token):
                self._collect_results()
        except Cancelled:
            return
        except CaptureError as e:
            self._error = e
        except Exception as e:
            why = f"{type(e).__name__}: {clean(str(e), 300)}"
            self._error = UnreadableError("the files could not be queried", why=why)
        finally:
            self._has_results.set()
        self._notify()

    def _collect_results(self) -> None:
        notified_at = 0.0
        with closing(iter_results(self._jobs, self._on)) as arriving:
            for result in arriving:
                with self._lock:
                    self._results.add(result)
                if result.partial is not None and time.monotonic() - notified_at > UPDATE_SECONDS:
                    notified_at = time.monotonic()
                    self._has_results.set()
                    self._notify()


class FileQuerier:
    """Query a set of files, one question at a time: a new one stops the one before."""

    def __init__(
        self, paths: Sequence[Input], on: str, hosts: Hosts, notify: Callable[[], object], **options: object
    ) -> None:
        """Find the files of some paths; `options` go to `make_jobs`. Raise CaptureError if there are none."""
        self.files = expand_inputs(paths)
        self._on, self._hosts, self._notify, self._options = on, hosts, notify, options
        self._lock = threading.Lock()
        self._queries: dict[tuple[str, Look], RunningQuery] = {}
        self._answers: dict[tuple[str, Look], Answer] = {}

    def answer(self, view: View, look: Look) -> Answer:
        """Answer from the files that have arrived; `notify` is called when there is more."""
        key = (view.name, look)
        if key in self._answers:
            return self._answers[key]
        query = self._find_query(view, look)
        is_complete = query.is_complete  # before the answer, which may come to include more files
        answer = query.compute_answer().answer
        if is_complete:
            self._answers[key] = answer
            for oldest in list(self._answers)[:-MAX_CACHED_ANSWERS]:
                del self._answers[oldest]
        return answer

    def close(self) -> None:
        """Stop the query in progress."""
        with self._lock:
            for query in self._queries.values():
                query.stop()
            self._queries.clear()

    def _find_query(self, view: View, look: Look) -> RunningQuery:
        key = (view.name, look)
        with self._lock:
            if key not in self._queries:
                jobs = make_jobs(view, self.files, look, **self._options)  # type: ignore[arg-type]
                for query in self._queries.values():
                    query.stop()
                self._queries = {key: RunningQuery(view, jobs, self._on, self._notify, self._hosts)}
            return self._queries[key]
