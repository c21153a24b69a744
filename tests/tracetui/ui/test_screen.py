"""Key flows on the screen, without a terminal."""

import asyncio
import json
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import structs
from textual import events
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input

from tests.tracetui.runs import launch_bound, made, scopes
from tests.tracetui.ui.hand import decode, play, press, screen, settle, typed, until
from tracetui.guides import TOPICS, read_glossary, read_guide
from tracetui.look import Look
from tracetui.ui.answer_updates import SLOW_MESSAGE
from tracetui.ui.app import Explorer, build_palette_entry
from tracetui.ui.controllers.navigation import CANCELLED_EXIT
from tracetui.ui.messages import Answered, HeadingClicked, RunsChanged
from tracetui.ui.pages.help_page import HelpPage
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.sheet import EMPTY
from tracetui.ui.widgets import TablePane
from tracetui.views import load_views
from tracetui.views.ink import DrawSize

Pilots = Pilot[Any]


def first_words(app: Explorer) -> list[str]:
    """The first word of each row below the heading, up to the notes."""
    heading = next(i for i, line in enumerate(screen(app)) if "total" in line)
    rows = (line.split() for line in screen(app)[heading + 1 : -2])
    return [words[0] for words in takewhile(bool, rows)]


def test_the_largest_kernel_comes_first_and_the_head_says_what_is_open() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert first_words(app)[:2] == ["sampler", "gemm_qkv"]
        head = screen(app)[0]
        assert "hand-1b" in head and "abacus" in head and "4 steps" in head
        assert "1,143 tok/s" in head  # 4 tokens in 3 × 1 ms and 0.5 ms

    play(script, [decode()])


def test_sort_by_key_and_by_heading_both_ways() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "S")
        assert app.workspace.session.look.sort is not None
        app.main_screen.table.post_message(HeadingClicked("total_ns"))
        await settle(pilot)
        assert first_words(app)[0] == "sampler" and "total▼" in "".join(screen(app))
        await press(pilot, "S")
        assert first_words(app)[0] == "gemm_down" and "total▲" in "".join(screen(app))

    play(script, [decode()])


def test_of_a_newer_picture_only_lines_that_changed_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[int] = []
    paint = TablePane.render_line
    monkeypatch.setattr(TablePane, "render_line", lambda table, y: (painted.append(y), paint(table, y))[1])

    async def script(app: Explorer, pilot: Pilots) -> None:
        lines = screen(app)
        row = next(y for y, line in enumerate(lines) if line.startswith(" rms_norm"))
        top = next(y for y, line in enumerate(lines) if "total" in line)
        app.answers.show_session(
            app.workspace.session.with_look(columns=("total_ns", "count", "max_ns"))
        )  # no share of the whole
        await press(pilot, "j", "j", "k")
        lines = screen(app)
        painted.clear()
        newer = decode()
        longer = pl.when((pl.col("name") == "rms_norm") & (pl.col("step") == 4)).then(3040)
        newer = replace(newer, events=newer.events.with_columns(dur=longer.otherwise("dur")))
        app.post_message(RunsChanged([newer], [describe_run(newer)], load_views()))
        await settle(pilot)
        assert "12.04 µs" in screen(app)[row]
        assert [y for y in range(len(lines)) if screen(app)[y] != lines[y]] == [row]
        assert set(painted) == {row - top}

    play(script, [decode()])


def test_a_message_is_shown_until_its_view_is_left() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        for text in (SLOW_MESSAGE, "anything else"):
            app.renderer.show_message(text)
            assert text in screen(app)[-2]
            await press(pilot, "tab")
            assert app.is_settled and text not in screen(app)[-2]

    play(script, [decode()])


def test_filter_is_live_kept_by_enter_and_cleared_by_escape() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await typed(pilot, "slash", "g", "e", "m", "m")
        assert sorted(first_words(app)) == ["gemm_down", "gemm_qkv"]
        await press(pilot, "enter")
        assert app.workspace.session.look.filter == "gemm" and "/gemm/" in screen(app)[-2]
        await press(pilot, "escape")
        assert len(first_words(app)) == 5
        await press(pilot, "n")
        assert app.main_screen.table.row["name"] == "gemm_qkv"
        await press(pilot, "n")
        assert app.main_screen.table.row["name"] == "gemm_down"

    play(script, [decode()])


