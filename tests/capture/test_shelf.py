"""The shelf: rows of folded steps come back as they were, for as long as there is room for them."""

import random
from pathlib import Path

import polars as pl
import pytest

import capture.native.follow
from capture.native.emit import Emitter
from capture.native.follow import Follow
from capture.open import load
from capture.shelf import ROOM, Shelf
from tests.capture.test_fold import begun, made, write


def rows_of(*steps: int) -> pl.DataFrame:
    """Two launches a step, which can be told from all others."""
    return pl.DataFrame(
        {"step": [s for s in steps for _ in "ab"], "dur": [10 * s + i for s in steps for i in (1, 2)]}
    )


def test_what_is_put_there_comes_back_step_by_step() -> None:
    shelf = Shelf()
    for first in range(0, 100, 10):
        shelf = shelf.with_rows(rows_of(*range(first, first + 10)), room=1000)
    for first, last in ((0, 99), (7, 7), (19, 41)):
        found = shelf.steps(first, last)
        assert found is not None
        assert found["dur"].to_list() == [10 * s + i for s in range(first, last + 1) for i in (1, 2)]
    assert shelf.steps(100, 120) is None and Shelf().steps(0, 0) is None


def test_a_row_that_came_late_is_with_its_step() -> None:
    shelf = Shelf().with_rows(rows_of(1, 2, 3), room=99).with_rows(rows_of(2, 4), room=99)
    found = shelf.steps(2, 2)
    assert found is not None and found["dur"].to_list() == [21, 22, 21, 22]


def test_the_oldest_make_room_and_no_step_is_told_in_part() -> None:
    """Of a room of 50 rows the newest two packs are kept; step 22 has a row in one that was dropped."""
    shelf = Shelf()
    for steps in (range(10), (*range(10, 19), 22), range(19, 29), range(29, 39)):
        shelf = shelf.with_rows(rows_of(*steps), room=50)
    assert sum(pack.rows for pack in shelf.packs) == 40
    assert shelf.since == 23
    assert shelf.steps(22, 24) is None and shelf.steps(5, 30) is None
    found = shelf.steps(23, 38)
    assert found is not None and sorted(set(found["step"])) == list(range(23, 39))


def test_the_room_holds_ten_minutes_of_an_engine() -> None:
    """A decoder of 24 layers with 17 launches in each, at 30 steps a second."""
    assert ROOM >= 600 * 30 * 24 * 17


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_a_follower_keeps_what_it_folds_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(capture.native.follow, "NEWEST", 300)
    path, draw = tmp_path / "long.jsonl", random.Random(3)
    emitter: Emitter = begun(path)
    follow = Follow(path, shelved=room)
    for step in made(400, 3):
        write(emitter, step)
        if draw.random() < 0.1:
            emitter.flush()
            follow.poll()
            follow.runs()
    emitter.end()
    follow.poll()
    (seen,), (kept,) = follow.runs(), load(path, cache=False)
    before = seen.meta["folded"]["before"]
    assert before > 200
    if not room:
        assert seen.shelf is None
        return
    assert seen.shelf is not None
    columns = ["kind", "name", "layer", "step", "t", "dur", "context", "flops"]
    found = seen.shelf.steps(0, before - 1)
    truth = kept.events.filter(pl.col("kind").is_in(["kernel", "step"]) & (pl.col("step") < before))
    assert found is not None
    order = ["step", "t", "kind", "layer"]
    told, expected = (
        each.select(columns).cast({"kind": pl.String, "name": pl.String}).sort(order)
        for each in (found, truth)
    )
    assert told.rows() == expected.rows()
