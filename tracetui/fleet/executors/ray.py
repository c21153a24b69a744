"""Run jobs on a Ray cluster, which places them and retries those whose worker was lost."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from itertools import islice
from typing import Any, Final

from capture.errors import UsageError
from capture.tasks import check_cancelled, report_activity
from tracetui.fleet.executors import MAX_RETRIES, Patience, describe_cause, give_up, require_module
from tracetui.fleet.file_job import FileJob, JobResult, run_job

_POLL_SECONDS: Final = 0.5  # seconds between two checks for cancellation
_JOBS_PER_CPU: Final = 4  # submitted per CPU of the cluster
# A cluster that was killed leaves its address behind. Ray tries to reach it 20 times, for 41 seconds each.
_ATTEMPTS_VARIABLE: Final = "RAY_NUM_REDIS_GET_RETRIES"


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
    rest, running, patience = iter(jobs), dict[Any, FileJob](), Patience()
    try:
        submit = ray.remote(max_retries=MAX_RETRIES)(run_job).remote
        limit = _JOBS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
        running.update((submit(job), job) for job in islice(rest, limit))
        while running:
            check_cancelled()
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
    finally:
        for reference in running:
            with suppress(Exception):
                ray.cancel(reference, force=True)
        if owns_connection:
            ray.shutdown()


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
