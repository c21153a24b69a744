"""A run compared while it grows: all of its steps, against all of the other, in an answer that stands."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import capture.native.tail
from capture.load_runs import load
from tests.tracetui.ui.hand import PATIENCE, answer, press, screen, settle, until
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower

STEPS = 300
Script = Callable[[Explorer, "Pilot[Any]"], Awaitable[None]]


def attention(step: int) -> int:
    """How long it takes: longer with each step, as the context grows."""
    return 1000 + 10 * step


def grow(path: Path, first: int, count: int, times: int = 1) -> None:
    """Append decode steps, in which attention takes so many times as long."""
    with path.open("a") as file:
        if first == 0:
            print('{"kind":"run","schema":1,"name":"toy","id":"1","meta":{"model":"toy"}}', file=file)
        for step in range(first, first + count):
            each = {"t": 100_000 * step, "step": step, "phase": "decode"}
            for row in (
                {"kind": "kernel", "name": "attention", "dur": times * attention(step), "lens": "wall"},
                {"kind": "kernel", "name": "rmsnorm", "dur": 400 + step % 3, "lens": "wall"},
                {"kind": "step", "name": "step", "dur": 90_000, "tokens": 1, "context": 8 + step},
            ):
                print(json.dumps({**row, **each}), file=file)


def compared(folder: Path, script: Script) -> None:
    """The screen on a run that grows, beside a recording in which attention takes twice as long."""
    recorded, path = folder / "before.jsonl", folder / "now.jsonl"
    grow(recorded, 0, STEPS + 100, times=2)
    grow(path, 0, STEPS)
    (before,) = load(recorded, cache=False)
    options = ScreenOptions(view="kernels", follow=True, comparison_runs=(before,))
    app = Explorer(FileFollower(path, None, "kernels", [before]), options)

    async def session() -> None:
        async with app.run_test(size=(140, 30)) as pilot:
            await until(app, pilot, f"· {STEPS} steps")
            await settle(pilot)
            await script(app, pilot)

    asyncio.run(session())
    assert app.workspace.live is not None
    app.workspace.live.stop()


async def seen(app: Explorer, pilot: "Pilot[Any]", steps: int) -> None:
    """Until so many steps have been read, whether they are shown or wait."""
    updates = app.controllers.updates
    for _ in range(PATIENCE):
        infos = updates._newest.infos if updates._newest else app.workspace.session.infos
        if infos[-1].step_count >= steps:
            return
        await pilot.pause(0.01)
    raise AssertionError("the steps never came")


def row_of(app: Explorer, name: str) -> dict[str, Any]:
    rows = answer(app).parts["rows"]
    return next(row for row in rows.iter_rows(named=True) if row["name"] == name)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few events are looked at one by one that most steps are folded."""
    monkeypatch.setattr(capture.native.tail, "RECENT_EVENTS", 60)


def test_every_step_of_the_live_run_is_compared_by_its_context(tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        run = app.workspace.session.runs[-1]
        assert run.meta["folded"]["before"] > 250
        await press(pilot, "d")
        await until(app, pilot, f"up to step {STEPS - 1} of toy, which continues")
        assert "should not be compared" not in "\n".join(screen(app))
        row = row_of(app, "attention")
        assert row["count_b"] == STEPS and row["total_b_ns"] == sum(map(attention, range(STEPS)))
        assert row["verdict"] == "faster"
        # of steps of equal context, one takes half of what the other does
        assert row["median_b_ns"] == pytest.approx(row["median_a_ns"] / 2, rel=0.02)
        assert any("equal context" in note for note in answer(app).notes)

    compared(tmp_path, script)


@pytest.mark.slow
def test_the_comparison_stands_until_there_is_much_more_and_is_made_anew_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "now.jsonl"

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await press(pilot, "d")
        before = answer(app)
        grow(path, STEPS, 20)
        await seen(app, pilot, STEPS + 20)
        await press(pilot, "S", "S")
        await until(app, pilot, f"up to step {STEPS - 1}")
        assert answer(app).parts["rows"].equals(before.parts["rows"])
        grow(path, STEPS + 20, 30)
        await until(app, pilot, f"up to step {STEPS + 49}")
        assert row_of(app, "attention")["total_b_ns"] == sum(map(attention, range(STEPS + 50)))
        grow(path, STEPS + 50, 3)
        with path.open("a") as file:
            print('{"kind":"end"}', file=file)
        await until(app, pilot, " ended ")
        await seen(app, pilot, STEPS + 53)
        await settle(pilot)
        assert row_of(app, "attention")["count_b"] == STEPS + 53
        assert "which continues" not in "\n".join(screen(app))

    compared(tmp_path, script)


def test_away_from_the_comparison_the_run_is_shown_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "now.jsonl"

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await press(pilot, "d")
        grow(path, STEPS, 5)
        await seen(app, pilot, STEPS + 5)
        await press(pilot, "f")
        await until(app, pilot, f"{STEPS + 5} steps")

    compared(tmp_path, script)
