"""The timeline on the screen: its keys, its cursor, and what it tells of a slice."""

from typing import Any

from textual.pilot import Pilot

from tests.tracetui.runs import made
from tests.tracetui.ui.hand import NAMES, answer, decode, play, press, screen, settle
from tracetui.analysis.slices import find_slice
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions

Pilots = Pilot[Any]


def test_a_timeline_zooms_and_moves_in_time() -> None:
    """From the typical step: seven take as long, the last half: the third is the lower middle one."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        assert app.workspace.session.look.zoom is None
        opened, _ = app.workspace.session.time_spans or ((0, 0), (0, 0))
        assert opened == (3_000_000 - 180, 3_009_000 + 180)  # of its kernels: the host takes far longer
        await press(pilot, "l")
        later = app.workspace.session.look.zoom
        assert later is not None and later[0] - opened[0] == (opened[1] - opened[0]) // 4
        await press(pilot, "plus")
        near = app.workspace.session.look.zoom
        assert near is not None and later[0] < near[0] < near[1] < later[1]
        await press(pilot, "j")
        assert app.workspace.session.look.zoom == near
        first, last = app.workspace.session.info.extent or (0, 0)
        await press(pilot, "G")
        assert app.workspace.session.look.zoom == (last - (near[1] - near[0]), last)
        await press(pilot, "g")
        assert app.workspace.session.look.zoom == (first, first + near[1] - near[0])
        await press(pilot, "0")
        assert app.workspace.session.look.zoom == (first, last)
        await press(pilot, "0")
        assert app.workspace.session.look.zoom is None

    play(script, [decode(steps=8)], ScreenOptions(view="timeline"), size=(100, 24))


def test_a_timeline_goes_from_kernel_to_kernel_and_stays_around_the_cursor() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        def told() -> str:
            """The name of the slice under the cursor, which the screen shows."""
            name = str((find_slice(answer(app).parts, app.workspace.session.look.slice) or {})["name"])
            assert any(line.strip() == name for line in screen(app)[-6:])
            return name

        def start() -> int:
            return (app.workspace.session.look.slice or (0, 0, 0))[1]

        await press(pilot, "n")
        first = start()
        await press(pilot, "n")
        assert first < start() and told() in NAMES
        await press(pilot, "plus", "plus", "plus", "plus")
        low, high = app.workspace.session.look.zoom or (0, 0)
        _, begin, end = app.workspace.session.look.slice or (0, 0, 0)
        assert low <= (begin + end) / 2 < high
        await press(pilot, "N")
        assert start() == first
        await press(pilot, "slash", *"sampler", "enter", "n")
        assert told() == "sampler"
        (low, high), _ = app.workspace.session.time_spans or ((0, 0), (0, 0))
        assert low <= start() < high
        await press(pilot, "enter")
        assert app.workspace.session.view == "detail"
        assert app.workspace.session.look.focus_values == {"name": "sampler"}
        await press(pilot, "escape")
        assert told() == "sampler"

    play(script, [decode(steps=8)], ScreenOptions(view="timeline"), size=(100, 24))


def test_a_key_leads_from_a_kernel_to_its_launch_and_back() -> None:
    rows = [
        {"kind": "span", "name": "cudaLaunchKernel", "t": 0, "dur": 10, "lens": "host", "track": "thread 1"},
        {"kind": "kernel", "name": "gemm", "t": 100, "dur": 900, "lens": "gpu", "track": "gpu0",
         "launch": 0, "launch_dur": 10, "launcher": "thread 1"},
    ]  # fmt: skip

    async def script(app: Explorer, pilot: Pilots) -> None:
        assert any("launched 100 ns before (t)" in line for line in screen(app))
        await press(pilot, "t")
        assert app.workspace.session.look.slice == (1, 0, 10)
        assert any(line.strip() == "cudaLaunchKernel" for line in screen(app)[-6:])
        await press(pilot, "t")
        assert app.workspace.session.look.slice == (0, 100, 1000)

    play(script, [made(rows)], ScreenOptions(view="timeline"), size=(100, 24))


def test_a_click_goes_to_the_slice_or_gap_under_the_mouse() -> None:
    """A thousand ns a cell behind 10 cells of names: kernels in 0–40 and 60–90, a short one at 50, a gap."""
    rows = [
        {"kind": "kernel", "name": name, "t": t * 1000, "dur": dur, "lens": "gpu", "track": "gpu0", "step": 1}
        for name, t, dur in (("long", 0, 40_000), ("short", 50, 10), ("late", 60, 30_000))
    ]

    async def script(app: Explorer, pilot: Pilots) -> None:
        def found(name: str) -> tuple[int, int]:
            """The column and the line on the screen where a name stands."""
            lines = screen(app)
            at = next(i for i, line in enumerate(lines) if line.startswith(" gpu0"))
            return lines[at].index(name), at

        async def click(column: int, line: int) -> str:
            await pilot.click(offset=(column, line))
            await settle(pilot)
            return str((find_slice(answer(app).parts, app.workspace.session.look.slice) or {})["name"])

        (late, line), (long, _) = found("late"), found("long")
        assert await click(late, line) == "late"
        assert app.workspace.session.look.slice == (0, 60_000, 90_000)
        assert await click(long + 2, line + 1) == "long"  # in the second of its lines, too
        begin, end = long - 1, late - 1  # of the two kernels, 60 µs apart
        middle = begin + (end - begin) * 50 // 60
        assert await click(middle, line) == "short"
        assert (await click(begin + (end - begin) * 45 // 60, line)).startswith("gap")
        before = app.workspace.session.look.slice
        await pilot.click(offset=(2, line))  # the name of the lane
        await pilot.click(offset=(late, 0))  # the head
        await settle(pilot)
        assert app.workspace.session.look.slice == before

    play(script, [made(rows)], ScreenOptions(view="timeline"), size=(101, 24))


def test_enter_on_a_gap_of_fix_shows_the_timeline_around_the_longest() -> None:
    """Two kernels of 10 ns in each step; step 3 has the longest gap between them, from 3,010 to 3,900."""
    run = made(
        [
            {"kind": "kernel", "name": "gemm", "t": 1000 * step + at, "dur": 10, "step": step, "lens": "wall"}
            for step in range(6)
            for at in (0, 900 if step == 3 else 500)
        ]
    )

    async def script(app: Explorer, pilot: Pilots) -> None:
        while app.main_screen.table.row["op"] != "gap":
            await press(pilot, "down")
        await press(pilot, "enter")
        session = app.workspace.session
        assert (session.view, session.look.zoom) == ("timeline", (3010 - 890, 3900 + 890))
        assert "gap 890 ns" in "".join(screen(app))
        await press(pilot, "escape")
        assert app.workspace.session.view == "fix"

    play(script, [run], ScreenOptions(view="fix"))
