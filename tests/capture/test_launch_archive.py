"""The shelf: rows of folded steps come back as they were, for as long as there is room for them."""

import random
from pathlib import Path

import polars as pl
import pytest

import capture.native.tail
from capture.launch_archive import MAX_LAUNCHES, LaunchArchive
from capture.load_runs import load
from capture.native.emit import Emitter
from capture.native.tail import FileTail
from tests.capture.native.test_compaction import begun, made, write


def rows_of(*steps: int) -> pl.DataFrame:
    """Two launches a step, which can be told from all others."""
    return pl.DataFrame(
        {"step": [s for s in steps for _ in "ab"], "dur": [10 * s + i for s in steps for i in (1, 2)]}
    )


def test_what_is_put_there_comes_back_step_by_step() -> None:
    shelf = LaunchArchive()
    for first in range(0, 100, 10):
        shelf = shelf.append(rows_of(*range(first, first + 10)), limit=1000)
    for first, last in ((0, 99), (7, 7), (19, 41)):
        actual = shelf.read_steps(first, last)
        assert actual is not None
        assert actual["dur"].to_list() == [10 * s + i for s in range(first, last + 1) for i in (1, 2)]
    assert shelf.read_steps(100, 120) is None and LaunchArchive().read_steps(0, 0) is None


def test_a_row_that_came_late_is_with_its_step() -> None:
    shelf = LaunchArchive().append(rows_of(1, 2, 3), limit=99).append(rows_of(2, 4), limit=99)
    actual = shelf.read_steps(2, 2)
    assert actual is not None and actual["dur"].to_list() == [21, 22, 21, 22]


def test_the_oldest_make_room_and_no_step_is_told_in_part() -> None:
    """Of a room of 50 rows the newest two packs are kept; step 22 has a row in one that was dropped."""
    shelf = LaunchArchive()
    for steps in (range(10), (*range(10, 19), 22), range(19, 29), range(29, 39)):
        shelf = shelf.append(rows_of(*steps), limit=50)
    assert sum(pack.row_count for pack in shelf.blocks) == 40
    assert shelf.complete_from == 23
    assert shelf.read_steps(22, 24) is None and shelf.read_steps(5, 30) is None
    actual = shelf.read_steps(23, 38)
    assert actual is not None and sorted(set(actual["step"])) == list(range(23, 39))


def test_the_room_holds_ten_minutes_of_an_engine() -> None:
    """A decoder of 24 layers with 17 launches in each, at 30 steps a second."""
    assert MAX_LAUNCHES >= 600 * 30 * 24 * 17


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_a_follower_keeps_what_it_folds_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(capture.native.tail, "RECENT_EVENTS", 300)
    path, draw = tmp_path / "long.jsonl", random.Random(3)
    emitter: Emitter = begun(path)
    follow = FileTail(path, archived_launches=room)
    for step in made(400, 3):
        write(emitter, step)
        if draw.random() < 0.1:
            emitter.flush()
            follow.poll()
            follow.build_runs()
    emitter.end()
    follow.poll()
    (seen,), (kept,) = follow.build_runs(), load(path, cache=False)
    before = seen.meta["folded"]["before"]
    assert before > 200
    if not room:
        assert not seen.archive.blocks
        return
    columns = ["kind", "name", "layer", "step", "t", "dur", "context", "flops"]
    computed = seen.archive.read_steps(0, before - 1)
    truth = kept.events.filter(pl.col("kind").is_in(["kernel", "step"]) & (pl.col("step") < before))
    assert computed is not None
    order = ["step", "t", "kind", "layer"]
    actual, expected = (
        each.select(columns).cast({"kind": pl.String, "name": pl.String}).sort(order)
        for each in (computed, truth)
    )
    assert actual.rows() == expected.rows()
