"""Sort, limit and columns are applied to an answer: no view reads them, on a fixture of each kind."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES
from tests.tracetui.runs import recording
from tests.tracetui.views.test_views import everything
from tracetui.look import Look
from tracetui.views import Answer, View, ask, load_views, sort_answer


@cache
def fixtures() -> list[list[Run]]:
    """The runs of the smallest profile of each folder, and those made by hand that feed every view."""
    inputs = [[everything(), recording("a"), recording("b", slow={"norm": 2})]]
    folders = {p.parent: p for p in sorted(FIXTURES.rglob("*.*"), key=lambda p: -p.stat().st_size)}
    for path in sorted(folders.values()):
        try:
            inputs += [load(path, cache=False)] if path.is_file() else []
        except CaptureError:
            continue
    return inputs


def questions(view: View) -> Iterator[Sequence[Run]]:
    for runs in fixtures():
        yield from ([run] for run in runs) if view.run_count == 1 else pairwise(runs)


def everything_of(answer: Answer) -> tuple[object, ...]:
    """An answer as values that can be compared."""
    parts = {name: table.to_dict(as_series=False) for name, table in answer.parts.items()}
    rows = answer.rows.to_dict(as_series=False)
    return repr(rows), repr(parts), answer.notes, answer.key, answer.columns, answer.doubts, answer.missing


@pytest.mark.corpus
@pytest.mark.parametrize("view", load_views(), ids=lambda v: v.name)
def test_no_answer_depends_on_the_order_asked_for(view: View) -> None:
    asked = 0
    for runs in questions(view):
        plain = ask(view, runs, Look())
        column = (plain.rows.columns or ["name"])[-1]
        look = Look(sort=column, descending=False, limit=1, columns=(column,))
        assert everything_of(ask(view, runs, look)) == everything_of(plain)
        asked += 1
    assert asked > 1


def test_order_and_limit_are_applied_to_a_known_answer() -> None:
    answer = Answer(pl.DataFrame({"name": ["a", "b", "c"], "dur": [2, None, 3]}), ("first",))
    look = Look(sort="dur", limit=2)
    assert sort_answer(answer, look).rows["name"].to_list() == ["c", "a"]
    assert sort_answer(answer, replace(look, descending=False)).rows["name"].to_list() == ["a", "c"]
    assert sort_answer(answer, look).notes == ("first", "2 of 3 rows shown")
    assert sort_answer(answer, Look(sort="no such column")).rows.equals(answer.rows)
