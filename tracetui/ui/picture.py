"""A picture of the screen: opened without a terminal and written as SVG or PNG."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.atomic import whole_file
from capture.run import Run
from tracetui.look import Look
from tracetui.raster import png
from tracetui.ui.app import Explorer, Options
from tracetui.ui.messages import RunsChanged
from tracetui.ui.run_info import describe_run
from tracetui.ui.screenshot import svg_of
from tracetui.views import View, views

PATIENCE: Final = 60.0  # seconds
TICK: Final = 0.02


def picture(
    view: View,
    runs: Sequence[Run],
    chosen: int,
    look: Look,
    size: tuple[int, int],
    out: Path,
    *,
    force: bool = False,
) -> None:
    """Write what the screen shows of a view, at a size in cells, as SVG or PNG. Raises UsageError where the
    file exists."""
    with whole_file(out, overwrite=force) as file:
        svg = asyncio.run(_drawn(view, runs, chosen, look, size))
        file.write(png(svg) if out.suffix == ".png" else svg.encode())


async def _drawn(view: View, runs: Sequence[Run], chosen: int, look: Look, size: tuple[int, int]) -> str:
    app = Explorer(None, Options(view=view.name, run=str(chosen + 1), look=look))
    async with app.run_test(size=size) as pilot:
        app.post_message(RunsChanged(runs, [describe_run(r) for r in runs], views()))
        for _ in range(round(PATIENCE / TICK)):
            await pilot.pause(TICK)
            if app.workspace.shows_view and app.settled:
                break
        await pilot.pause()
        return svg_of(app)
