"""Run jobs on a Dask scheduler, which places them, retries them, and detects lost workers."""

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from capture.errors import UsageError
from capture.tasks import check_cancelled
from tracetui.fleet.executors import MAX_RETRIES, require_module
from tracetui.fleet.file_job import FileJob, JobResult, run_job

_CONNECT_SECONDS: Final = 30  # seconds for the scheduler to answer
_JOBS_PER_THREAD: Final = 4  # submitted per worker thread


def run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    """Yield the result of each job."""
    distributed = require_module("distributed", "dask")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    client = _connect(distributed, where)
    rest, running = iter(jobs), dict[Any, FileJob]()
    try:
        finished = distributed.as_completed(loop=client.loop, with_results=True, raise_errors=False)
        limit = _JOBS_PER_THREAD * max(1, sum(client.nthreads().values()))
        for job in islice(rest, limit):
            finished.add(_submit(client, job, running))
        for future, result in finished:
            check_cancelled()
            job = running.pop(future.key)
            yield result if future.status == "finished" else _build_failure(job, result)
            for following in islice(rest, 1):
                finished.add(_submit(client, following, running))
    finally:
        client.cancel([distributed.Future(key, client) for key in running])
        client.close()


def _connect(distributed: Any, where: str) -> Any:
    try:
        return distributed.Client(f"tcp://{where}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as e:
        raise UsageError(f"no Dask scheduler answers at {where}", why=type(e).__name__) from None


def _submit(client: Any, job: FileJob, running: dict[Any, FileJob]) -> Any:
    future = client.submit(run_job, job, pure=False, retries=MAX_RETRIES)
    running[future.key] = job
    return future


def _build_failure(job: FileJob, result: Any) -> JobResult:
    """Describe a job that no worker finished, with the error that Dask reports."""
    error = result[1] if isinstance(result, tuple) and len(result) > 1 else result
    return JobResult(job.number, fault=f"{job.files[0]}: no worker finished it ({type(error).__name__})")
