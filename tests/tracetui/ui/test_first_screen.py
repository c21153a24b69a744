"""The summary as the first screen: what it sends a reader to is where its keys lead."""

from typing import Any

import pytest
from textual.pilot import Pilot

from capture.load_runs import load
from capture.run import Run
from tests.tracetui.runs import aggregates, decode, made
from tests.tracetui.ui.hand import answer, play, press, screen, until
from tracetui.samples import find_sample
from tracetui.ui.app import Explorer
from tracetui.ui.key_remap import remap_keys
from tracetui.ui.key_table import KEYS
from tracetui.ui.pages.help_page import list_view_keys
from tracetui.ui.screen_options import ScreenOptions
from tracetui.views import load_views


def test_each_key_of_the_first_screen_leads_to_what_it_names() -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        for key, view, word in (("3", "growth", "attn.core grows"), ("2", "kernels", "attention takes")):
            await until(app, pilot, word)
            (line,) = (line for line in screen(app) if word in line)
            assert key == line.strip().removeprefix("next").split()[0]
            await press(pilot, key)
            assert app.workspace.session.view == view
            await press(pilot, "1")

    play(script, [decode()], ScreenOptions(view="summary"))


def test_enter_on_a_line_of_next_lands_on_the_row_that_it_names() -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "most to recover")
        lines = [row["name"] for row in answer(app).rows.filter(part="next").iter_rows(named=True)]
        texts = answer(app).rows.filter(part="next")["text"].to_list()
        assert lines == ["fix", "layers", "growth"]
        for at, (view, text) in enumerate(zip(lines, texts, strict=True)):
            await press(pilot, *["down"] * (at > 0), "enter")
            assert app.workspace.session.view == view
            row, column = app.workspace.session.look.cursor
            if view == "layers":
                assert text.startswith("mlp.down of layer 3 is ")
                assert any("layer 3, op mlp.down: " in line for line in screen(app))
                assert row == 3 and column >= 0
            else:
                named = answer(app).rows.row(row, named=True)
                assert named["op"] in text and (view == "growth" or named["cause"] in text)
            await press(pilot, "ctrl+o")
            assert app.workspace.session.view == "summary" and app.workspace.session.look.cursor[0] == at

    sizes = {"bytes": 1e5, "flops": 1e5}
    rows = decode(layers=8, odd=3).events.drop("op", "category").to_dicts()
    rows = [{**row, **sizes} if row["kind"] == "kernel" else row for row in rows]
    run = made(rows, roof={"read_bytes_per_s": 1e12, "source": "measured"})
    for size in ((80, 24), (120, 40)):
        play(script, [run], ScreenOptions(view="summary"), size=size)


def test_views_and_the_key_table_name_the_same_keys() -> None:
    own = {v.name: v.shortcut for v in load_views() if v.shortcut}
    assert own == dict(list_view_keys(KEYS)) and own["fix"] == "F"


def test_a_key_that_a_person_chose_stands_wherever_keys_are_told() -> None:
    chosen = remap_keys({"fix": ["ctrl+x"]})

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "most to recover")
        assert any(line.split()[1:4] == ["Ctrl+X", "most", "to"] for line in screen(app))
        await press(pilot, "question_mark")
        assert any(line.split() == ["Ctrl+X", "Fix"] for line in screen(app))
        await press(pilot, "escape", "ctrl+x")
        assert app.workspace.session.view == "fix"

    run = load(find_sample("decode"), cache=False)[0]
    play(script, [run], ScreenOptions(view="summary", keys=chosen), size=(100, 140))


@pytest.mark.parametrize("size", [(80, 24), (80, 14), (40, 10)])
def test_what_cannot_be_told_is_reached_on_a_small_screen(size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        first = screen(app)[2]
        assert answer(app).rows.filter(part="unknown").height > 3
        await press(pilot, "G")
        (line,) = (line for line in screen(app) if line.startswith(" not recorded: "))
        assert "tracetui doctor FILE" in line or size[0] < 70
        names = line.partition(": ")[2].partition(";")[0].split(", ")
        assert names.pop().startswith("+")
        assert set(names) <= set(answer(app).rows.filter(part="unknown")["name"])
        await press(pilot, "g")
        assert screen(app)[2] == first

    plain = aggregates()
    run = Run(plain.name, {**plain.meta, "producer": "PyTorch profiler"}, plain.events, plain.log)
    play(script, [run], ScreenOptions(view="summary"), size=size)
