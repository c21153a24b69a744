"""The input line, the names, the sheet and the session: pure, by value."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs

from capture.load_runs import load
from tests.tracetui.ui.hand import decode, shuffled
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.ui import session_commands
from tracetui.ui.app import Explorer
from tracetui.ui.controllers import export_view
from tracetui.ui.controllers.run_actions import complete_path, parse_path
from tracetui.ui.key_table import (
    ENGINE_FOOTERS,
    FOOTERS,
    KEYS,
    LEADING_ELSEWHERE,
    MORE_FOOTER,
    NEEDING_AN_ANSWER,
    OPENING_THE_LINE,
    TAB_KEYS,
    KeyContext,
    format_keys,
    map_keys_to_commands,
)
from tracetui.ui.pages import bands
from tracetui.ui.pages.help_page import HelpPage
from tracetui.ui.pages.input_draft import InputDraft, edit_draft
from tracetui.ui.question import Question
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.session import Session
from tracetui.ui.session_commands import COMMANDS
from tracetui.ui.sheet import measure_sheet, shorten_names
from tracetui.ui.terminal import tty
from tracetui.views import load_view, load_views
from tracetui.views.ink import DrawSize


def after(text: str, *keys: str) -> tuple[str, int]:
    draft = InputDraft.from_text("filter", "", text)
    for key in keys:
        draft = edit_draft(draft, key, key if len(key) == 1 else None)
    return draft.text, draft.cursor


@pytest.mark.parametrize(
    ("text", "keys", "outcome"),
    [
        ("abc", ("left", "x"), ("abxc", 3)),
        ("abc", ("home", "delete"), ("bc", 0)),
        ("abc", ("backspace", "backspace"), ("a", 1)),
        ("", ("backspace",), ("", 0)),
        ("one two", ("ctrl+w",), ("one ", 4)),
        ("one two", ("ctrl+u",), ("", 0)),
        ("ab", ("left", "left", "left", "ctrl+k"), ("", 0)),
    ],
)
def test_editing(text: str, keys: tuple[str, ...], outcome: tuple[str, int]) -> None:
    assert after(text, *keys) == outcome


def test_what_is_pasted_is_cleaned() -> None:
    assert InputDraft.from_text("filter", "", "").insert("a\x1b[31m\nb").text.isprintable()


def test_an_export_has_a_free_name_and_every_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [export_view.propose_name(load_view(n)) for n in ("kernels", "diff")] == ["kernels.csv", "diff.md"]
    for name in ("diff.md", "diff-2.md", "kernels.csv"):
        (tmp_path / name).touch()
    assert [export_view.propose_name(load_view(n)) for n in ("kernels", "diff")] == [
        "kernels-2.csv",
        "diff-3.md",
    ]


@pytest.mark.parametrize("has_library", [True, False])
def test_a_png_is_offered_only_where_its_library_is(
    has_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_view, "has_png_library", lambda: has_library)
    endings = [".md", ".csv", ".json", ".txt", ".html", ".svg", *([".png"] if has_library else [])]
    assert export_view.list_endings() == endings
    names = ["my.diff.md"]
    for _ in endings:
        names.append(export_view.switch_ending(names[-1]))
    assert [n.removeprefix("my.diff") for n in names] == [*endings, ".md"]
    assert export_view.switch_ending("my.diff.png") == "my.diff.md"
    assert export_view.switch_ending("my.diff") == "my.diff.md"


def test_a_path_is_completed_as_far_as_names_agree(tmp_path: Path) -> None:
    for name in ("prof_a.jsonl", "prof_b.jsonl", ".hidden", "evil\x1b[31m", "run"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    for typed, text, names in (
        ("p", "prof_", ["prof_a.jsonl", "prof_b.jsonl"]),
        ("prof_b", "prof_b.jsonl", ["prof_b.jsonl"]),
        ("fo", "folder/", ["folder/"]),
        ("", "", ["folder/", "prof_a.jsonl", "prof_b.jsonl", "run"]),
        (".", ".hidden", [".hidden"]),
        ("ev", "ev", []),
        ("absent/x", "absent/x", []),
    ):
        assert complete_path(f"{tmp_path}/{typed}") == (f"{tmp_path}/{text}", names)


def test_a_path_is_meant_as_a_shell_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert complete_path("~nobody-here/")[0] == "~nobody-here/"
    for typed, path in (("~/a b", "/home/me/a b"), (" 'x y' ", "x y"), ('"x"', "x"), ("'", "'")):
        assert parse_path(typed) == Path(path)


def test_long_names_that_differ_in_the_middle_are_told_apart() -> None:
    names = ["void gemm_" + "x" * 60 + kind + "y" * 60 + "_end" for kind in ("fp8", "bf16", "int4")]
    cut = shorten_names(tuple(names), 30)
    assert len(set(cut.values())) == 3 and all(len(c) <= 30 for c in cut.values())
    assert any("fp8" in c for c in cut.values())


def test_names_with_many_differences_stay_apart() -> None:
    names = [f"k{'a' * 40}{i:03d}{'b' * 40}{i % 2}" for i in range(50)]
    assert len(set(shorten_names(tuple(names), 16).values())) == 50


def test_a_narrow_sheet_keeps_the_important_columns_whole() -> None:
    sheet = measure_sheet(shuffled(500), ("name",), ("name", "total_ns", "share", "trend"))
    for width in (20, 40, 60, 120):
        columns = sheet.lay_out_columns(width)
        assert sum(c.width for c in columns) + 2 * (len(columns) - 1) <= width
        for row in sheet.format_rows(0, 50, columns):
            assert [len(cell) for cell in row] == [c.width for c in columns]
    assert [c.name for c in sheet.lay_out_columns(40)] == ["name", "total_ns", "share"]


def test_no_number_is_cut_anywhere() -> None:
    sheet = measure_sheet(shuffled(3000), ("name",), ())
    columns = sheet.lay_out_columns(200)
    for start in (0, 1000, 2900):
        assert not any("…" in cell for row in sheet.format_rows(start, 100, columns) for cell in row)


def test_whole_names_leave_the_most_important_numbers_on_the_screen() -> None:
    long = "void flash::flash_fwd_kernel<" + "x, " * 80 + "y>(int)"
    rows = pl.DataFrame(
        {"name": [long, "rms_norm"], "total_ns": [5, 4], "share": [0.5, 0.4], "count": [1, 1]}
    )
    names = {long: "flash::flash_fwd<y>"}
    sheet = measure_sheet(rows, ("name",), ("name", "total_ns", "share", "count"), names=names)
    short = sheet.lay_out_columns(120)
    assert [c.name for c in short] == ["name", "total_ns", "share", "count"] and short[0].width < 40
    assert sheet.format_rows(0, 1, short)[0][0].startswith("flash::flash_fwd")
    for width in (60, 80, 120):
        whole = sheet.lay_out_columns(width, full_names=True)
        assert [c.name for c in whole] == ["name", "total_ns", "share"]
        assert sheet.format_rows(0, 1, whole)[0][0].startswith("void flash::flash")
        assert sum(c.width + 2 for c in whole) - 2 == width


def test_the_cursor_finds_its_row_again() -> None:
    rows = shuffled(100)
    old, new = measure_sheet(rows, ("name",), ()), measure_sheet(rows.reverse(), ("name",), ())
    assert new.find_row(old.read_key(7), 7) == 92
    assert new.find_row(("gone",), 7) == 7
    assert measure_sheet(pl.DataFrame(), (), ()).find_row((), 3) == 0


def session(*names: str) -> Session:
    runs = [decode(n) for n in names]
    return Session(view="kernels").with_snapshots(runs, [describe_run(r) for r in runs])


def test_in_and_out_comes_back_to_the_same_look() -> None:
    start = session("a").with_look(sort="total_ns", filter="gemm", cursor=(3, 0))
    inside = start.drill_down("detail", (("name", "gemm_qkv"),))
    assert inside.look.focus_values == {"name": "gemm_qkv"} and inside.look.filter == ""
    deeper = inside.drill_down("kernels", (("layer", 1),))
    assert deeper.look.focus_values == {"name": "gemm_qkv", "layer": 1}
    assert deeper.go_back().look == inside.look
    assert (
        deeper.go_back().go_back().look == start.look
        and deeper.go_back().go_back().go_back().view == "kernels"
    )


def test_with_view_after_a_drill_down_shows_all_rows_again() -> None:
    start = session("a").with_look(filter="gemm")
    layers = start.with_view("layers")
    inside = layers.drill_down("kernels", (("layer", 1),)).with_look(per="token")
    for left in (inside.with_view("kernels"), inside.drill_down("detail", ()).with_view("kernels")):
        assert left.look.focus == () and left.trail == () and left.look.per == "token"
        assert left.with_view("layers").look == replace(layers.look, per="token")


def test_repeats_belong_to_the_first_pair_and_the_noise_to_every_pair() -> None:
    start, floor = session("a", "b", "c"), NoiseFloor(0.01, source="said")
    start = replace(start, current=1, baseline=0, sides=Sides(more_a=(start.runs[2],), floor=floor))
    diff, compare = load_view("diff"), load_view("compare")
    assert start.list_sources_for(diff) == replace(start.sides, runs=tuple(start.runs[:2]))
    for other in (start.with_run(2), session_commands.set_baseline(start, 2)):
        assert isinstance(sides := other.list_sources_for(diff), Sides)
        assert (sides.more_a, sides.floor) == ((), floor)
    assert start.list_sources_for(compare) == Sides(tuple(start.runs), floor=floor)
    again = session_commands.set_baseline(start, 0)  # the same pair, without its repeats: another question
    assert not Question.from_session(again, diff).is_same_but_for_growth(Question.from_session(start, diff))


def test_lens_phase_and_per_hold_in_every_view() -> None:
    changed = session_commands.cycle_per(session_commands.cycle_phase(session("a")))
    assert (
        changed.with_view("growth").look.per == "step" and changed.with_view("growth").look.phase == "decode"
    )
    assert changed.with_look(filter="x").with_view("growth").look.filter == ""


def test_the_warm_up_is_left_out_where_a_steady_state_was_found() -> None:
    unsettled = session("a", "b")
    assert session_commands.toggle_steady(unsettled).look == unsettled.look
    settled = replace(unsettled, infos=tuple(structs.replace(info, steady=True) for info in unsettled.infos))
    on = session_commands.toggle_steady(settled.with_look(window=(1, 2)))
    assert on.look.steady and on.look.window is None
    assert on.with_view("growth").look.steady
    for off in (
        session_commands.toggle_steady(on),
        session_commands.zoom_to_all(on),
        COMMANDS["next_part"](on),
        on.with_run(1),
    ):
        assert not off.look.steady


def test_steps_and_zoom_stay_inside_the_run() -> None:
    s = session("a")
    assert COMMANDS["next_part"](s).look.window == (1, 1)
    assert COMMANDS["previous_part"](s).look.window == (4, 4)
    assert COMMANDS["next_part"](COMMANDS["previous_part"](s)).look.window == (4, 4)
    timeline = COMMANDS["zoom_in"](s.with_view("timeline"))
    first, last = timeline.look.zoom or (0, 0)
    assert s.info.extent is not None and s.info.extent[0] < first < last < s.info.extent[1]
    assert COMMANDS["zoom_out"](timeline).look.zoom == s.info.extent
    assert session_commands.zoom_span((0, 100), (0, 1000), 0.5) == (25, 75)
    assert session_commands.zoom_span((0, 100), (0, 1000), 0.5, 20) == (
        10,
        60,
    )  # 20 stays a fifth from the left


def test_another_run_keeps_the_choices_but_no_place() -> None:
    s = COMMANDS["next_part"](session("a", "b")).with_look(per="token", filter="gemm")
    other = s.with_run(1)
    assert other.look.window is None and other.look.per == "token" and other.look.filter == "gemm"


def test_files_are_compared_in_their_order_until_a_baseline_is_chosen() -> None:
    three = session("one", "two", "three")
    assert [three.with_run(i).pair for i in range(3)] == [(0, 1), (0, 1), (0, 2)]
    assert session_commands.toggle_baseline(three, 1).pair == (1, 0)
    assert session_commands.toggle_baseline(three.with_run(1), 1).pair == (1, 0)


def test_the_properties_of_a_run_by_hand() -> None:
    info = describe_run(decode(steps=4))
    assert info.steps == (1, 2, 3, 4) and info.layers == (0, 1) and info.phases == ("decode",)
    assert info.tokens_per_s == pytest.approx(4 / 3.5e-3)  # from begin to begin; the last step ends by itself
    assert info.extent == (1_000_000, 4_500_000)


def test_every_key_is_in_the_table_once() -> None:
    names = [name for key in KEYS for name in key.keys.split(",")] + list(TAB_KEYS)
    assert len(names) == len(set(names)) == len(map_keys_to_commands())


def test_every_command_has_one_callable_and_every_callable_a_key() -> None:
    app = Explorer(None, ScreenOptions())
    assert set(app.keyboard.commands) == set(map_keys_to_commands().values())
    assert all(callable(command) for command in app.keyboard.commands.values())


def test_what_is_said_of_commands_is_said_of_commands_that_there_are() -> None:
    assert set(map_keys_to_commands().values()) >= NEEDING_AN_ANSWER | OPENING_THE_LINE | LEADING_ELSEWHERE


def foot(width: int, now: KeyContext) -> str:
    return "".join(span.text for span in bands.draw_footer(width, now))


def test_eighty_columns_name_the_keys_that_a_place_is_for() -> None:
    for now, wanted in (
        (KeyContext("table", enters=True, leaves=True), ("Esc out", "Enter in", "/ filter", "s sort")),
        (KeyContext("table", enters=True), ("o group", "x export", "d diff")),
        (KeyContext("drawing"), ("Tab next view", "d diff", "x export")),
        (KeyContext("diff", enters=True), ("a changed", "x export", "m mark", "M link")),
        (KeyContext("many", enters=True, leaves=True), ("b divide", "] by the next")),
        (KeyContext("time"), ("+ zoom", "→ later", "← earlier")),
        (KeyContext("list", enters=True, leaves=True), ("Enter choose", "/ path of a file", "b baseline")),
        (KeyContext("table", "bundled", True), ("Space hold", ": prompt", "c mode", "E options", "/ filter")),
        (KeyContext("table", "dead", True, True), ("R restart", "E options")),
    ):
        actual = foot(80, now)
        assert len(actual) <= 80 and all(f"{word}  " in actual for word in ("q quit", "? help", *wanted))
        assert ("Enter" in actual) == now.enters and ("Esc" in actual) == now.leaves
    assert foot(40, KeyContext("table", "bundled", True, True)).startswith(" q quit  ? help  ")


def test_a_note_leaves_room_for_how_many_there_are() -> None:
    def told(width: int, *notes: str) -> str:
        return "".join(span.text for span in bands.draw_status(Look(), "1/8", "", notes, width))

    assert told(40, "slower", "a is a1", "b is b1") == " 1/8   slower (+2)"
    assert told(20, "much slower than that", "more") == " 1/8   much sl… (+1)"
    assert told(20, "much slower than that") == " 1/8   much slower …"


def test_footers_name_keys_that_there_are() -> None:
    known = {key.command for key in KEYS}
    for words in (*FOOTERS.values(), *ENGINE_FOOTERS.values(), MORE_FOOTER):
        assert set(words) <= known


def test_all_keys_stand_on_one_screen_of_the_help() -> None:
    shown = [
        "".join(span.text for span in line)
        for line in HelpPage(tuple(load_views())).draw_lines(DrawSize(80, 24))
    ]
    at_once = "\n".join(shown[: 24 - 4])
    assert [key for key in KEYS if f" {format_keys(key)} " not in at_once or key.short not in at_once] == []
    assert all(key.help in "\n".join(shown) for key in KEYS)


def test_the_clipboard_has_a_limit_and_a_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert tty.build_clipboard_sequence("hi") == "\x1b]52;c;aGk=\x07"
    monkeypatch.setenv("TMUX", "x")
    assert tty.build_clipboard_sequence("hi") == "\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\"
    assert tty.build_clipboard_sequence("x" * 100_001) is None


def test_only_what_an_answer_depends_on_is_asked() -> None:
    s = session("a")
    asked = Question.from_session(s, load_view("kernels"))
    drawn = s.with_look(cursor=(4, 0), full_names=True, sort="name", descending=False, columns=("name",))
    assert Question.from_session(drawn, load_view("kernels")).is_same(asked)
    assert not Question.from_session(s.with_look(filter="x"), load_view("kernels")).is_same(asked)
    assert not Question.from_session(s, load_view("layers")).is_same(asked)
    grown = Question.from_session(session("a"), load_view("kernels"))
    assert grown.is_same_but_for_growth(asked) and not grown.is_same(asked)


def test_the_header_says_what_tokens_per_second_are_based_on() -> None:
    run = load(find_sample("decode"))[0]
    info = describe_run(run)
    assert info.speed_basis == "by wall time"
    line = "".join(span.text for span in bands.draw_header(run, info, None, 120))
    assert "69.64 tok/s by wall time" in line
    reported = replace(run, meta={**run.meta, "decode_tokens_per_s": 12.0})
    assert describe_run(reported).speed_basis == "reported by the source"
