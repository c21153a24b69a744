"""An engine replaced in the live screen: by itself, by one with other options, and when it hangs."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from capture.native.tail import FileTail
from tests.tracetui.ui.hand import attend, decode, play, press, screen, until
from tracetui.process import BundledEngine, command_lines, explain_refusal
from tracetui.process import engine_process as engine_module
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower

Pilots = Pilot[Any]
Script = Callable[[Explorer, Pilots], Awaitable[None]]

# what stands behind `python -m engines` here: the same door, and steps of a known length
DOOR = """
import argparse, json, os, sys, threading
add = (parser := argparse.ArgumentParser(prog="python -m engines")).add_argument
add("engines")
add("--model", default="toy")
add("--path", default="fused", choices=("fused", "granular"))
add("--prompt")
add("--out")
for flag in ("--check", "--interactive", "--die-with-parent"):
    add(flag, action="store_true")
args = parser.parse_args()
if args.check:
    sys.exit()
out = open(args.out, "a", buffering=1)
def say(**line): print(json.dumps(line), file=out)
say(kind="run", schema=1, name=args.model, id=str(os.getpid()), meta={"model": args.model, "path": args.path})
if args.prompt == "slow":
    say(kind="mark", name="building weights 61 %", path="status")
    sys.stdin.readline()
    sys.exit()
say(kind="mark", name="capturing", path="status")
for step in range(1, 9):
    dur = {"fused": 100, "granular": 300}[args.path]
    say(kind="kernel", name="attention", t=step * 1000, dur=dur, step=step, phase="decode", lens="wall")
    say(kind="step", name="step", t=step * 1000, dur=dur, step=step, phase="decode", tokens=1)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
while not over.wait(0.1):
    say(kind="mark", name="waiting", path="heartbeat")
"""


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "door.py"
    script.write_text(DOOR)
    monkeypatch.setattr(command_lines, "OWN_PYTHON", (sys.executable, str(script)))


def watch(path: Path, script: Script, size: tuple[int, int] = (80, 24)) -> BundledEngine:
    engine = BundledEngine(["--model", "toy"], path, interactive=True)
    feed = FileFollower(path, engine, "kernels")
    app = Explorer(feed, ScreenOptions(view="kernels", follow=True, engine=engine))

    async def opened(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "attention")
        await script(app, pilot)

    attend(app, opened, size)
    return engine


async def erase(pilot: Pilots, letters: int) -> None:
    await pilot.press(*["backspace"] * letters)


@pytest.mark.usefixtures("door")
def test_other_options_give_another_run_beside_the_old_one(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "E")
        await until(app, pilot, "engine: --model toy")
        await until(app, pilot, "--path {fused,granular}")
        assert "--die-with-parent" not in "\n".join(screen(app))
        await press(pilot, *" --path granular", "enter")
        await until(app, pilot, "run 2 of 2")
        await until(app, pilot, "2.400 µs")  # eight steps of 300 ns
        assert [run.meta["path"] for run in app.workspace.session.runs] == ["fused", "granular"]
        await press(pilot, "d")
        await until(app, pilot, "+200 ns")  # a step of 300 ns against one of 100

    engine = watch(tmp_path / "prof.jsonl", script)
    assert engine.arguments == ("--model", "toy", "--path", "granular")


@pytest.mark.usefixtures("door")
def test_the_old_run_stays_in_sight_until_the_new_one_has_something_to_show(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "E")
        await until(app, pilot, "engine: --model toy")
        await press(pilot, *" --prompt slow", "enter")
        for _ in range(200):
            if "building weights 61 %" in screen(app)[0]:
                break
            await pilot.pause(0.05)
        assert "building weights 61 %" in screen(app)[0]
        assert "attention" in "\n".join(screen(app)) and len(app.workspace.session.runs) == 1

    watch(tmp_path / "prof.jsonl", script)


@pytest.mark.usefixtures("door")
@pytest.mark.slow
def test_options_that_are_refused_leave_the_engine_alone(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        attended = app.workspace.live
        assert attended is not None and attended.engine is not None
        pid = attended.engine.pid
        await press(pilot, "E")
        await until(app, pilot, "engine: --model toy")
        await press(pilot, *" --path fast", "enter")
        await until(app, pilot, "invalid choice: 'fast'")
        await until(app, pilot, "engine: --model toy --path fast")  # the line is open again
        await erase(pilot, 4)
        await press(pilot, *"'", "enter")
        await until(app, pilot, "no closing quotation")
        await press(pilot, "escape")
        await until(app, pilot, "attention")
        assert attended.engine.pid == pid and attended.engine.is_running

    watch(tmp_path / "prof.jsonl", script, (120, 24))


@pytest.mark.usefixtures("door")
def test_what_belongs_to_the_screen_is_not_for_the_line_to_say() -> None:
    assert "--out" in explain_refusal(["--out", "elsewhere"]) and "-h" in explain_refusal(["-h"])
    assert explain_refusal(["--prompt", "--path is a word here"]) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("door")
def test_an_engine_that_hangs_is_named_and_can_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, polls, path = 0.0, 0, tmp_path / "prof.jsonl"
    follow = FileTail(path, lambda: late)
    poll = follow.poll

    def counted() -> bool:
        nonlocal polls
        news = poll()
        polls += 1
        return news

    monkeypatch.setattr(follow, "poll", counted)
    monkeypatch.setattr("capture.native.tail.FileTail", lambda *args, **options: follow)
    monkeypatch.setattr(engine_module, "STOP_TIMEOUT_S", 0.2)

    async def halted(pid: int, pilot: Pilots) -> None:
        """The engine is stopped, and two polls later what it wrote before has been taken in."""
        os.kill(pid, signal.SIGSTOP)
        for _ in range(1000):
            await pilot.pause(0.1)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                break
        before = polls
        while polls < before + 2:
            await pilot.pause(0.01)

    async def script(app: Explorer, pilot: Pilots) -> None:
        nonlocal late
        attended = app.workspace.live
        assert attended is not None and attended.engine is not None
        await until(app, pilot, "live")
        pid = attended.engine.pid
        while b'"heartbeat"' not in path.read_bytes():  # only whoever has a pulse is missed so soon
            await pilot.pause(0.01)
        await halted(pid, pilot)
        late = 12.0
        await until(app, pilot, "the engine has been silent for 12 s: R restarts it")
        await until(app, pilot, "engine silent")
        await until(app, pilot, "attention")
        os.kill(pid, signal.SIGCONT)
        await until(app, pilot, "the engine responds again")
        await halted(pid, pilot)
        late = 24.0
        await until(app, pilot, "the engine has been silent for 12 s")
        await press(pilot, "R")
        await until(app, pilot, "run 2 of 2")
        await until(app, pilot, "live")
        assert attended.engine.pid != pid

    watch(path, script, (120, 24))


def test_f_opens_no_view_of_a_growing_run_on_a_saved_one() -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        before = app.workspace.session.view
        await press(pilot, "f")
        assert app.workspace.session.view == before
        assert any("this one is saved" in line for line in screen(app))

    play(script, [decode()], size=(80, 24))