def test_a_pattern_that_is_no_expression_is_told_and_nothing_is_lost() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await typed(pilot, "slash", "left_parenthesis")
        assert "regular expression" in screen(app)[-2]
        assert len(first_words(app)) == 5

    play(script, [decode()])


def test_a_pattern_made_to_be_slow_is_not() -> None:
    """A backtracking engine would need longer than the universe has."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        await typed(pilot, "slash")
        app.post_message(events.Paste("(a+)+$"))
        await typed(pilot, "enter")
        assert app.workspace.session.look.filter == "(a+)+$" and app.is_settled and first_words(app) == []

    play(script, [decode(names=("a" * 60 + "!", "b"))])


def test_letters_in_the_input_line_are_letters() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await typed(pilot, "slash", "q", "o", "L")
        assert app.workspace.session.look.filter == "qoL" and app.workspace.session.look.group is None

    play(script, [decode()])


def test_group_phase_and_per_change_the_look_and_the_status_says_so() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "o")
        assert app.workspace.session.look.group == "layer" or app.workspace.session.look.group == "op"
        await press(pilot, "p", "u")
        assert app.workspace.session.look.phase == "decode" and app.workspace.session.look.per == "step"
        assert "decode only" in screen(app)[-2] and "per step" in screen(app)[-2]

    play(script, [decode()])


def test_the_runs_panel_opens_another_run() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "r")
        assert any("second" in line for line in screen(app))
        await press(pilot, "j", "enter")
        assert app.workspace.session.current == 1 and "second" in screen(app)[0]
        assert "run 2 of 2" in screen(app)[0]

    play(script, [decode("first"), decode("second")])


def test_help_is_the_key_table_and_escape_leaves_it() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "question_mark")
        text = "\n".join(screen(app))
        assert "Ctrl+P" in text and "regular expression" in text
        await press(pilot, "escape")
        assert first_words(app)[0] == "sampler"

    play(script, [decode()], size=(100, 50))


def test_the_help_opens_guides_and_explains_the_words() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "question_mark")
        lines = "\n".join(
            "".join(span.text for span in line) for line in HelpPage(()).draw_lines(DrawSize(100, 30))
        )
        assert all(topic in lines for topic in TOPICS)
        assert all(term in lines for term, _ in read_glossary())
        await press(pilot, "enter")
        assert "Enter opens a guide" in "\n".join(screen(app))
        await press(pilot, *["j"] * TOPICS.index("growth"), "enter")
        assert read_guide("growth").splitlines()[0] in screen(app)[2]
        await press(pilot, "j")
        assert read_guide("growth").splitlines()[0] not in screen(app)[2]
        await press(pilot, "escape")
        assert "Enter opens a guide" in "\n".join(screen(app))
        await press(pilot, "escape")
        assert "quit" in screen(app)[2]
        await press(pilot, "escape")
        assert first_words(app)[0] == "sampler"

    play(script, [decode()])


def test_the_palette_finds_a_command_by_the_word_of_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def script(app: Explorer, pilot: Pilots) -> None:
        actual = [command.title for command in app.get_system_commands(app.screen)]
        assert "x         export: write this view to a file" in actual and "q         quit" in actual
        await press(pilot, "ctrl+p")
        await pilot.press(*"export")
        await until(app, pilot, "export: write this view")
        await pilot.press("enter")
        await until(app, pilot, "export: kernels.csv")

    play(script, [decode()])


@pytest.mark.parametrize("name", ["[bold]x[red]", "[/x]", "[[]b", "[@click=app.quit]x[/]", "plain"])
def test_names_in_the_palette_are_text(name: str) -> None:
    entry = build_palette_entry("s", name, lambda: None)
    assert Content.from_markup(entry.title).plain == f"s         {name}"


def test_what_has_no_cursor_is_not_entered() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter")
        assert app.workspace.session.view == "roofline" and "this row has no details" in screen(app)[-2]

    play(script, [decode()], ScreenOptions(view="roofline"))


def test_a_key_of_the_palette_is_no_key_of_the_table_too() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "ctrl+p")
        await pilot.press(*"names in full")
        await until(app, pilot, "names in full")
        await pilot.press("enter")
        for _ in range(500):
            await pilot.pause(0.01)
            if app.workspace.session.look.full_names:
                break
        await settle(pilot)
        assert app.workspace.session.look.full_names and len(app.screen_stack) == 1
        assert app.workspace.session.view == "kernels"  # Enter went into no row

    play(script, [decode()])


def test_keys_typed_behind_the_palette_key_are_text_of_the_palette() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        for key in ("ctrl+p", "s", "o", "r"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        for _ in range(500):
            await pilot.pause(0.01)
            if any(line.value == "sor" for line in app.screen.query(Input)):
                break
        assert [line.value for line in app.screen.query(Input)] == ["sor"]
        assert app.workspace.session.look.sort is None

    play(script, [decode()])


def type_without_waiting(app: Explorer, *keys: str) -> None:
    """Post keys faster than the screen answers the first of them."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize("first", [(), ("down", "5")])
