"""Live, step by step: a step keeps its rows as long as it is looked at, and the newest rows are followed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import capture.native.tail
from capture.launch_archive import MAX_LAUNCHES
from capture.load_runs import load
from capture.native.tail import FileTail
from tests.tracetui.test_live_equals_file import LAYERS, OPS, record
from tests.tracetui.ui.hand import press, screen, settle, until
from tracetui.analysis.frames import selection
from tracetui.analysis.time import step_table
from tracetui.look import Look
from tracetui.ui.app import Explorer
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers import follow_file, restore_steps
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.ui.workers.restore_steps import restore_range
from tracetui.views import ask, load_view

STEPS = 400
EACH = LAYERS * len(OPS)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of many steps, of which a follower keeps few one by one."""
    monkeypatch.setattr(capture.native.tail, "RECENT_EVENTS", 20 * EACH)
    monkeypatch.setattr(restore_steps, "_cached_ranges", [])
    record(tmp_path / "prof.jsonl", STEPS)
    return tmp_path / "prof.jsonl"


def test_folded_steps_come_from_the_file_and_are_the_same_rows(path: Path) -> None:
    followed = FileTail(path)
    followed.poll()
    (seen,), (kept,) = followed.build_runs(), load(path, cache=False)
    before = seen.meta["folded"]["before"]
    assert before > 200 and restore_range(seen, None) is seen
    for window in ((5, 5), (7, 300), (before - 2, before + 2), (before, STEPS)):
        whole = restore_range(seen, window)
        look = Look(window=window)
        columns = ["t", "name", "layer", "step", "dur"]
        rows, expected = (
            selection.select_timed(r, look).select(columns).collect().sort(columns) for r in (whole, kept)
        )
        assert rows.cast(expected.schema).rows() == expected.rows() and rows.height
        assert (whole is seen) == (window[0] >= before)
    assert describe_run(seen).steps == tuple(step_table.build_step_facts(kept)["step"])


def test_where_the_file_is_gone_what_is_known_is_shown(path: Path) -> None:
    followed = FileTail(path)
    followed.poll()
    (seen,) = followed.build_runs()
    path.unlink()
    assert restore_range(seen, (5, 5)) is seen


def play_live(path: Path, script: Any, name: str = "kernels") -> None:
    app = Explorer(FileFollower(path, None, name), ScreenOptions(view=name, follow=True))

    async def session() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await until(app, pilot, "steps")
            await settle(pilot)
            await script(app, pilot)
        assert app.workspace.live is not None
        app.workspace.live.stop()

    asyncio.run(session())


@pytest.mark.corpus
@pytest.mark.parametrize("room", [0, MAX_LAUNCHES])
@pytest.mark.slow
def test_a_step_that_is_scrubbed_to_keeps_its_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Also one that was folded long ago: `[` goes step by step, and the rows are those of the file. They
    come from it where memory has no room for them, and from memory alone where it has.
    """
    monkeypatch.setattr(follow_file, "MAX_LAUNCHES", room)
    (kept,) = load(path, cache=False)

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await press(pilot, "left_square_bracket")
        assert app.workspace.session.look.window == (STEPS - 1, STEPS - 1)
        if room:
            path.unlink()
        for _ in range(59):
            await pilot.press("left_square_bracket")
        await settle(pilot)
        asked = STEPS - 60
        assert app.workspace.session.look.window == (asked, asked)
        picture = app.workspace.picture
        assert picture is not None
        expected = ask(load_view("kernels"), [kept], Look(window=(asked, asked))).rows
        columns = ["name", "count", "total_ns"]
        assert picture.answer.rows.select(columns).rows() == expected.select(columns).rows()
        assert not any("nothing matches" in line for line in screen(app))

    play_live(path, script)


def test_the_newest_steps_are_in_sight_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_text('{"kind":"run","schema":1,"name":"toy","id":"1","meta":{}}\n')
    record_more(path, 0, STEPS)

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        table = app.main_screen.table
        last = table.sheet.rows.height - 1
        assert table.cursor == last and table.row["step"] == STEPS - 1
        await press(pilot, "up", "up")
        record_more(path, STEPS, 7)
        await until(app, pilot, f"· {STEPS + 7} steps")
        assert table.row["step"] == STEPS - 3  # who has left the last row stays where they are
        await press(pilot, "G")
        record_more(path, STEPS + 7, 5)
        await until(app, pilot, f"· {STEPS + 12} steps")
        await settle(pilot)
        assert table.row["step"] == STEPS + 11

    play_live(path, script, "steps")


def record_more(path: Path, first: int, count: int) -> None:
    """Append steps to the recording, as an engine would go on."""
    with path.open("a") as file:
        for step in range(first, first + count):
            each = {"t": 1000 * step, "step": step, "phase": "decode"}
            for row in (
                {"kind": "kernel", "name": "rmsnorm", "dur": 400, "lens": "wall"},
                {"kind": "step", "name": "step", "dur": 500, "tokens": 1},
            ):
                file.write(json.dumps({**row, **each}) + "\n")
