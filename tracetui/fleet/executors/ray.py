"""Run jobs on a Ray cluster, which places them and retries those whose worker was lost."""

import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from itertools import islice
from typing import Any, Final

from capture.errors import UnreadableError, UsageError
from capture.tasks import check_cancelled, report_activity
from tracetui.fleet.executors import MAX_RETRIES, Patience, describe_cause, give_up, require_module
from tracetui.fleet.file_job import FileJob, JobResult, run_job

_POLL_SECONDS: Final = 0.5  # seconds between two checks for cancellation
_JOBS_PER_CPU: Final = 4  # submitted per CPU of the cluster
# A cluster that was killed leaves its address behind. Ray tries to reach it 20 times, for 41 seconds each.
_ATTEMPTS_VARIABLE: Final = "RAY_NUM_REDIS_GET_RETRIES"
_HEAD_TIMEOUT_S: Final = 20.0  # without a connection to the head; after 60 s Ray ends the process that asks


def run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    """Yield the result of each job; what Ray prints of lost workers stays out of the answer."""
    with redirect_stdout(sys.stderr):
        yield from _run(jobs, where)


def _run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    os.environ.setdefault(_ATTEMPTS_VARIABLE, "1")  # Ray reads it when it is imported
    ray = require_module("ray", "ray")
    owns_connection = not ray.is_initialized()
    if owns_connection:
        _connect(ray, where)
    rest, running, patience, head = iter(jobs), dict[Any, FileJob](), Patience(), _Head(ray, where)
    try:
        submit = ray.remote(max_retries=MAX_RETRIES)(run_job).remote
        limit = _JOBS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
        running.update((submit(job), job) for job in islice(rest, limit))
        while running:
            check_cancelled()
            head.check()
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
            if not ready:
                if patience.is_over(running.values()):
                    yield from give_up((*running.values(), *rest))
                    return
                continue
            patience.note_answer()
            job = running.pop(ready[0])
            yield _fetch_result(ray, ready[0], job)
            running.update((submit(following), following) for following in islice(rest, 1))
    except ConnectionError:  # of a client, after half a minute of attempts
        raise head.build_lost_error() from None
    finally:
        for reference in running if ray.is_initialized() else ():  # else each connects again
            with suppress(Exception):
                ray.cancel(reference, force=True)
        if owns_connection:
            with suppress(Exception):  # of a head that is gone
                ray.shutdown()


class _Head:
    """The head of the cluster, which may be gone: Ray waits for it for a minute, then ends this process."""

    def __init__(self, ray: Any, where: str) -> None:
        self.address = ray.get_runtime_context().gcs_address if where in ("", "auto") else where
        self._answered_at = self._checked_at = time.monotonic()

    def check(self) -> None:
        """Raise UnreadableError if nothing has listened at its address for a while."""
        if time.monotonic() - self._checked_at < _POLL_SECONDS:
            return
        self._checked_at = time.monotonic()
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _POLL_SECONDS).close()
        except OSError:
            if time.monotonic() - self._answered_at > _HEAD_TIMEOUT_S:
                raise self.build_lost_error() from None
        else:
            self._answered_at = time.monotonic()

    def build_lost_error(self) -> UnreadableError:
        """Build the error of a cluster whose head is gone."""
        message = f"the head of the Ray cluster at {self.address} is gone"
        return UnreadableError(message, todo="start it again")


def _connect(ray: Any, where: str) -> None:
    address = "auto" if where in ("", "auto") else f"ray://{where}"
    try:
        with report_activity(f"waiting for Ray at {address}"):
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError, OSError) as e:
        raise UsageError(f"no Ray answers at {address}", why=describe_cause(e)) from None


def _fetch_result(ray: Any, reference: Any, job: FileJob) -> JobResult:
    """Fetch the result of a job; a job that no worker finished is a fault of its file."""
    try:
        result: JobResult = ray.get(reference)
    except ray.exceptions.RayError as e:
        return JobResult(job.number, fault=f"{job.files[0]}: no worker finished it ({describe_cause(e)})")
    return result
