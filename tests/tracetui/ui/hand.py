"""Runs made by hand, and a screen to show them on without a terminal."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import polars as pl
from textual.pilot import Pilot

from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.ui.app import Explorer
from tracetui.ui.controllers.filter_prompt import TYPING_PAUSE_S
from tracetui.ui.messages import RunsChanged
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.views import Answer, load_views

NAMES = ("gemm_down", "flash_attn", "rms_norm", "gemm_qkv", "sampler")
PATIENCE = 6000  # looks at the screen, for a machine that does much else
Script = Callable[[Explorer, "Pilot[Any]"], Awaitable[None]]


def decode(name: str = "hand", steps: int = 4, names: Sequence[str] = NAMES, **meta: Any) -> Run:
    """Every kernel once a step, each a thousand ns longer than the one before it."""
    rows = [
        {"kind": "kernel", "name": n, "t": s * 1_000_000 + i * 1000, "dur": 1000 * (i + 1), "step": s,
         "phase": "decode", "layer": i % 2, "lens": "gpu"}
        for s in range(1, steps + 1)
        for i, n in enumerate(names)
    ]  # fmt: skip
    ticks = [
        {"kind": "step", "name": "step", "t": s * 1_000_000, "dur": 500_000, "step": s, "phase": "decode",
         "tokens": 1}
        for s in range(1, steps + 1)
    ]  # fmt: skip
    frame = pl.concat([pl.DataFrame(rows), pl.DataFrame(ticks)], how="diagonal")
    return build_run(
        name, {"model": "hand-1b", "device": "abacus", **meta}, frame, Log(source=f"{name}.jsonl")
    )


def shuffled(count: int) -> pl.DataFrame:
    """A frame of many rows with a text, an integer, a share and a list."""
    draw = random.Random(7)
    return pl.DataFrame(
        {
            "name": [f"kernel_{i:07d}" for i in range(count)],
            "total_ns": [draw.randrange(1, 10**9) for _ in range(count)],
            "share": [draw.random() for _ in range(count)],
            "trend": [[1.0, 2.0, 3.0]] * count,
        }
    )


def play(
    script: Script,
    runs: Sequence[Run],
    options: ScreenOptions | None = None,
    size: tuple[int, int] = (100, 30),
) -> Explorer:
    """The screen without a terminal, opened on runs, through a script of keys."""
    app = Explorer(None, options or ScreenOptions(view="kernels"))

    async def session() -> None:
        async with app.run_test(size=size) as pilot:
            app.post_message(RunsChanged(runs, [describe_run(r) for r in runs], load_views()))
            await settle(pilot)
            await script(app, pilot)

    asyncio.run(session())
    return app


def attend(app: Explorer, script: Script, size: tuple[int, int] = (100, 24)) -> None:
    """The screen beside an engine, through a script of keys; both end with it."""

    async def session() -> None:
        async with app.run_test(size=size) as pilot:
            await script(app, pilot)

    attended = app.workspace.live
    assert attended is not None and attended.engine is not None
    try:
        asyncio.run(session())
    finally:
        attended.stop()
        attended.engine.stop()


async def until(app: Explorer, pilot: "Pilot[Any]", text: str) -> None:
    """Waits for a text on the screen."""
    for _ in range(PATIENCE):
        if text in "\n".join(screen(app)):
            return
        await pilot.pause(0.01)
    raise AssertionError(f"{text!r} never came:\n" + "\n".join(screen(app)))


async def settle(pilot: "Pilot[Any]") -> None:
    """Until the background has answered the last question and it is painted."""
    app = pilot.app
    assert isinstance(app, Explorer)
    for _ in range(PATIENCE):
        await pilot.pause(0.005)
        if app.is_settled:
            break
    await pilot.pause()


async def press(pilot: "Pilot[Any]", *keys: str) -> None:
    await pilot.press(*keys)
    await settle(pilot)


async def typed(pilot: "Pilot[Any]", *keys: str) -> None:
    """Keys of the input line; what they lead to comes once the fingers rest."""
    await pilot.press(*keys)
    await pilot.pause(2 * TYPING_PAUSE_S)
    await settle(pilot)


def answer(app: Explorer) -> Answer:
    """The answer in sight, in its order."""
    assert app.workspace.picture is not None
    return app.workspace.picture.answer


def table_lines(app: Explorer) -> list[str]:
    """What stands on the screen from the heading of the table on."""
    return screen(app)[app.main_screen.table.region.y :]


def screen(app: Explorer) -> list[str]:
    """What stands on the screen, line by line."""
    return [strip.text for strip in app.screen._compositor.render_strips()]
