"""Run jobs on a Dask scheduler, which places them, retries them, and detects lost workers."""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from capture.errors import UnreadableError, UsageError
from capture.tasks import check_cancelled
from tracetui.fleet.executors import MAX_RETRIES, Patience, describe_cause, give_up, require_module
from tracetui.fleet.file_job import FileJob, JobResult, run_job

_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")  # each has a level of its own
_CONNECT_SECONDS: Final = 30  # seconds for the scheduler to answer
_POLL_SECONDS: Final = 0.2  # between two checks for cancellation
_LOOK_SECONDS: Final = 0.02  # between two looks at the futures, whose state is kept in this process
_FETCH_SECONDS: Final = 10  # for a result to come from its worker, which may be stopped or gone
_CLOSE_SECONDS: Final = 2
_JOBS_PER_THREAD: Final = 4  # submitted per worker thread


def run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    """Yield the result of each job."""
    distributed = require_module("distributed", "dask")
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    client = _connect(distributed, where)
    rest, running, patience = iter(jobs), dict[Any, FileJob](), Patience()
    try:
        limit = _JOBS_PER_THREAD * max(1, sum(client.nthreads().values()))
        running.update((_submit(client, job), job) for job in islice(rest, limit))
        while running:
            check_cancelled()
            finished = _wait_for_any(running)
            if client.status != "running" or any(future.status == "cancelled" for future in finished):
                raise _build_lost_error(where)
            for future in finished:
                if result := _fetch_result(running[future], future, where):
                    del running[future]
                    yield result
                    patience.note_answer()  # who asks may have taken long with it
                    running.update((_submit(client, job), job) for job in islice(rest, 1))
            if patience.is_over(running.values()):
                yield from give_up((*running.values(), *rest))
                return
    finally:
        with suppress(Exception):  # of a scheduler that is gone
            client.cancel(list(running))
        with suppress(Exception):
            client.close(timeout=_CLOSE_SECONDS)


def _wait_for_any(running: Collection[Any]) -> list[Any]:
    """Wait a moment for the futures; return those that have ended."""
    deadline = time.monotonic() + _POLL_SECONDS
    while not (ended := [future for future in running if future.done()]) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return ended


def _connect(distributed: Any, where: str) -> Any:
    try:
        return distributed.Client(f"tcp://{where}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as e:
        raise UsageError(f"no Dask scheduler answers at {where}", why=describe_cause(e)) from None


def _submit(client: Any, job: FileJob) -> Any:
    return client.submit(run_job, job, pure=False, retries=MAX_RETRIES)


def _fetch_result(job: FileJob, future: Any, where: str) -> JobResult | None:
    """Fetch the result of a job; None if its worker does not give it: what is lost is computed again.

    A job that no worker finished is a fault of its file.
    """
    try:
        if future.status == "error":
            cause = describe_cause(future.exception())
            return JobResult(job.number, fault=f"{job.files[0]}: no worker finished it ({cause})")
        result: JobResult = future.result(timeout=_FETCH_SECONDS)
    except TimeoutError:
        return None
    except OSError:
        raise _build_lost_error(where) from None
    return result


def _build_lost_error(where: str) -> UnreadableError:
    return UnreadableError(f"the Dask scheduler at {where} is gone", todo="start it again")
