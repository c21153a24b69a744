"""Executors, which run the jobs of a query: processes of this machine, or a running cluster.

An executor is one module here and one entry of `EXECUTORS`. Its `run(jobs, where)` yields the result of each
job, in any order, and stops what it started when the caller closes the generator.

local: processes of this machine
dask: a running Dask scheduler
ray: a running Ray cluster
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, cast

from capture.errors import UsageError
from tracetui.fleet.file_job import FileJob, JobResult

EXECUTORS: Final = ("local", "dask", "ray")
MAX_RETRIES: Final = 3  # of a job whose worker was lost


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
