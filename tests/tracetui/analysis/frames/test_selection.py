"""Which rows a look speaks of, and the notes about them."""

import pytest

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.look import Look


def test_lens_notes_name_what_is_not_added() -> None:
    run = made([{"name": "a", "dur": 1, "lens": x} for x in ("wall", "gpu", "wait")])
    assert selection.note_selection(run, Look()) == ["gpu times; wall, wait times overlap and are left out"]


def test_a_fact_is_found_once_for_each_run() -> None:
    asked = []

    @cache_per_run
    def height(run: Run) -> int:
        asked.append(run)
        return run.events.height

    one, two = made([{"name": "a", "dur": 1}]), made([{"name": "a", "dur": 1}, {"name": "b", "dur": 2}])
    assert [height(r) for r in (one, two, one, two)] == [1, 2, 1, 2]
    assert len(asked) == 2


@pytest.mark.parametrize("layer", [1, "1", ("1", "9")])
def test_a_number_is_asked_for_as_itself_or_as_a_table_of_words_shows_it(layer: object) -> None:
    run = made([{"name": n, "dur": 1, "layer": i} for n, i in (("a", 0), ("b", 1), ("c", None))])
    assert selection.select_timed(run, Look(focus=(("layer", layer),))).collect()["name"].to_list() == ["b"]
