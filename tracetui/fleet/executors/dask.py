"""A Dask scheduler that runs already: it places the jobs, retries them, and knows which workers are lost."""

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from capture.errors import UsageError
from tracetui import cancel
from tracetui.fleet.executors import RETRIES, need
from tracetui.fleet.job import Done, Job, do

_PATIENCE: Final = 30  # seconds for the scheduler to answer
_AHEAD: Final = 4  # jobs that are handed over for each thread of the workers


def run(jobs: Sequence[Job], where: str) -> Iterator[Done]:
    """Yield what became of each job."""
    distributed = need("distributed", "dask")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    client = _connected(distributed, where)
    rest, places = iter(jobs), dict[Any, Job]()
    try:
        finished = distributed.as_completed(loop=client.loop, with_results=True, raise_errors=False)
        most = _AHEAD * max(1, sum(client.nthreads().values()))
        for job in islice(rest, most):
            finished.add(_submitted(client, job, places))
        for future, result in finished:
            cancel.check()
            job = places.pop(future.key)
            yield result if future.status == "finished" else _failed(job, result)
            for following in islice(rest, 1):
                finished.add(_submitted(client, following, places))
    finally:
        client.cancel([distributed.Future(key, client) for key in places])
        client.close()


def _connected(distributed: Any, where: str) -> Any:
    try:
        return distributed.Client(f"tcp://{where}", timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as e:
        raise UsageError(f"no Dask scheduler answers at {where}", why=type(e).__name__) from None


def _submitted(client: Any, job: Job, places: dict[Any, Job]) -> Any:
    future = client.submit(do, job, pure=False, retries=RETRIES)
    places[future.key] = job
    return future


def _failed(job: Job, result: Any) -> Done:
    """Return a job that no worker finished, with what Dask says of it."""
    error = result[1] if isinstance(result, tuple) and len(result) > 1 else result
    return Done(job.number, fault=f"{job.files[0]}: no worker finished it ({type(error).__name__})")
