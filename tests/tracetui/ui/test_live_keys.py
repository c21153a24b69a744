"""What keys and the mouse do beside an engine, and that each says what it did."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tracetui.runs import made
from tests.tracetui.ui.hand import NAMES, PATIENCE, answer, attend, decode, play, press, screen, settle, until
from tests.tracetui.ui.test_compare import OPTIONS, RUNS
from tests.tracetui.ui.test_live import ENGINE
from tests.tracetui.ui.test_switching import door as door
from tests.tracetui.ui.test_switching import watch
from tracetui.look import Look
from tracetui.process import EngineProcess, explain_refusal
from tracetui.ui.app import Explorer
from tracetui.ui.pages.bands import draw_tabs, find_tab_at
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.views import ask, load_view

Pilots = Pilot[Any]


def saved(path: Path) -> Path:
    """A recording of another run, with one step."""
    row = {
        "kind": "kernel",
        "name": "attention",
        "t": 1000,
        "dur": 900,
        "step": 1,
        "phase": "decode",
        "lens": "wall",
    }
    lines = [{"kind": "run", "schema": 1, "name": "earlier", "id": "e", "meta": {"model": "toy"}}, row]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.usefixtures("door")
@pytest.mark.slow
def test_a_file_opened_beside_two_runs_is_held_against_the_live_one(tmp_path: Path) -> None:
    file = saved(tmp_path / "earlier.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "E")
        await until(app, pilot, "--path {fused,granular}")
        await press(pilot, *" --path granular", "enter")
        await until(app, pilot, "run 2 of 2")
        await until(app, pilot, "2.400 µs")
        await press(pilot, "d")
        await until(app, pilot, "+200 ns")
        await press(pilot, "r")
        rows = [line for line in screen(app) if " toy " in f" {line} " and "toy" in line[:12]]
        assert [(" live" in row, "shown" in row) for row in rows[-2:]] == [(False, False), (True, True)]
        await press(pilot, "slash")
        app.input_line.paste(str(file))
        await press(pilot, "enter")
        for _ in range(PATIENCE):
            if len(app.workspace.session.runs) == 3:
                break
            await pilot.pause(0.01)
        await settle(pilot)
        compared = app.workspace.session.list_sources_for(app.workspace.view)
        assert [run.meta.get("path", run.name) for run in compared] == ["granular", "earlier"]
        assert " live " in screen(app)[0]
        await press(pilot, "1")
        assert app.workspace.session.run is compared[1] and " live " not in screen(app)[0]
        await press(pilot, "R")
        await until(app, pilot, "run 4 of 4")
        await until(app, pilot, " live ")

    watch(tmp_path / "prof.jsonl", script, (120, 24))


@pytest.mark.usefixtures("door")
def test_why_options_are_refused_is_told_whole_on_a_small_screen(tmp_path: Path) -> None:
    why = explain_refusal(["--model", "toy", "--path", "fast"])
    assert len(why) > 40

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "E")
        await until(app, pilot, "--path {fused,granular}")
        assert (
            screen(app)[-1].rstrip().endswith("engine: --model toy")
        )  # all of the line is for the arguments
        await press(pilot, *" --path fast", "enter")
        await until(app, pilot, "engine: --model toy --path fast")
        await until(app, pilot, "--path {fused,granular}")
        assert why in " ".join(" ".join(screen(app)[:-2]).split())
        await press(pilot, "escape")

    watch(tmp_path / "prof.jsonl", script, (60, 24))


@pytest.mark.usefixtures("door")
def test_the_head_goes_on_while_options_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "· 8 steps")
        await press(pilot, "E")
        await until(app, pilot, "--path {fused,granular}")
        with path.open("a") as file:
            row = {"kind": "kernel", "name": "attention", "t": 9000, "dur": 100, "step": 9, "phase": "decode"}
            print(json.dumps(row), file=file)
        await until(app, pilot, "· 9 steps")
        assert "--path {fused,granular}" in "\n".join(screen(app))
        await press(pilot, "escape")

    watch(path, script, (140, 24))


@pytest.mark.usefixtures("door")
def test_where_every_op_is_seen_no_other_capture_is_asked_for(tmp_path: Path) -> None:
    """What stands behind this engine ends at the first order that it is sent."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "c")
        await until(app, pilot, "on a CPU every op is recorded in every step")
        await pilot.pause(0.3)
        assert app.workspace.live is not None and app.workspace.live.is_listening

    watch(tmp_path / "prof.jsonl", script)


