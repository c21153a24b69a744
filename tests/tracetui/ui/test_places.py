"""Where am I, and back: the header, the history of places, the notes, and the answer above its table."""

from typing import Any

from textual.pilot import Pilot

from tests.tracetui.runs import decode as long_decode
from tests.tracetui.ui.hand import decode, play, press, screen, settle
from tracetui.ui.app import Explorer
from tracetui.ui.pages import ViewPage
from tracetui.ui.screen_options import ScreenOptions

Pilots = Pilot[Any]


def header(app: Explorer) -> str:
    return screen(app)[0]


def test_the_header_names_file_view_and_row() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert header(app).startswith(" hand › Kernels")
        name = app.main_screen.table.row["name"]
        await press(pilot, "enter")
        assert header(app).startswith(f" hand › Kernels › {name}")
        await press(pilot, "escape", "5", "enter")
        assert header(app).startswith(" hand › Steps › step 1")

    for size in ((80, 24), (120, 40)):
        play(script, [decode()], size=size)


def test_places_come_back_with_filter_and_cursor_and_go_forward_again() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "slash", "g", "e", "m", "m", "enter")
        await settle(pilot)
        await press(pilot, "down")
        before, row = app.workspace.session.look, app.main_screen.table.row
        await press(pilot, "4")
        await press(pilot, "7")
        await press(pilot, "ctrl+o")
        assert app.workspace.session.view == "layers"
        await press(pilot, "ctrl+o")
        look = app.workspace.session.look
        assert (app.workspace.session.view, look.filter, look.cursor) == ("kernels", "gemm", before.cursor)
        assert app.main_screen.table.row == row
        await press(pilot, "ctrl+n", "ctrl+n")
        assert app.workspace.session.view == "timeline"
        await press(pilot, "ctrl+n")
        assert "no place after this one" in "".join(screen(app))

    play(script, [decode()])


def test_an_entered_row_is_a_place() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter")
        await press(pilot, "escape")
        await press(pilot, "ctrl+o")
        assert app.workspace.session.view == "detail" and app.workspace.session.trail
        await press(pilot, "ctrl+o")
        assert app.workspace.session.view == "kernels" and not app.workspace.session.trail
        await press(pilot, "ctrl+o")
        assert "no place before this one" in "".join(screen(app))

    play(script, [decode()])


def test_i_shows_all_notes_in_full_and_closes_them() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "5", "i")
        text = " ".join(line.strip() for line in screen(app) if line.strip())
        assert app.workspace.picture is not None
        assert all(note in text for note in app.workspace.picture.answer.notes)
        await press(pilot, "i")
        assert isinstance(app.workspace.page, ViewPage)

    play(script, [decode()], size=(80, 24))


def test_the_answer_in_words_is_above_its_table() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "G", "enter")
        assert screen(app)[2].startswith(" step 40 took")
        await press(pilot, "escape")
        assert not any("took" in line for line in screen(app)[:4])

    play(script, [long_decode(steps=40)], ScreenOptions(view="steps"), size=(120, 30))


def test_a_table_has_two_notes_of_a_line_each_and_the_key_to_all() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert app.workspace.picture is not None
        notes = app.workspace.picture.answer.notes
        lines = [line for line in screen(app) if line.startswith(" · ")]
        assert len(notes) > 2 and len(lines) == 2
        assert f"i: all {len(notes)} notes" in "".join(screen(app))

    play(script, [long_decode(steps=30, spike=17)], ScreenOptions(view="steps"), size=(90, 60))


def test_enter_on_the_number_of_a_layer_shows_the_whole_layer() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "down", "left")
        await settle(pilot)
        assert any(line.startswith(" layer 1: ") and "Enter shows it" in line for line in screen(app))
        await press(pilot, "left", "left", "enter")
        await settle(pilot)
        assert app.workspace.session.look.focus == (("layer", 1),)
        assert app.main_screen.table.sheet.rows["name"].to_list() == ["attention", "ffn_down", "rmsnorm"]
        assert header(app).startswith(" made › Layers › layer 1")
        await press(pilot, "escape", "right", "enter")
        assert len(app.workspace.session.look.focus) == 2

    play(script, [long_decode(layers=3)], ScreenOptions(view="layers"))


def test_rows_of_a_grid_out_of_sight_are_counted_right() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        layers = [int(line[:6]) for line in screen(app) if line[:6].strip().isdigit() and line[6:7] == " "]
        text = f"layer: {len(layers)} of 40 ({layers[0]} to {layers[-1]})"
        assert any(line.strip() == text for line in screen(app))
        await press(pilot, "G")
        await settle(pilot)
        assert any("(" in line and "to 39)" in line for line in screen(app))

    play(script, [long_decode(layers=40)], ScreenOptions(view="layers"), size=(80, 24))


def test_a_message_about_a_row_goes_with_its_view() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter", "enter", "enter")
        assert "this row has no details" in screen(app)[-2]
        await press(pilot, "5")
        assert "no details" not in "".join(screen(app))

    play(script, [decode()])
