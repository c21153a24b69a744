"""Write a picture of the screen, opened without a terminal, as SVG or PNG."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.files.atomic import write_atomically
from capture.run import Run
from tracetui.look import Look
from tracetui.svg_to_png import render_png
from tracetui.ui.app import Explorer, ScreenOptions, export_svg
from tracetui.ui.messages import RunsChanged
from tracetui.ui.run_info import describe_run
from tracetui.views import View, load_views

TIMEOUT_S: Final = 60.0
TICK_S: Final = 0.02


def write_picture(
    view: View,
    runs: Sequence[Run],
    chosen: int,
    look: Look,
    size: tuple[int, int],
    out: Path,
    *,
    force: bool = False,
) -> None:
    """Write the screen with a view, at a size in cells. Raise UsageError if the file exists."""
    with write_atomically(out, overwrite=force) as file:
        svg = asyncio.run(_draw_screen(view, runs, chosen, look, size))
        file.write(render_png(svg) if out.suffix == ".png" else svg.encode())


async def _draw_screen(
    view: View, runs: Sequence[Run], chosen: int, look: Look, size: tuple[int, int]
) -> str:
    app = Explorer(None, ScreenOptions(view=view.name, run=str(chosen + 1), look=look))
    async with app.run_test(size=size) as pilot:
        app.post_message(RunsChanged(runs, [describe_run(r) for r in runs], load_views()))
        for _ in range(round(TIMEOUT_S / TICK_S)):
            await pilot.pause(TICK_S)
            if app.workspace.is_showing_view and app.is_settled:
                break
        await pilot.pause()
        return export_svg(app)