def test_what_trains_is_asked_for_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    engine = EngineProcess([sys.executable, "-c", ENGINE.replace('"decode"', '"backward"'), str(path)])
    app = Explorer(
        FileFollower(path, engine, "kernels"), ScreenOptions(view="kernels", follow=True, engine=engine)
    )

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "building")
        await press(pilot, "c")
        await until(app, pilot, "\n windows ")
        await press(pilot, "colon")
        await until(app, pilot, "a training run accepts no prompt")
        assert app.workspace.draft is None

    attend(app, script)


def test_an_engine_that_starts_is_left_by_q_alone(tmp_path: Path) -> None:
    engine = EngineProcess([sys.executable, "-c", "input()"])
    app = Explorer(FileFollower(tmp_path / "prof.jsonl", engine), ScreenOptions(follow=True, engine=engine))

    async def script(app: Explorer, pilot: Pilots) -> None:
        await until(app, pilot, "starting the engine")
        await pilot.press("escape")
        await pilot.pause(0.3)
        assert app.is_running and app.return_code is None and "q quits" in "\n".join(screen(app))

    attend(app, script)


def test_a_tab_is_opened_by_a_click() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        line = screen(app)[1]
        await pilot.click("#tabs", offset=(line.index("Steps") + 2, 0))
        await settle(pilot)
        assert app.workspace.session.view == "steps"
        await pilot.click("#tabs", offset=(0, 0))
        await settle(pilot)
        assert app.workspace.session.view == "steps"

    play(script, [decode()], size=(160, 30))


@pytest.mark.parametrize("width", [24, 40, 200])
@pytest.mark.parametrize("current", [0, 4, 11])
def test_a_column_of_the_line_is_in_the_tab_whose_title_stands_there(width: int, current: int) -> None:
    names = [
        "Alpha",
        "Beta",
        "Gamma",
        "Delta",
        "Epsilon",
        "Zeta",
        "Eta",
        "Theta",
        "Iota",
        "Kappa",
        "Lambda",
        "Mu",
    ]
    titles = [(name, True) for name in names]
    text = "".join(span.text for span in draw_tabs(titles, current, width))
    shown = [name for name in names if f" {name} " in text]
    assert names[current] in shown
    for name in names:
        place = text.find(f" {name} ")
        actual = (
            {find_tab_at(titles, current, width, place + 1 + i) for i in range(len(name))}
            if place >= 0
            else set()
        )
        assert actual == ({names.index(name) + 1} if place >= 0 else set())
    assert (
        find_tab_at(titles, current, width, 0) is None
        and find_tab_at(titles, current, width, width + 5) is None
    )


def test_text_is_sorted_from_a_and_numbers_from_the_largest() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        while app.workspace.session.look.sort != "name":
            await press(pilot, "s")
        assert answer(app).rows["name"].to_list() == sorted(NAMES)
        await press(pilot, "S")
        assert answer(app).rows["name"].to_list() == sorted(NAMES, reverse=True)
        while app.workspace.session.look.sort != "total_ns":
            await press(pilot, "s")
        assert answer(app).rows["name"].to_list() == list(reversed(NAMES))

    play(script, [decode()])


def test_a_baseline_is_told_when_it_is_chosen_and_when_no_longer() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "b")
        await until(app, pilot, "one is the baseline: d compares with it")
        await press(pilot, "b")
        await until(app, pilot, "no baseline now")

    play(script, [decode("one"), decode("two")])


def test_changed_only_is_said_where_rows_can_have_changed() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "a")
        assert "changed only" in screen(app)[-2]
        await press(pilot, "1")
        assert "changed only" not in screen(app)[-2]
        await press(pilot, "d")
        assert "changed only" in screen(app)[-2]

    play(script, RUNS, OPTIONS, size=(120, 30))


def test_lines_of_the_log_are_told_by_the_time_since_the_run_began() -> None:
    booted = 7 * 3600 * 10**9  # the machine has run for seven hours
    mark = {"kind": "mark", "name": "warm", "path": "note", "t": booted + 2_500_000_000}
    for clock, at in (([booted, 10**18], 2_500_000_000), (None, booted + 2_500_000_000)):
        run = made([mark], **({"clock": clock} if clock else {}))
        assert ask(load_view("log"), [run], Look()).rows["at_ns"].to_list() == [at]
