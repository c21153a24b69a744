"""Questions to many files, and how they are asked in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracetui.fleet.ask import Fleet, ask_fleet, jobs_of
from tracetui.fleet.job import Done, Job, do
from tracetui.look import Look
from tracetui.views import view, views

RANKS = 64
VIEWS = tuple(v.name for v in views() if v.merging and v.runs == 1)


def jobs(folder: Path, name: str, look: Look = Look()) -> list[Job]:  # noqa: B008 - frozen
    return jobs_of(view(name), [str(folder)], look, cache=False, capture=None)


def here(asked: list[Job]) -> Fleet:
    """The answer of one process, which is this one."""

    class Here:
        def run(self, jobs: Any, where: str) -> Iterator[Done]:
            yield from map(do, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracetui.fleet.ask.executor", lambda on: (Here(), ""))
        return ask_fleet(view(asked[0].view), asked, "here", lambda done: None)


def ignore(done: Done) -> None:
    pass


def same(one: Fleet, other: Fleet) -> bool:
    return one.answer.rows.equals(other.answer.rows) and one.answer.notes == other.answer.notes
