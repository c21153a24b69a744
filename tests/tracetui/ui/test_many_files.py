"""Many files on the screen: it fills as they arrive, a rank opens its own file, and Esc leads back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tracetui.fleet.made import decoders
from tests.tracetui.ui.hand import PATIENCE, press, screen
from tracetui.fleet.executors import local
from tracetui.ui.app import Explorer, open_feed
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.file_set_feed import FileSetFeed

RANKS = 12
Script = Callable[[Explorer, "Pilot[Any]"], Awaitable[None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders(tmp_path_factory.mktemp("decoders"), RANKS)


def ask(folder: Path, view: str, script: Script, on: str = "local:1") -> None:
    """The screen on a folder of files, through a script of keys."""
    options = ScreenOptions(view=view, executor=on, cache=False)
    feed = open_feed([str(folder)], options)
    assert isinstance(feed, FileSetFeed)
    app = Explorer(feed, options)

    async def session() -> None:
        async with app.run_test(size=(110, 30)) as pilot:
            await script(app, pilot)

    try:
        asyncio.run(session())
    finally:
        feed.close()
    assert active_children() == []


async def shown(app: Explorer, pilot: "Pilot[Any]", *texts: str) -> None:
    """Waits for the answer of all files, with these texts."""

    def there() -> bool:
        seen = "\n".join(screen(app))
        return "so far" not in seen and all(text in seen for text in texts)

    await when(app, pilot, there)


async def when(app: Explorer, pilot: "Pilot[Any]", ready: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if ready():
            return
        await pilot.pause(0.01)
    raise AssertionError("\n".join(screen(app)))


def test_a_rank_of_the_map_opens_its_file_and_esc_leads_back(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await shown(app, pilot, "one answer about 12 files")
        await press(pilot, "down", "down", "right", "enter")
        await when(app, pilot, lambda: app.workspace.session.view == "summary")
        session = app.workspace.session
        assert session.run is not None and session.run.log.source == str(folder / "rank002.jsonl")
        assert [run.events.height > 0 for run in session.runs] == [True, False]
        await press(pilot, "escape")
        await shown(app, pilot, "one answer about 12 files")
        assert app.workspace.session.view == "rankmap" and app.workspace.session.look.cursor == (2, 1)
        await press(pilot, "enter")  # which is open already
        await when(app, pilot, lambda: app.workspace.session.view == "summary")
        assert len(app.workspace.session.runs) == 2

    ask(folder, "rankmap", script)


def test_a_kernel_leads_to_the_ranks_in_which_it_runs(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await shown(app, pilot, "one answer about 12 files", "gemm")
        await press(pilot, "enter")
        await shown(app, pilot, "11 ranks in 6 decode steps", "straggler")  # one does not run `ring`
        assert app.workspace.session.view == "ranks"
        await press(pilot, "escape")
        await shown(app, pilot, "one answer about 12 files", "gemm")
        assert app.workspace.session.view == "kernels"

    ask(folder, "kernels", script)


def test_a_view_that_cannot_be_merged_says_why(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await shown(app, pilot, "it shows single launches over time")

    ask(folder, "timeline", script)


def test_the_screen_fills_as_files_arrive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are handed out when the test says so."""
    gate, run = threading.Semaphore(0), local.run

    def slowly(jobs: Any, where: str) -> Any:
        for result in run(jobs, where):
            gate.acquire()
            yield result

    monkeypatch.setattr(local, "run", slowly)
    monkeypatch.setattr("tracetui.fleet.running_query.UPDATE_SECONDS", 0)

    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        gate.release(3)
        await when(app, pilot, lambda: "3 of 12 files so far" in "\n".join(screen(app)))
        gate.release(RANKS)
        await shown(app, pilot, "one answer about 12 files")

    ask(folder, "kernels", script)
