"""The screen on a file that grows: what it shows, and what keys say to the engine."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.events import Paste
from textual.pilot import Pilot

from tests.tracetui.ui.hand import attend, decode, press, screen, settle, until
from tracetui.process import BundledEngine, EngineProcess
from tracetui.ui import answer_updates
from tracetui.ui import app as explorer
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower

Pilots = Pilot[Any]
Script = Callable[[Explorer, Pilots], Awaitable[None]]

ENGINE = """
import json, sys
out = open(sys.argv[1], "a", buffering=1)
def say(**line): print(json.dumps(line), file=out)
say(kind="run", schema=1, name="toy", id=str(id(out)), meta={"model": "toy-1b"})
say(kind="mark", name="building weights 61 %", path="status")
step = 0
for order in map(json.loads, sys.stdin):
    if order["do"] == "quit":
        break
    if order["do"] == "prompt":
        say(kind="mark", name=order["text"] + "!", path="text")
    if order["do"] == "mode":
        step += 1
        say(kind="kernel", name=order["mode"], t=step * 1000, dur=100, step=step, phase="decode", lens="wall")
        say(kind="step", name="step", t=step * 1000, dur=150, step=step, phase="decode", tokens=1)
        say(kind="mark", name="capture mode " + order["mode"], path="note")
"""


def watch(path: Path, script: Script) -> EngineProcess:
    """The screen beside a toy engine, which takes a step at every change of mode."""
    engine = EngineProcess([sys.executable, "-c", ENGINE, str(path)])
    app = Explorer(
        FileFollower(path, engine, "kernels"), ScreenOptions(view="kernels", follow=True, engine=engine)
    )
    attend(app, script)
    return engine


def row(name: str) -> str:
    """A row of the table, not a word of the status line."""
    return f"\n {name} "


def test_the_first_frame_says_what_is_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for an engine that has said nothing yet does not look at an empty screen."""
    monkeypatch.setattr(explorer, "PROGRESS_INTERVAL_S", 3600.0)  # no second picture of the waiting
    engine = EngineProcess([sys.executable, "-c", "input()"])
    app = Explorer(FileFollower(tmp_path / "prof.jsonl", engine), ScreenOptions(follow=True, engine=engine))

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "starting the engine")

    attend(app, script)


