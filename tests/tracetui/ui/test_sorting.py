"""Several sort keys: rows that are equal in the first column are put in order by the next."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.pilot import Pilot

from capture.errors import UsageError
from capture.load_runs import load
from capture.run import Run
from tests.tracetui.runs import made
from tests.tracetui.ui.hand import decode, play, press, screen, settle
from tracetui import samples
from tracetui.look import Look
from tracetui.report_formats import resolve_sort
from tracetui.ui import session_commands
from tracetui.ui.app import Explorer
from tracetui.ui.messages import HeadingClicked
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.session import Session
from tracetui.ui.sheet import measure_sheet
from tracetui.views import Answer, sort_answer

Pilots = Pilot[Any]

ROWS = pl.DataFrame(
    {"name": ["a", "b", "c", "d", "e"], "count": [2, 1, 2, None, 1], "total_ns": [5, 7, 9, 3, 8]}
)


def names(look: Look) -> str:
    return "".join(sort_answer(Answer(ROWS), look).rows["name"])


def test_equal_rows_are_ordered_by_the_next_column() -> None:
    assert names(Look(sort="count")) == "acbed"  # as they came, where they are equal
    assert names(Look(sort="count", then=(("total_ns", True),))) == "caebd"
    assert names(Look(sort="count", then=(("total_ns", False),))) == "acbed"
    assert names(Look(sort="count", descending=False, then=(("total_ns", True),))) == "ebcad"
    assert names(Look(sort="count", then=(("gone", True), ("name", True)))) == "caebd"
    assert names(Look(then=(("name", True),))) == "abcde"  # nothing is sorted within no order


def test_a_report_takes_several_columns() -> None:
    look = resolve_sort(Look(sort="count, total"), ROWS, reverse=False)
    assert look.sort_orders == (("count", True), ("total_ns", True))
    assert resolve_sort(Look(sort="name,count"), ROWS, reverse=True).sort_orders == (
        ("name", True), ("count", False),
    )  # fmt: skip
    odd = pl.DataFrame({"a,b": [1], "c": [2]})
    assert resolve_sort(Look(sort="a,b"), odd, reverse=False).sort_orders == (("a,b", True),)
    with pytest.raises(UsageError, match="no column is called 'totel'"):
        resolve_sort(Look(sort="count,totel"), ROWS, reverse=False)


def session() -> Session:
    run = decode()
    whole = Session(view="kernels").with_snapshots([run], [describe_run(run)])
    return Session(**{**vars(whole), "columns": ("name", "count", "total_ns")})


def test_z_goes_through_the_columns_that_are_free_and_s_begins_anew() -> None:
    one = session_commands.sort_by_column(session(), "count")
    two = session_commands.sort_within(one)
    assert two.look.sort_orders == (("count", True), ("name", True))
    assert session_commands.sort_within(two).look.sort_orders == (("count", True), ("total_ns", True))
    assert (
        session_commands.sort_within(session_commands.sort_within(two)).look.sort_orders
        == two.look.sort_orders
    )
    assert session_commands.reverse_order(two).look.sort_orders == (("count", True), ("name", False))
    three = session_commands.sort_further(two, "total_ns")
    assert three.look.sort_orders == (("count", True), ("name", True), ("total_ns", True))
    assert session_commands.sort_further(three, "name").look.sort_orders[1] == ("name", False)
    assert session_commands.sort_by_next(three).look.sort_orders == (("total_ns", True),)
    assert session_commands.sort_or_reverse(three, "count").look.sort_orders == (("count", True),)
    assert session_commands.sort_within(session()).look.sort_orders == (("name", True),)
    assert session_commands.cycle_group(three).look.sort_orders == ()


def equal_counts() -> Run:
    """Two kernels that ran twice and two that ran once."""
    launches = {"twice_short": (3, 3), "once_short": (5,), "twice_long": (20, 20), "once_long": (60,)}
    rows = [{"kind": "kernel", "name": n, "dur": d} for n, durations in launches.items() for d in durations]
    return made(rows)


def test_rows_are_sorted_by_two_columns_by_keys_and_by_the_mouse() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        def rows() -> list[str]:
            return app.main_screen.table.sheet.rows["name"].to_list()

        def heading() -> list[str]:
            return next(line for line in screen(app) if "total" in line).split()

        for clicked, further in (("count", False), ("total_ns", True)):
            app.main_screen.table.post_message(HeadingClicked(clicked, further))
            await settle(pilot)
        assert rows() == ["twice_long", "twice_short", "once_long", "once_short"]
        assert {"count▼", "total▽"} <= set(heading())
        await press(pilot, "S")
        assert rows() == ["twice_short", "twice_long", "once_short", "once_long"]
        assert {"count▼", "total△"} <= set(heading())
        await press(pilot, "z")
        assert app.workspace.session.look.sort_orders[0] == ("count", True)
        assert app.workspace.session.look.sort_orders[1][0] not in ("count", "total_ns")
        await press(pilot, "s")
        assert len(app.workspace.session.look.sort_orders) == 1

    play(script, [equal_counts()], size=(120, 30))


def test_s_goes_through_the_columns_in_sight_from_the_one_that_is_marked() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        def headings() -> list[str]:
            return next(line for line in screen(app) if "total" in line).split()

        table = app.main_screen.table
        visible = [c.name for c in table.columns if c.name in table.sheet.sortable]
        assert [h for h in headings() if h.endswith("▼")] == ["total▼"]  # the order in which rows came
        start = visible.index("total_ns")
        for step in range(1, len(visible) + 1):
            await press(pilot, "s")
            expected = visible[(start + step) % len(visible)]
            assert app.workspace.session.look.sort == expected
            assert sum(h.endswith(("▼", "▲")) for h in headings()) == 1
            assert expected in [c.name for c in table.columns]

    play(script, [equal_counts()], size=(80, 24))


def test_a_hidden_column_comes_into_sight_when_rows_are_sorted_by_it() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        table = app.main_screen.table
        hidden = [c for c in table.sheet.sortable if c not in {column.name for column in table.columns}]
        assert hidden
        for column in hidden[-2:]:
            app.controllers.navigation.sort_by(column)
            await settle(pilot)
            assert column in {shown.name for shown in table.columns}

    play(script, [decode()], size=(60, 24))


def test_s_reverses_the_order_in_which_rows_came() -> None:
    start = Session(**{**vars(session()), "default_order": (("total_ns", True),)})
    assert session_commands.reverse_order(start).look.sort_orders == (("total_ns", False),)
    assert session_commands.sort_by_next(start).look.sort == "name"


def test_z_capital_returns_to_the_order_of_the_view_and_its_mark() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        def marks() -> list[str]:
            heading = next(line for line in screen(app) if "total" in line)
            return [word for word in heading.split() if word[-1] in "▼▲▽△"]

        before = app.main_screen.table.sheet.rows["name"].to_list()
        assert marks() == ["total▼"]
        await press(pilot, "s", "s", "z", "S")
        assert app.workspace.session.look.sort_orders
        assert app.main_screen.table.sheet.rows["name"].to_list() != before
        await press(pilot, "Z")
        assert app.workspace.session.look.sort_orders == ()
        assert app.main_screen.table.sheet.rows["name"].to_list() == before
        assert marks() == ["total▼"]

    play(script, [equal_counts()], size=(120, 30))


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({"name": ["a", "b", "c"], "x_ns": [9, None, 2]}, (("x_ns", True),)),  # unknown ones stand between
        ({"name": ["a", "b", "c"], "x_ns": [-9, 5, 2]}, (("x_ns", True),)),  # by size
        ({"name": ["a", "b", "c"], "x_ns": [1, 5, 2]}, (("name", False),)),
        ({"name": ["b", "a", "c"], "x_ns": [1, 5, 2]}, ()),
        ({"step": [1, 2, 3], "x_ns": [9, 5, 2]}, (("step", False),)),
        ({"name": ["b", "a"], "x_ns": [3, 3]}, ()),
    ],
)
def test_the_order_of_a_view_is_found_in_its_rows(values: dict[str, Any], order: Any) -> None:
    rows = pl.DataFrame(values)
    assert measure_sheet(rows, rows.columns[:1], rows.columns).default_order == order


def test_a_diff_marks_that_decided_rows_come_first() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        sheet = app.main_screen.table.sheet
        assert sheet.default_order == (("verdict", True), ("run_delta_ns", True))
        decided = sheet.rows["verdict"].is_in(["slower", "faster"])
        for part in (sheet.rows.filter(decided), sheet.rows.filter(~decided)):
            assert part["run_delta_ns"].abs().is_sorted(descending=True)
        assert any("verdict▼" in line for line in screen(app))
        units = sheet.rows["per"].unique().to_list()
        assert len(units) > 1
        assert "per" in {column.name for column in app.main_screen.table.columns}

    pair = [load(Path(samples.__file__).parent / f"{name}.jsonl.gz")[0] for name in ("decode", "slowed")]
    play(script, pair, ScreenOptions(view="diff"), size=(80, 24))
