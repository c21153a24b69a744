"""A server and a folder in the live screen: windows and figures, a server that dies, refuses, or is slow."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.capture.watch.fake_server import TRACES, State, serving
from tests.tracetui.ui.hand import attend, press, screen, until
from tracetui.process import WatchProcess
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower

Script = Callable[[Explorer, Pilot[Any]], Awaitable[None]]


def watch(out: Path, arguments: list[str], script: Script, size: tuple[int, int] = (120, 40)) -> None:
    """The live screen beside what is watched, through a script of keys; both end with it."""
    watcher = WatchProcess(arguments, out)
    feed = FileFollower(out, watcher)
    attend(Explorer(feed, ScreenOptions(follow=True, engine=watcher)), script, size)


@pytest.fixture
def state(tmp_path: Path) -> State:
    (tmp_path / "traces").mkdir()
    return State("vllm", tmp_path / "traces")


def asking(state: State, address: str, windows: str = "0.2", every: str = "60") -> list[str]:
    return ["--url", address, "--traces", str(state.folder), "--windows", windows, "--every", every]


@pytest.mark.slow
def test_windows_figures_and_the_death_of_a_server(state: State, tmp_path: Path) -> None:
    with serving(state) as address:
        port = int(address.rpartition(":")[2])

        async def first(app: Explorer, pilot: Pilot[Any]) -> None:
            await until(app, pilot, "vLLM at http://127.0.0.1")
            await until(app, pilot, "is healthy: 12 running, 3 waiting, KV cache 43% full")
            await until(app, pilot, "TTFT p50 20–50 ms")  # 30 ms lies in that bucket
            await until(app, pilot, "2 steps, 2 layers")  # as the trace alone says
            await until(app, pilot, "running 12 · waiting 3 · kv 43%")

        watch(tmp_path / "first.jsonl", asking(state, address), first)
    assert not state.profiling and state.starts == state.stops == 1

    async def second(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "does not answer: connection refused")  # before anything is there to show
        with serving(State("vllm", state.folder), port):
            await until(app, pilot, "12 running")
        await until(app, pilot, "no answer")
        while (
            not screen(app)[2]
            .strip()
            .startswith(f"http://127.0.0.1:{port} does not answer: connection refused")
        ):
            await pilot.pause(0.05)  # its figures are none of now
        with serving(State("vllm", state.folder), port):
            await until(app, pilot, "12 running")
            await press(pilot, "2")  # the screen lives
            await until(app, pilot, "_softmax")

    watch(tmp_path / "second.jsonl", asking(state, address, every="2"), second)


def test_leaving_in_a_window_ends_it(state: State, tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "profiling …")
        assert state.profiling
        await pilot.press("q")

    with serving(state) as address:
        watch(tmp_path / "out.jsonl", asking(state, address, windows="50"), script)
        assert not state.profiling and state.starts == state.stops == 1


def test_a_server_that_refuses(state: State, tmp_path: Path) -> None:
    state.key = "secret"

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "the server refuses to profile (401)")
        await until(app, pilot, "12 running")

    with serving(state) as address:
        watch(tmp_path / "out.jsonl", asking(state, address), script)
    assert state.starts == 0


@pytest.mark.slow
def test_a_slow_server(state: State, tmp_path: Path) -> None:
    state.delays["/metrics"] = 3.5

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "no answer within 3 s")
        await pilot.press("question_mark")  # the screen answers meanwhile
        await until(app, pilot, "quit")
        state.delays.clear()
        await press(pilot, "escape")
        await until(app, pilot, "12 running")

    with serving(state) as address:
        watch(tmp_path / "out.jsonl", asking(state, address), script)


@pytest.mark.slow
def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "later"

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "which does not exist yet")
        folder.mkdir()
        await until(app, pilot, "waiting for traces in")
        shutil.copy(TRACES["vllm"], folder / "a.json")
        await until(app, pilot, "2 steps, 2 layers")
        (folder / "b.json").write_text('{"traceEvents": 5}')
        await until(app, pilot, "b.json is not shown")
        shutil.copy(TRACES["sglang"], folder / "c.json")
        await until(app, pilot, "2 windows, 1 unreadable")

    watch(tmp_path / "out.jsonl", ["--folder", str(folder)], script)
