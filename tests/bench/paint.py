"""A million rows on the screen, without a terminal: fill to painted, a page, a jump, a line.

python -m tests.bench.paint [ROWS]
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable

from textual.app import App, ComposeResult

from tests.tracetui.ui.hand import shuffled
from tracetui.look import Look
from tracetui.ui.sheet import measure_sheet
from tracetui.ui.terminal.paint import Painter
from tracetui.ui.terminal.theme import build_palette
from tracetui.ui.widgets import TablePane


class Host(App[None]):
    """A table and nothing else."""

    def compose(self) -> ComposeResult:
        yield TablePane(Painter(build_palette("tracetui-dark")))


async def main(rows: int) -> None:
    frame = shuffled(rows)
    app = Host()
    async with app.run_test(size=(150, 40)) as pilot:
        table = app.query_one(TablePane)
        began = time.perf_counter()
        sheet = measure_sheet(frame, ("name",), ())
        print(f"{'measure (background)':24}{1e3 * (time.perf_counter() - began):8.1f} ms")
        began = time.perf_counter()
        sheet.rows.sort("total_ns", descending=True)
        print(f"{'sort (background)':24}{1e3 * (time.perf_counter() - began):8.1f} ms")
        acts: dict[str, Callable[[], None]] = {
            "show": lambda: table.show(sheet, Look(), 0),
            "page": lambda: table.move_by_pages(1),
            "jump": lambda: table.move_to((table.cursor + rows // 3) % rows),
            "line": lambda: table.move(1),
        }
        for name, act in acts.items():
            took = []
            for _ in range(9):
                began = time.perf_counter()
                act()
                for y in range(table.size.height):
                    table.render_line(y)
                took.append(time.perf_counter() - began)
                await pilot.pause()
            print(f"{name + ' to painted':24}{1e3 * statistics.median(took):8.1f} ms")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
