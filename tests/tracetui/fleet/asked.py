"""Questions to many files, and how they are asked in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracetui.fleet.ask_files import FleetAnswer, ask_files, make_jobs
from tracetui.fleet.file_job import FileJob, JobResult, run_job
from tracetui.look import Look
from tracetui.views import load_view, load_views

RANKS = 64
VIEWS = tuple(v.name for v in load_views() if v.merging and v.run_count == 1)


def jobs(folder: Path, name: str, look: Look = Look()) -> list[FileJob]:  # noqa: B008 - frozen
    return make_jobs(load_view(name), [str(folder)], look, cache=False, capture=None)


def here(asked: list[FileJob]) -> FleetAnswer:
    """The answer of one process, which is this one."""

    class Here:
        def run(self, jobs: Any, where: str) -> Iterator[JobResult]:
            yield from map(run_job, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracetui.fleet.ask_files.find_executor", lambda on: (Here(), ""))
        return ask_files(load_view(asked[0].view), asked, "here", lambda done: None)


def ignore(done: JobResult) -> None:
    pass


def same(one: FleetAnswer, other: FleetAnswer) -> bool:
    return one.answer.rows.equals(other.answer.rows) and one.answer.notes == other.answer.notes
