"""Two runs on the screen: the diff, a row entered, only what changed."""

from typing import Any

from textual.pilot import Pilot

from tests.tracetui.runs import decode, recording
from tests.tracetui.ui.hand import answer, play, press, screen, table_lines
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions

Pilots = Pilot[Any]
RUNS = [recording("before", noise=1), recording("after", noise=2, slow={"norm": 1.5})]
OPTIONS = ScreenOptions(view="diff", run="2", baseline="1")


def test_the_slow_rows_stand_first_with_their_verdict() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        lines = screen(app)
        top = [line.split() for line in table_lines(app)[1:3]]
        assert {words[0] for words in top} == {"L0.norm", "L1.norm"}
        assert all("slower" in words for words in top)
        assert "a is before, b is after" in "\n".join(lines)

    play(script, RUNS, OPTIONS, size=(120, 30))


def test_only_what_changed_and_all_again() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert answer(app).rows.height == 8
        await press(pilot, "a")
        assert sorted(answer(app).rows["name"]) == ["L0.norm", "L1.norm"]
        assert "changed only" in "\n".join(screen(app))
        await press(pilot, "a")
        assert answer(app).rows.height == 8

    play(script, RUNS, OPTIONS, size=(120, 30))


def test_a_row_entered_shows_both_runs_and_escape_comes_back() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter")
        assert app.workspace.session.view == "pair"
        counts = dict(answer(app).rows.select("side", "count").iter_rows())
        totals = dict(answer(app).rows.select("side", "total_ns").iter_rows())
        assert counts == {"a": 48, "b": 48}
        assert 1.4 < totals["b"] / totals["a"] < 1.6
        bins = answer(app).parts["bins"]
        assert bins["a"].sum() == bins["b"].sum() == 48
        await press(pilot, "escape")
        assert app.workspace.session.view == "diff"

    play(script, RUNS, OPTIONS, size=(120, 40))


def test_the_other_views_of_a_pair_follow_by_tab() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        seen = []
        for _ in range(5):
            await press(pilot, "tab")
            seen.append(app.workspace.session.view)
        assert seen == ["waterfall", "curves", "shifts", "cycles", "findings"]

    play(script, RUNS, OPTIONS, size=(120, 30))


def test_rows_of_one_name_are_told_apart_by_their_phase_on_a_small_screen() -> None:
    """A prefill of one step of four layers, and decode steps, of which attention is a part in both."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        rows = [line for line in screen(app) if line.startswith(" attention")]
        assert sorted("prefill" in row for row in rows) == [False, True]
        assert sorted("decode" in row for row in rows) == [False, True]
        places = answer(app).rows.select("name", "phase").rows()
        await press(pilot, "g", *["down"] * places.index(("attention", "prefill")), "enter")
        assert app.workspace.session.view == "pair"
        assert dict(answer(app).rows.select("side", "count").iter_rows()) == {"a": 4, "b": 4}

    play(script, [decode(steps=30), decode(steps=30, odd=2)], OPTIONS, size=(80, 24))
