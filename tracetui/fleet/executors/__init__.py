"""Who computes: processes of this machine, or a cluster that runs already; each applies a function to files.

An executor is one module here and one line in the table: `run(jobs, where)` yields what became of each job,
in any order, and stops what it began when its caller stops asking.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, cast

from capture.errors import UsageError
from tracetui.fleet.job import Done, Job

EXECUTORS: Final = ("local", "dask", "ray")
RETRIES: Final = 3  # of a file whose worker was lost


class Executor(Protocol):
    """What a module here offers."""

    def run(self, jobs: Sequence[Job], where: str) -> Iterator[Done]:
        """Yield what became of each job; raise UsageError where nobody is there to compute."""
        ...


def executor(on: str) -> tuple[Executor, str]:
    """Return who computes, and where, of a word like `local:4`, `dask://host:8786` or `ray://auto`."""
    name, _, where = on.partition("://" if "://" in on else ":")
    if name not in EXECUTORS:
        todo = "choose local:N, dask://HOST:PORT or ray://HOST:PORT|auto"
        raise UsageError(f"nothing can be computed on {on!r}", todo=todo)
    return cast(Executor, import_module(f"tracetui.fleet.executors.{name}")), where


def need(module: str, extra: str) -> Any:
    """Return a module that an extra brings; raise UsageError where it is not installed."""
    if find_spec(module) is None:
        todo = f"pip install 'tracetui[{extra}]'"
        raise UsageError(f"--on {extra}:// needs {module}, which is not installed", todo=todo)
    return import_module(module)