def test_a_command_typed_without_waiting_is_found_run_and_followed_by_keys(first: tuple[str, ...]) -> None:
    """Also behind keys that wait for an answer: no letter is a command, and Enter chooses what was typed."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        type_without_waiting(app, *first, "ctrl+p", *"launches", "enter", "m", "down", "d")
        await until(app, pilot, "› Launches › ")
        await settle(pilot)
        assert app.workspace.session.look.focus_values["number"] and app.is_running
        assert len(app.screen_stack) == 1 and not app.workspace.session.look.full_names

    play(script, [decode()])


def test_keys_behind_the_palette_that_escape_closed_are_the_screens() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        type_without_waiting(app, "ctrl+p", "q", "escape", "5")
        await until(app, pilot, "› Steps")
        assert app.is_running and len(app.screen_stack) == 1

    play(script, [decode()])


def test_arrows_of_the_palette_move_in_the_list_of_what_was_typed() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        type_without_waiting(app, "ctrl+p", *"sort by", "down", "down", "up", "enter")
        for _ in range(500):
            await pilot.pause(0.01)
            if app.workspace.session.look.sort:
                break
        assert app.workspace.session.look.sort is not None

    play(script, [decode()])


def test_enter_on_no_match_leaves_the_palette_open() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        type_without_waiting(app, "ctrl+p", *"zzzzqq", "enter", "backspace", "x")
        for _ in range(500):
            await pilot.pause(0.01)
            if any(line.value == "zzzzqx" for line in app.screen.query(Input)):
                break
        assert [line.value for line in app.screen.query(Input)] == ["zzzzqx"]

    play(script, [decode()])


@pytest.mark.parametrize("keys", [("q",), ("ctrl+p", "ctrl+q")])
def test_quit_while_loading_returns_the_same_code_with_and_without_the_palette(keys: tuple[str, ...]) -> None:
    async def session() -> int | None:
        app = Explorer(None, ScreenOptions())
        async with app.run_test() as pilot:
            await pilot.press(*keys)
        return app.return_code

    assert asyncio.run(session()) == CANCELLED_EXIT


def test_newer_runs_keep_the_cursor_on_its_row_and_the_order() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "j", "j")
        held = app.main_screen.table.row["name"]
        grown = decode(
            steps=9, names=("x1", "x2", "gemm_down", "flash_attn", "rms_norm", "gemm_qkv", "sampler")
        )
        app.post_message(RunsChanged([grown], [describe_run(grown)], load_views()))
        await pilot.pause(0.3)
        await settle(pilot)
        assert app.main_screen.table.row["name"] == held
        assert "9 steps" in screen(app)[0]

    play(script, [decode()])


def test_space_holds_the_picture_while_runs_go_on() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "space")
        grown = decode(steps=9)
        app.post_message(RunsChanged([grown], [describe_run(grown)], load_views()))
        await pilot.pause(0.4)
        assert "4 steps" in screen(app)[0]
        await press(pilot, "space")
        assert "9 steps" in screen(app)[0]

    play(script, [decode()], ScreenOptions(view="kernels", follow=True))


def test_a_late_answer_is_dropped() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        picture = app.workspace.picture
        assert picture is not None
        app.post_message(Answered(0, replace(picture, sheet=EMPTY)))
        await pilot.pause()
        assert first_words(app)[0] == "sampler"

    play(script, [decode()])


@pytest.mark.parametrize(("name", "marker"), [("out.json", '"schema"'), ("out.md", "|"), ("out.svg", "<svg")])
def test_export_writes_the_view_and_never_over_a_file(tmp_path: Path, name: str, marker: str) -> None:
    target = tmp_path / name

    async def export(app: Explorer, pilot: Pilots, message: str) -> None:
        await press(pilot, "x")
        await press(pilot, "ctrl+u")
        app.post_message(events.Paste(str(target)))
        await pilot.pause()
        await press(pilot, "enter")
        await until(app, pilot, message)

    async def script(app: Explorer, pilot: Pilots) -> None:
        await export(app, pilot, "wrote")
        assert marker in target.read_text() and "wrote" in screen(app)[-2]
        before = target.read_bytes()
        await export(app, pilot, "already exists")
        assert "already exists" in screen(app)[-2] and target.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [name]

    play(script, [decode()], size=(140, 30))


def test_an_exported_json_is_the_report(tmp_path: Path) -> None:
    from tracetui.report_formats import format_report
    from tracetui.ui.controllers.export_view import write_view
    from tracetui.views import load_view

    run = decode()
    assert "wrote" in write_view(str(tmp_path / "a.json"), None, load_view("kernels"), [run], Look())
    actual = json.loads((tmp_path / "a.json").read_text())
    assert actual == json.loads(format_report(load_view("kernels"), [run], Look(), "json"))
    assert "ends" not in write_view(str(tmp_path / "a.exe"), None, load_view("kernels"), [run], Look())
    assert not (tmp_path / "a.exe").exists()


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 5), (200, 60)])
def test_every_size_has_the_first_row_and_no_line_is_longer_than_the_screen(size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert any("sampler" in line for line in screen(app))
        assert all(len(line) == size[0] for line in screen(app))

    play(script, [decode()], size=size)


def test_too_small_a_terminal_is_told_and_recovers() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await pilot.resize_terminal(19, 6)
        await settle(pilot)
        assert screen(app)[0].startswith("terminal too small")
        await pilot.resize_terminal(60, 20)
        await settle(pilot)
        assert any("sampler" in line for line in screen(app))

    play(script, [decode()])


def test_a_tree_is_known_by_its_scopes_not_by_their_paths() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        assert screen(app)[2].split()[:4] == ["scope", "inclusive", "self", "share"]
        assert [line.split()[0] for line in screen(app)[3:6]] == ["forward", "layer", "gemv"]
        await press(pilot, "j", "enter")
        assert app.workspace.session.look.focus == (("scope", "forward / layer 0"),)

    play(script, [scopes()], ScreenOptions(view="tree"), size=(60, 20))


def test_one_row_of_many_launches_has_no_distribution() -> None:
    rows = [{"name": "gemm", "dur": 900, "count": 3, "max": 400}]

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "enter")
        text = "\n".join(screen(app))
        assert "count 3" in text and "distribution" not in text

    play(script, [made(rows)])


def test_ascii_means_ascii() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "S")
        assert all(line.isascii() for line in screen(app))

    play(script, [decode(names=("größe", "核心"))], ScreenOptions(view="kernels", ascii=True))


def test_a_view_that_fails_is_told_in_a_sentence_and_the_exit_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def script(app: Explorer, pilot: Pilots) -> None:
        def broken(*_: Any) -> Any:
            raise ZeroDivisionError("a view's own fault")

        app.workspace.views = [
            structs.replace(v, answer=broken) if v.name == "kernels" else v for v in app.workspace.views
        ]
        await press(pilot, "o")
        assert "ZeroDivisionError" in screen(app)[-2]
        app.keyboard.run_command("quit")

    assert play(script, [decode()]).return_code == 70
    (crash,) = (tmp_path / "tracetui").iterdir()
    assert "a view's own fault" in crash.read_text()


def test_the_first_screen_names_the_key_to_what_can_be_fixed() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        lever = next(line for line in screen(app) if "most to recover" in line)
        assert lever.split()[:2] == ["next", "F"]
        await press(pilot, "F")
        await until(app, pilot, "host late")
        assert app.workspace.session.view == "fix"

    play(script, [launch_bound()], ScreenOptions(view="summary"))
