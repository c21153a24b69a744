"""`H`: how the kernel under the cursor changed over the runs in the log."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from capture.files.user_dirs import find_recordings_folder, find_state_folder
from tests.conftest import FIXTURES
from tests.tracetui.history.test_trend import write_log
from tests.tracetui.runs import decode
from tests.tracetui.ui.hand import play, press, screen, settle
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions

Pilots = Pilot[Any]
KERNELS = ScreenOptions(view="kernels")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = find_state_folder()
    assert folder is not None
    return folder


async def wait_for(app: Explorer, pilot: Pilots, text: str) -> str:
    for _ in range(400):
        await settle(pilot)
        if text in (seen := "\n".join(screen(app))):
            return seen
        await pilot.pause(0.02)
    raise AssertionError(f"{text!r} never came:\n" + "\n".join(screen(app)))


async def choose_row(app: Explorer, pilot: Pilots, name: str) -> None:
    while app.main_screen.table.row["name"] != name:
        await press(pilot, "j")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_change_of_a_row_is_one_key_away_and_opens_the_run_that_began_it(
    size: tuple[int, int], state: Path
) -> None:
    write_log(state, lambda i: {"ffn_down": 1.2} if i >= 24 else {}, lambda i: {"source": f"run{i}.jsonl"})
    folder = find_recordings_folder()
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIXTURES / "native" / "flat.jsonl", folder / "run24.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await choose_row(app, pilot, "ffn_down")
        await press(pilot, "H")
        seen = await wait_for(app, pilot, "since 012000000")  # two runs are of one commit
        assert "ffn_down in decode +" in seen and "(its own change)" in seen
        await press(pilot, "escape")
        assert app.workspace.is_showing_view and app.main_screen.table.row["name"] == "ffn_down"
        await press(pilot, "H")
        await wait_for(app, pilot, "since 012000000")
        await press(pilot, "enter")
        await wait_for(app, pilot, "of 3")  # the file holds two
        assert app.workspace.session.run.log.source.endswith("run24.jsonl")  # type: ignore[union-attr]

    play(script, [decode()], KERNELS, size=size)


def test_row_without_a_change_says_so(state: Path) -> None:
    write_log(state, lambda i: {"ffn_down": 1.2} if i >= 24 else {})

    async def script(app: Explorer, pilot: Pilots) -> None:
        await choose_row(app, pilot, "attention")
        await press(pilot, "H")
        assert "no row changed in 40 runs" in await wait_for(app, pilot, "no row changed")

    play(script, [decode()], KERNELS)


def test_what_has_no_history_is_one_sentence(state: Path) -> None:
    async def without_log(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "H")
        await wait_for(app, pilot, "tracetui log add FILE")

    play(without_log, [decode()], KERNELS)
    write_log(state, lambda i: {}, lambda i: {"model": "another"})
    play(without_log, [decode()], KERNELS)

    async def on_a_step(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "H")
        await wait_for(app, pilot, "only kernels have a history")

    play(on_a_step, [decode()], ScreenOptions(view="steps"))