def test_from_the_first_word_to_the_last_step(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building weights 61 %")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        await until(app, pilot, "live")
        await press(pilot, "c")
        await until(app, pilot, row("continuous"))
        await until(app, pilot, "capture mode continuous")
        await until(app, pilot, "· 2 steps")
        assert len(app.workspace.session.runs) == 1 and app.workspace.session.info.steps == (1, 2)

    watch(tmp_path / "prof.jsonl", script)


def test_that_an_answer_takes_long_is_said_until_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(answer_updates, "SLOW_ANSWER_S", 0.0)
    reply = answer_updates.answer_job
    monkeypatch.setattr(answer_updates, "answer_job", lambda job: (answered.wait(60), reply(job))[1])

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await pilot.press("c")
        await until(app, pilot, answer_updates.SLOW_MESSAGE)
        answered.set()
        await until(app, pilot, row("windows"))
        assert answer_updates.SLOW_MESSAGE not in "\n".join(screen(app))

    watch(tmp_path / "prof.jsonl", script)


@pytest.mark.slow
def test_a_prompt_goes_to_the_engine_and_its_text_comes_back(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        await press(pilot, "colon", *"why", "enter")
        await until(app, pilot, "… why!")

    watch(tmp_path / "prof.jsonl", script)


@pytest.mark.slow
def test_of_a_long_text_the_newest_words_are_in_sight(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        await press(pilot, "colon")
        app.post_message(Paste("abcdefghij" * 12))
        await settle(pilot)
        await press(pilot, "enter")
        await until(app, pilot, "abcdefghij!")
        assert "… " in screen(app)[-2]

    watch(tmp_path / "prof.jsonl", script)


def test_a_held_picture_stands_while_the_file_grows(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        await press(pilot, "space")
        await until(app, pilot, "live, held")
        await press(pilot, "c")
        await pilot.pause(1.0)
        assert "continuous" not in [str(n) for n in app.workspace.session.runs[0].events["name"]]
        await press(pilot, "space")
        await until(app, pilot, row("continuous"))

    watch(tmp_path / "prof.jsonl", script)


def test_a_killed_engine_is_named_and_can_be_started_anew(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert app.workspace.live is not None and app.workspace.live.engine is not None
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        os.kill(app.workspace.live.engine.pid, signal.SIGKILL)
        await until(app, pilot, "engine died")
        await until(app, pilot, "SIGKILL: R restarts it")
        assert "windows" in "\n".join(screen(app))
        await press(pilot, "R")
        await settle(pilot)
        await press(pilot, "c")
        await until(app, pilot, "run 2 of 2")

    watch(tmp_path / "prof.jsonl", script)


def test_an_engine_that_is_refused_from_the_start_is_a_fault_of_use(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    engine = BundledEngine(["--model", "nosuch"], out, interactive=True)
    app = Explorer(
        FileFollower(out, engine, "kernels"), ScreenOptions(view="kernels", follow=True, engine=engine)
    )

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "unknown model nosuch")
        assert "exit code" not in "\n".join(screen(app)) and app.workspace.exit_code == 2

    attend(app, script)


def beside_an_earlier_run(path: Path) -> Explorer:
    """The screen of an engine that writes a file, with a run from before."""
    engine = EngineProcess([sys.executable, "-c", ENGINE, str(path)])
    before = decode("earlier", names=("windows", "spans"))
    options = ScreenOptions(view="kernels", follow=True, engine=engine, comparison_runs=(before,))
    return Explorer(FileFollower(path, engine, "kernels", [before]), options)


async def start_beside(app: Explorer, pilot: Pilots) -> None:
    """Let the engine go on, and wait for its run beside the one from before."""
    await until(app, pilot, "building")
    await press(pilot, "c")
    await until(app, pilot, "run 2 of 2")


def test_a_live_run_is_held_against_an_earlier_one(tmp_path: Path) -> None:
    app = beside_an_earlier_run(tmp_path / "prof.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await start_beside(app, pilot)
        await until(app, pilot, row("windows"))
        await press(pilot, "d")
        await until(app, pilot, "earlier → toy")

    attend(app, script)


@pytest.mark.slow
def test_a_list_of_runs_says_of_the_engine_what_it_does_now(tmp_path: Path) -> None:
    app = beside_an_earlier_run(tmp_path / "prof.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await start_beside(app, pilot)
        await pilot.press("R")
        await until(app, pilot, "building weights 61 %")
        await pilot.press("r")
        await until(app, pilot, "Enter shows")
        assert not [line for line in screen(app)[1:-2] if "building" in line], "none of these is built"
        assert app.workspace.options.engine is not None
        app.workspace.options.engine.send({"do": "mode", "mode": "windows"})
        await until(app, pilot, "toy (prof.jsonl)")
        assert [line.split()[:2] for line in screen(app) if " live " in line]

    attend(app, script)


@pytest.mark.slow
def test_words_and_badge_of_the_engine_stand_with_its_own_run(tmp_path: Path) -> None:
    app = beside_an_earlier_run(tmp_path / "prof.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await start_beside(app, pilot)
        await press(pilot, "colon", *"why", "enter")
        await until(app, pilot, "sent: why")
        await until(app, pilot, "… why!")
        await press(pilot, "r", "g", "enter")
        await until(app, pilot, "run 1 of 2")
        assert "why!" not in screen(app)[-2] and " live " not in screen(app)[0]
        await press(pilot, "r", "down", "enter")
        await until(app, pilot, "run 2 of 2")
        await until(app, pilot, "… why!")
        assert " live " in screen(app)[0]

    attend(app, script)


def test_what_stands_in_place_of_the_view_stays_while_the_run_grows(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, row("windows"))
        for key, shown in (("question_mark", "find a command"), ("r", "Enter shows")):
            steps = len(app.workspace.session.info.steps)
            await press(pilot, key)
            await until(app, pilot, shown)
            assert app.workspace.live is not None and app.workspace.live.request_next_mode()
            for _ in range(200):
                if len(app.workspace.session.info.steps) > steps:
                    break
                await pilot.pause(0.05)
            assert shown in "\n".join(screen(app))
            await press(pilot, "escape")
            await until(app, pilot, f"{steps + 1} steps")
            await until(app, pilot, row("windows"))

    watch(tmp_path / "prof.jsonl", script)


def test_keys_for_an_engine_that_is_not_ours_say_so(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    path.write_text('{"kind":"kernel","name":"attention","dur":5,"lens":"gpu"}\n')
    app = Explorer(FileFollower(path, None, "kernels"), ScreenOptions(view="kernels", follow=True))

    async def session() -> None:
        async with app.run_test(size=(100, 24)) as pilot:
            await until(app, pilot, "attention")
            for key in ("c", "colon", "R"):
                await press(pilot, key)
                await until(app, pilot, "not written by an engine of tracetui")

    asyncio.run(session())
    assert app.workspace.live is not None
    app.workspace.live.stop()
