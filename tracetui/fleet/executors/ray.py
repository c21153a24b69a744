"""A Ray cluster that runs already: it places the jobs and retries those whose worker is lost."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from capture.errors import UsageError
from tracetui import cancel
from tracetui.fleet.executors import RETRIES, need
from tracetui.fleet.job import Done, Job, do

_PATIENCE: Final = 0.5  # seconds between two looks at whether somebody still waits
_AHEAD: Final = 4  # jobs that are handed over for each processor of the cluster


def run(jobs: Sequence[Job], where: str) -> Iterator[Done]:
    """Yield what became of each job."""
    ray = need("ray", "ray")
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, where)
    rest, running = iter(jobs), dict[Any, Job]()
    try:
        submit = ray.remote(max_retries=RETRIES)(do).remote
        most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        running.update((submit(job), job) for job in islice(rest, most))
        while running:
            cancel.check()
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_PATIENCE)
            if not ready:
                continue
            job = running.pop(ready[0])
            yield _result(ray, ready[0], job)
            running.update((submit(following), following) for following in islice(rest, 1))
    finally:
        for reference in running:
            with suppress(Exception):
                ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()


def _connect(ray: Any, where: str) -> None:
    address = "auto" if where in ("", "auto") else f"ray://{where}"
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError, OSError) as e:
        raise UsageError(f"no Ray answers at {address}", why=type(e).__name__) from None


def _result(ray: Any, reference: Any, job: Job) -> Done:
    """Return what became of a job; one that no worker finished is a fault of its file."""
    try:
        done: Done = ray.get(reference)
    except ray.exceptions.RayError as e:
        return Done(job.number, fault=f"{job.files[0]}: no worker finished it ({type(e).__name__})")
    return done
