"""The chart below the growth of rows: of those that were marked, by their keys."""

from tests.tracetui.runs import decode, made
from tracetui.look import Look
from tracetui.views import ask, load_view
from tracetui.views.growth import _build_series


def test_rows_that_were_marked_are_drawn() -> None:
    run, shown = decode(12), load_view("growth")
    answer = ask(shown, [run], Look())
    marked = [str(word) for word in answer.rows[answer.key[0]].drop_nulls()][-2:]
    series = _build_series(answer, Look(chosen=tuple((word,) for word in marked)))
    assert list(series) == marked and all(len(points) == 12 for points in series.values())


def test_unknown_ops_are_a_dash_in_every_view_and_layer_0_is_named() -> None:
    """What a cell of the table shows: neither `other`, nor the number 0 of a layer taken for nothing."""
    rows = [
        row | ({"op": None} if row.get("name") == "attention" else {"op": "named"})
        for row in decode(12).events.to_dicts()
    ]
    run = made([{**row, "name": str(row["name"]).replace("attention", "blob")} for row in rows])
    answers = {name: ask(load_view(name), [run], Look()) for name in ("growth", "summary")}
    texts = [*answers["growth"].notes, *_build_series(answers["growth"], Look())]
    assert not [text for text in texts if text.startswith("other")] and "–" in texts
    assert any(text.startswith("– grows by") for text in texts)
    summary = answers["summary"].rows
    assert "–" in summary.filter(part="op")["name"].to_list()
    by_layer = ask(load_view("growth"), [decode(12)], Look(group="layer")).notes
    assert any(note.startswith("0 grows by") for note in by_layer)
