"""Executors, which run the jobs of a query: processes of this machine, or a running cluster.

An executor is one module here and one entry of `EXECUTORS`. Its `run(jobs, where)` yields the result of each
job, in any order, and stops what it started when the caller closes the generator.

local: processes of this machine
dask: a running Dask scheduler
ray: a running Ray cluster
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, cast

from capture.clean_text import clean
from capture.errors import UsageError
from capture.files.addresses import mask_credentials
from capture.tasks import announce
from tracetui.fleet.file_job import FileJob, JobResult

EXECUTORS: Final = ("local", "dask", "ray")
MAX_RETRIES: Final = 3  # of a job whose worker was lost
ANNOUNCE_AFTER_S: Final = 30.0  # without an answer of any file
MAX_SILENCE_S: Final = 1800.0  # after which nothing is expected any more


class Patience:
    """Announces files that give no answer for long, and ends the waiting at last."""

    def __init__(self) -> None:
        self._answered_at = self._announced_at = time.monotonic()

    def note_answer(self) -> None:
        """Note that a file has given its answer."""
        self._answered_at = self._announced_at = time.monotonic()

    def is_over(self, running: Collection[FileJob]) -> bool:
        """Whether nothing is expected of the running files any more; announce the first after a while."""
        now = time.monotonic()
        silence = now - self._answered_at
        if now - self._announced_at > ANNOUNCE_AFTER_S:
            self._announced_at = now
            others = f" and {len(running) - 1:,} others" if len(running) > 1 else ""
            file = min((job.number, job.files[0]) for job in running)[1]
            announce(f"waiting for {mask_credentials(file)}{others} since {silence:.0f} s")
        return silence > MAX_SILENCE_S


def give_up(jobs: Iterable[FileJob]) -> Iterator[JobResult]:
    """Yield a fault for each job."""
    why = f"no answer for {MAX_SILENCE_S / 60:,.0f} min (a stopped worker, a pipe or a dead mount)"
    for job in jobs:
        yield JobResult(job.number, fault=f"{mask_credentials(job.files[0])}: {why}")


def describe_cause(error: object) -> str:
    """Describe the error of a worker: its class, and the last line of the error at its root."""
    while isinstance(error, BaseException) and (cause := error.__cause__ or getattr(error, "cause", None)):
        error = cause
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = clean(mask_credentials(lines[-1]), 300) if lines else ""
    hint = (
        "; install the same tracetui there" if isinstance(error, ImportError) or "No module" in last else ""
    )
    return f"{type(error).__name__}: {last}{hint}" if last else type(error).__name__


class Executor(Protocol):
    """Protocol of the modules here."""

    def run(self, jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
        """Yield the result of each job; raise UsageError if the executor cannot be reached."""
        ...


def find_executor(on: str) -> tuple[Executor, str]:
    """Find the executor of `local:4`, `dask://host:8786` or `ray://auto`, and its address."""
    name, _, where = on.partition("://" if "://" in on else ":")
    if name not in EXECUTORS:
        todo = "choose local:N, dask://HOST:PORT or ray://HOST:PORT|auto"
        raise UsageError(f"unknown executor {on!r}", todo=todo)
    return cast(Executor, import_module(f"tracetui.fleet.executors.{name}")), where


def require_module(module: str, extra: str) -> Any:
    """Import a module of an extra; raise UsageError if it is not installed."""
    if find_spec(module) is None:
        todo = f"pip install 'tracetui[{extra}]'"
        raise UsageError(f"--on {extra}:// needs {module}, which is not installed", todo=todo)
    return import_module(module)
