"""The chart below the growth of rows: of those that were marked, by their keys."""

from tests.tracetui.runs import decode
from tracetui.look import Look
from tracetui.views import ask, load_view
from tracetui.views.growth import _build_series


def test_rows_that_were_marked_are_drawn() -> None:
    run, shown = decode(12), load_view("growth")
    answer = ask(shown, [run], Look())
    marked = [str(word) for word in answer.rows[answer.key[0]].drop_nulls()][-2:]
    series = _build_series(answer, Look(chosen=tuple((word,) for word in marked)))
    assert list(series) == marked and all(len(points) == 12 for points in series.values())
