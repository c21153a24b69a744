"""Names on the screen: as they are, cut where they must be, whole when asked."""

from typing import Any

from textual.pilot import Pilot

from tests.tracetui.ui.hand import decode, play, press, screen
from tracetui.ui.app import Explorer

Pilots = Pilot[Any]


def test_names_are_shown_as_they_are_never_as_markup() -> None:
    names = ("mm[splitk]", "k[/]", "[link=x]y", "a[i]", "f[bool=true](int)")

    async def script(app: Explorer, pilot: Pilots) -> None:
        text = "\n".join(screen(app))
        assert all(name in text for name in names)

    play(script, [decode("[b]run[/]", names=names)])


def test_a_long_name_in_focus_leaves_room_for_what_else_is_told() -> None:
    long = "execute_" + "x" * 80 + "_end"

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter")
        assert app.workspace.session.view == "detail"
        assert screen(app)[0].startswith(" hand › Kernels › execute_x")

    play(script, [decode(names=(long,))], size=(80, 24))


def test_full_names_show_what_was_cut() -> None:
    long = "prefix_" + "x" * 120 + "_suffix"

    async def script(app: Explorer, pilot: Pilots) -> None:
        assert not any(long in line for line in screen(app))
        await press(pilot, "e")
        assert any(long in line for line in screen(app))

    play(script, [decode(names=(long, "short"))], size=(160, 20))


def test_a_name_that_no_row_can_hold_is_shown_whole_below() -> None:
    """All of 400 characters, wrapped, for the row under the cursor."""
    long = "".join(f"[{i:03d}]" for i in range(80))

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "S")
        await press(pilot, "e")
        lines = [line.strip() for line in screen(app)]
        first = next(i for i, line in enumerate(lines) if line.startswith("[000]") and len(line) == 78)
        assert "".join(lines[first : first + 6]) == long
        await press(pilot, "e")
        assert long[78:90] not in "".join(screen(app))

    play(script, [decode(names=(long,))], size=(80, 24))
