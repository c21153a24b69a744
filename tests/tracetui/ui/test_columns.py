"""Columns of a table: chosen, moved, kept for the next screen; and how they come to be known by a word."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.pilot import Pilot

from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import made
from tests.tracetui.ui.hand import decode, play, press, screen
from tracetui import saved_choices
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.sheet import measure_sheet, resolve_columns

Pilots = Pilot[Any]


def shown(app: Explorer) -> list[str]:
    """The names of the columns beside the name, from the left to the right."""
    return [column.name for column in app.main_screen.table.columns[1:]]


async def to(app: Explorer, pilot: Pilots, column: str) -> None:
    """Moves the cursor of the list of columns to one of them."""
    for _ in range(40):
        if app.main_screen.table.row["column"] == column:
            return
        await press(pilot, "j")
    raise AssertionError(f"{column} is not in the list")


async def choose(app: Explorer, pilot: Pilots, *columns: str) -> None:
    for column in columns:
        await press(pilot, "g")
        await to(app, pilot, column)
        await press(pilot, "enter")


def test_columns_stand_in_the_order_in_which_they_were_chosen_and_moved() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        usual = shown(app)
        await press(pilot, "v")
        await choose(app, pilot, "share", "total", "count")
        await press(pilot, "escape")
        assert shown(app) == ["share", "total_ns", "count"]
        await press(pilot, "v")
        await to(app, pilot, "count")
        await press(pilot, "left")
        assert app.main_screen.table.row == {"column": "count", "place": "2"}
        await press(pilot, "h", "h")  # further than the first it does not go
        await press(pilot, "escape")
        assert shown(app) == ["count", "share", "total_ns"]
        heading = next(line for line in screen(app) if "total" in line).split()
        assert heading == ["name", "count", "share", "total▼"]
        await press(pilot, "v", "g", "enter", "escape")
        assert shown(app) == usual  # every choice is taken back

    play(script, [decode()])


def test_what_was_in_sight_can_be_moved_at_once() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        before = shown(app)
        await press(pilot, "v")
        await to(app, pilot, "share")
        await press(pilot, "right", "escape")
        place = before.index("share")
        assert shown(app)[place : place + 2] == [before[place + 1], "share"]
        assert sorted(shown(app)) == sorted(before)

    play(script, [decode()])


@pytest.mark.slow
def test_choices_hold_in_every_run_and_in_the_next_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "v")
        await choose(app, pilot, "max", "count")
        await press(pilot, "escape", "tab", "shift+tab", "r", "j", "enter")
        assert app.workspace.session.current == 1 and shown(app) == ["max_ns", "count"]

    play(script, [decode("a"), decode("b")], ScreenOptions(view="kernels", saves_choices=True))
    assert saved_choices.load_columns() == {"kernels": ("max_ns", "count")}
    actual = tracetui("config", env={"XDG_STATE_HOME": str(tmp_path)}).stdout
    assert '"kernels" = ["max_ns", "count"]  # chosen on the screen with v' in actual

    async def again(app: Explorer, pilot: Pilots) -> None:
        assert shown(app) == ["max_ns", "count"]

    play(again, [decode()], ScreenOptions(view="kernels", columns=saved_choices.load_columns()))


def test_nothing_is_kept_of_a_screen_that_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "v")
        await choose(app, pilot, "count")

    play(script, [decode()])
    assert saved_choices.load_columns() == {} and list(tmp_path.rglob("*.tsv")) == []


def test_a_damaged_file_of_columns_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = tmp_path / "tracetui" / "columns.tsv"
    place.parent.mkdir()
    place.write_bytes(b"# a comment\n\xff\xfe\n\nkernels\n" + "steps\tstep\ttook\u200b_ns\n".encode())
    assert saved_choices.load_columns() == {"steps": ("step", "took_ns")}


def test_columns_of_the_config_file_are_meant_as_they_are_written() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert shown(app) == ["p95_ns", "share", "total_ns"]

    words = ("p95", "nonsense", "share", "total_ns", "total")
    play(script, [decode()], ScreenOptions(view="kernels", columns={"kernels": words}), size=(120, 30))

    async def nothing_known(app: Explorer, pilot: Pilots) -> None:
        assert {"total_ns", "share"} <= set(shown(app)) != {"total_ns", "share"}

    play(nothing_known, [decode()], ScreenOptions(view="kernels", columns={"kernels": ("nonsense",)}))


def test_a_column_is_known_by_its_heading_and_rather_by_its_own_name() -> None:
    names = ("name", "share_pct", "share", "delta_ns", "gb_per_s", "roof_share")
    assert resolve_columns(("GB/s", "Δ", "delta", "roof", "share"), names) == (
        "gb_per_s", "delta_ns", "roof_share", "share",
    )  # fmt: skip


def test_sentences_that_a_table_cuts_are_in_full_below_it() -> None:
    """The row under the cursor of Fix has its whole advice in sight, at any width."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "F")
        advice = app.main_screen.table.row["advice"]
        below = " ".join(line.strip() for line in screen(app) if line.strip())
        assert advice in below
        assert "…" not in below.partition("advice:")[2].partition("evidence:")[0]

    for size in ((80, 24), (120, 40)):
        play(script, [decode()], size=size)


def test_a_sentence_gets_the_room_that_is_left() -> None:
    advice = "fusing it with its neighbours: a launch costs more than its work"
    rows = pl.DataFrame({"op": ["norm"], "share": [0.5], "advice": [advice], "evidence": [advice]})
    sheet = measure_sheet(rows, ("op",), rows.columns)
    narrow = {c.name: c.width for c in sheet.lay_out_columns(88)}
    assert "evidence" not in narrow and narrow["advice"] >= len(advice)
    assert {c.name for c in sheet.lay_out_columns(200)} == set(rows.columns)
    columns = sheet.lay_out_columns(50)
    assert sheet.format_rows(0, 1, columns)[0][-1].rstrip().startswith("fusing it with its")
    assert sheet.list_hidden_prose(0, columns) == [("advice", advice), ("evidence", advice)]


def test_fix_shows_the_short_advice_beside_long_names_of_kernels() -> None:
    name = "GEMM fp32 TN 64x256x8 (xmma) [kernel]"
    run = made([{"name": name, "dur": 940_500, "lens": "gpu", "t": 0}])

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        assert name in app.main_screen.table.sheet.rows["op"].to_list()
        assert {"share", "action"} <= {column.name for column in app.main_screen.table.columns}

    play(script, [run], ScreenOptions(view="fix"), size=(80, 24))
