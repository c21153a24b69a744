"""Many files on the screen: it fills as they arrive, a rank opens its own file, and Esc leads back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tracetui.fleet.made import decoders
from tests.tracetui.ui.hand import PATIENCE, answer, press, screen, settle
from tracetui.fleet.executors import local
from tracetui.look import Look
from tracetui.ui.app import Explorer, open_feed
from tracetui.ui.messages import RunsChanged
from tracetui.ui.run_info import RunInfo
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.file_set_feed import FileSetFeed
from tracetui.views import Answer, View, load_view

RANKS = 12
Script = Callable[[Explorer, "Pilot[Any]"], Awaitable[None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders(tmp_path_factory.mktemp("decoders"), RANKS)


def run_script(folder: Path, view: str, script: Script) -> None:
    """Show a folder of files on the screen and run a script of keys."""
    options = ScreenOptions(view=view, executor="local:1", cache=False)
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


async def wait_for_answer(app: Explorer, pilot: "Pilot[Any]", *texts: str) -> None:
    """Wait until the screen shows the answer about all files, with these texts."""

    def is_complete() -> bool:
        lines = "\n".join(screen(app))
        return "so far" not in lines and all(text in lines for text in texts)

    await wait_until(app, pilot, is_complete)


async def wait_until(app: Explorer, pilot: "Pilot[Any]", is_ready: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if is_ready():
            return
        await pilot.pause(0.01)
    raise AssertionError("\n".join(screen(app)))


def test_a_rank_of_the_map_opens_its_file_and_esc_leads_back(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await wait_for_answer(app, pilot, "one answer about 12 files")
        await press(pilot, "down", "down", "right", "enter")
        await wait_until(app, pilot, lambda: app.workspace.session.view == "summary")
        session = app.workspace.session
        assert session.run is not None and session.run.log.source == str(folder / "rank002.jsonl")
        assert [run.events.height > 0 for run in session.runs] == [True, False]
        await press(pilot, "escape")
        await wait_for_answer(app, pilot, "one answer about 12 files")
        assert app.workspace.session.view == "rankmap" and app.workspace.session.look.cursor == (2, 1)
        await press(pilot, "enter")  # which is open already
        await wait_until(app, pilot, lambda: app.workspace.session.view == "summary")
        assert len(app.workspace.session.runs) == 2

    run_script(folder, "rankmap", script)


def test_a_key_pressed_while_the_same_answer_is_fetched_again_moves_the_cursor(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await wait_for_answer(app, pilot, "one answer about 12 files")
        files, is_asked, can_answer = app.workspace.session.files, threading.Event(), threading.Event()
        assert files is not None

        def answer_late(view: View, look: Look) -> Answer:
            is_asked.set()
            assert can_answer.wait(60)
            return files.answer(view, look)

        snapshot = replace(files, answer=answer_late)
        app.post_message(RunsChanged([snapshot], [RunInfo()], [load_view("rankmap")]))
        await wait_until(app, pilot, is_asked.is_set)
        await pilot.press("down", "down", "right")
        can_answer.set()
        await settle(pilot)
        assert app.workspace.session.look.cursor == (2, 1)

    run_script(folder, "rankmap", script)


@pytest.mark.slow
def test_a_kernel_leads_to_the_ranks_in_which_it_runs(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await wait_for_answer(app, pilot, "one answer about 12 files", "gemm")
        ring = answer(app).rows["name"].to_list().index("ring")  # which one of the ranks does not run
        await press(pilot, *["down"] * (ring - app.workspace.session.look.cursor[0]), "enter")
        await wait_for_answer(app, pilot, "straggler")
        assert app.workspace.session.view == "ranks"
        await press(pilot, "i")  # all notes
        await wait_for_answer(app, pilot, "11 ranks in 6 decode steps")
        await press(pilot, "escape", "escape")
        await wait_for_answer(app, pilot, "one answer about 12 files", "gemm")
        assert app.workspace.session.view == "kernels"

    run_script(folder, "kernels", script)


def test_a_view_that_cannot_be_merged_says_why(folder: Path) -> None:
    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        await wait_for_answer(app, pilot, "it shows single launches over time")

    run_script(folder, "timeline", script)


def test_the_screen_fills_as_files_arrive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are handed out when the test says so."""
    gate, run = threading.Semaphore(0), local.run

    def run_gated(jobs: Any, where: str) -> Any:
        for result in run(jobs, where):
            gate.acquire()
            yield result

    monkeypatch.setattr(local, "run", run_gated)
    monkeypatch.setattr("tracetui.fleet.running_query.UPDATE_SECONDS", 0)

    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        gate.release()  # a block of four files
        await wait_until(app, pilot, lambda: "4 of 12 files so far" in "\n".join(screen(app)))
        gate.release(RANKS)
        await wait_for_answer(app, pilot, "one answer about 12 files")

    run_script(folder, "kernels", script)
