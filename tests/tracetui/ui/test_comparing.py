"""Comparing by keys alone: two tables, doubts first, columns, links, other runs, many runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.events import Paste
from textual.pilot import Pilot

from capture.export_runs import export
from capture.files.user_dirs import find_baselines_folder, find_recordings_folder
from tests.tracetui.runs import made, recording
from tests.tracetui.ui.hand import answer, decode, play, press, screen, settle, table_lines
from tracetui.glyphs import count_cells
from tracetui.look import Look, Terms
from tracetui.saved_choices import load_links
from tracetui.ui.app import Explorer
from tracetui.ui.messages import RunsChanged
from tracetui.ui.pages.list_pages import RunList
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions

Pilots = Pilot[Any]
BEFORE, AFTER = recording("before", noise=1), recording("after", noise=2, slow={"norm": 1.5})
RUNS = [BEFORE, AFTER]
DIFF = ScreenOptions(view="diff", run="2", baseline="1")
FORCED = replace(DIFF, look=Look(terms=Terms(forced=True)))


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def row(app: Explorer, name: str) -> str:
    return next(line for line in table_lines(app)[1:] if name in line)


async def until(app: Explorer, pilot: Pilots, text: str) -> None:
    for _ in range(400):
        await settle(pilot)
        if text in "\n".join(screen(app)):
            return
        await pilot.pause(0.02)
    raise AssertionError(f"{text!r} never came:\n" + "\n".join(screen(app)))


def test_equal_names_stand_once_beside_a_bar_of_their_change() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        heading, line = table_lines(app)[0], row(app, "L0.norm")
        assert "name b" not in heading and "faster" in heading
        assert line.count("L0.norm") == 1 and "slower" in line and "█" in line

    play(script, RUNS, DIFF, size=(160, 40))


def test_two_tables_side_by_side_have_the_same_columns_and_one_cursor() -> None:
    renamed = AFTER.events.with_columns(pl.col("name").cast(pl.String).str.replace("L1.mlp", "L1.ffn"))
    other = replace(AFTER, events=renamed.with_columns(pl.col("name").cast(pl.Categorical())))

    async def script(app: Explorer, pilot: Pilots) -> None:
        heading = table_lines(app)[0].split("│")
        assert [part.split()[0] for part in heading] == ["name", "faster", "median"]
        left, middle, right = row(app, "L0.norm").split(" │ ", 1)[0], *row(app, "L0.norm").rsplit(" │ ", 1)
        assert left.split()[0] == "L0.norm" and right.split()[-1] == "L0.norm"
        assert "slower" in middle and "▲ +" in middle and "█" in middle.split("│")[-1]
        await press(pilot, "w")
        assert "│" not in table_lines(app)[0]
        await press(pilot, "w")
        assert table_lines(app)[0].split("│") == heading

    play(script, [BEFORE, other], DIFF, size=(160, 40))


def test_eighty_columns_hold_a_b_difference_per_cent_and_verdict() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        heading = ["name", "median", "a", "median", "b", "median", "of", "Δ", "Δ%", "verdict▼", "phase"]
        assert table_lines(app)[0].split() == heading
        assert row(app, "L0.norm").split()[-2] == "slower"

    play(script, RUNS, DIFF, size=(80, 24))


def test_what_changed_differs_in_colour_too() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        table = app.main_screen.table
        columns = table.sheet.arrange_columns(100, app.workspace.session.look)
        names = [c.name for c in columns]
        tones = table.sheet.list_styles(0, 8, columns)
        styles = {answer(app).rows["name"][i]: tones[i][names.index("median_delta_ns")] for i in range(8)}
        assert styles["L0.norm"] == styles["L1.norm"] == "bad"
        assert set(styles.values()) <= {"bad", "dim"}

    play(script, RUNS, DIFF, size=(100, 30))


def test_ascii_bars_and_arrows_tell_the_same() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        text = "\n".join(screen(app))
        assert text.isascii()
        line = row(app, "L0.norm")
        assert "^ +" in line and "|#" in line

    play(script, RUNS, ScreenOptions(view="diff", run="2", baseline="1", ascii=True), size=(160, 30))


def test_reasons_come_before_rows_that_should_not_be_believed() -> None:
    other = made(AFTER.events.to_dicts(), model="another", mode="eager")

    async def script(app: Explorer, pilot: Pilots) -> None:
        text = "\n".join(screen(app))
        assert "should not be compared" in text and "model differs: toy against another" in text
        assert "L0.norm" not in text
        await press(pilot, "enter")
        assert "slower" in row(app, "L0.norm")
        await press(pilot, "tab")
        assert app.workspace.session.view == "waterfall" and "faster" in "\n".join(screen(app))

    before = made(BEFORE.events.to_dicts(), model="toy", mode="graph")
    play(script, [before, other], DIFF, size=(120, 30))


def test_columns_are_chosen_and_given_back() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "v")
        names = [line.split("  ")[0].strip() for line in table_lines(app)[1:]]
        place = names.index("effect")
        await press(pilot, *["j"] * place, "enter", "escape")
        assert table_lines(app)[0].split() == ["name", "effect"]
        await press(pilot, "v", "enter", "escape")
        assert "verdict" in table_lines(app)[0]

    play(script, RUNS, DIFF, size=(80, 30))


def test_rows_are_linked_and_unlinked_by_keys_and_the_link_is_kept() -> None:
    a = made([{"name": n, "dur": d, "lens": "gpu"} for n, d in (("gemm", 100), ("old", 10))])
    b = made([{"name": n, "dur": d, "lens": "gpu"} for n, d in (("gemm", 100), ("brand_new", 30))])

    async def script(app: Explorer, pilot: Pilots) -> None:
        assert sorted(answer(app).rows["verdict"]) == ["gone", "new", "~"]
        await press(pilot, "M")
        assert "0 rows are marked" in "\n".join(screen(app))
        names = answer(app).rows["name"].to_list()
        for name in ("brand_new", "old"):
            await press(pilot, "g", *["j"] * names.index(name), "m")
        await press(pilot, "M")
        rows = {r["name"]: r for r in answer(app).rows.to_dicts()}
        assert (rows["old"]["name_b"], rows["old"]["delta_ns"]) == ("brand_new", 20)
        assert rows["old"]["match"] == "linked by you"
        assert [(k.a, k.b) for k in load_links()] == [("old", "brand_new")]
        await press(pilot, "g", *["j"] * answer(app).rows["name"].to_list().index("old"), "M")
        assert sorted(answer(app).rows["verdict"]) == ["gone", "new", "~"]
        assert load_links() == ()

    play(script, [a, b], FORCED, size=(120, 30))


def test_where_nothing_can_be_compared_nothing_is_linked() -> None:
    a, b = (made([{"kind": "memory", "name": "weights", "bytes": 5.0}]) for _ in range(2))

    async def script(app: Explorer, pilot: Pilots) -> None:
        assert answer(app).missing
        await press(pilot, "M")
        assert "M links two marked rows" in "\n".join(screen(app))

    play(script, [a, b], FORCED, size=(120, 30))


def test_a_kept_link_holds_when_the_files_are_opened_again() -> None:
    a = made([{"name": "old", "dur": 10, "lens": "gpu"}])
    b = made([{"name": "brand_new", "dur": 30, "lens": "gpu"}])

    async def link(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "m", "j", "m", "M")

    async def again(app: Explorer, pilot: Pilots) -> None:
        assert answer(app).rows["match"].to_list() == ["linked by you"]

    play(link, [a, b], FORCED)
    play(again, [a, b], FORCED)


def test_one_run_alone_is_compared_with_a_recording_by_d() -> None:
    folder = find_recordings_folder()
    assert folder is not None
    export([BEFORE], folder / "yesterday.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "d")  # the only candidate is compared at once
        await until(app, pilot, "a is before, b is after")
        assert app.workspace.session.view == "diff" and "slower" in row(app, "L0.norm")
        newer = [AFTER]
        app.post_message(RunsChanged(newer, [describe_run(r) for r in newer]))
        await pilot.pause(0.4)
        await settle(pilot)
        assert [r.name for r in app.workspace.session.runs] == ["before", "after"]
        assert [r.name for r in app.workspace.session.list_sources_for(app.workspace.view)] == [
            "before",
            "after",
        ]

    play(script, [AFTER], ScreenOptions(view="kernels"), size=(120, 30))


def test_a_baseline_is_shown_by_r_and_the_diff_asks_against_which() -> None:
    folder = find_baselines_folder()
    assert folder is not None
    export([BEFORE], folder / "main.jsonl")
    third = recording("third", noise=3)

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "r")
        assert "baseline:main" in "\n".join(screen(app))
        await press(pilot, "G", "enter")
        await until(app, pilot, "run 1 of 3")
        assert app.workspace.session.run is not None and app.workspace.session.run.name == "before"
        await press(pilot, "d")
        assert "compares with the current run" in "\n".join(screen(app))
        await press(pilot, "G", "enter")
        await until(app, pilot, "a is third, b is before")
        await press(pilot, "d", "g", "j", "enter")
        await until(app, pilot, "a is after, b is before")

    play(script, [AFTER, third], ScreenOptions(view="kernels"), size=(120, 30))


def test_any_file_is_compared_with_by_its_path_typed_or_pasted(tmp_path: Path) -> None:
    """Both runs of the file come beside the one shown, and the last is what it is compared with."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    export([recording("older", noise=3), BEFORE], folder / "elsewhere.jsonl")

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "d", "slash")
        assert "a path; Tab completes it" in screen(app)[-1]
        app.post_message(Paste(f"{folder}/else"))
        await press(pilot, "tab")
        await until(app, pilot, "elsewhere.jsonl")
        await press(pilot, "enter")
        await until(app, pilot, "a is before, b is after")
        assert [r.name for r in app.workspace.session.runs] == ["older", "before", "after"]
        assert "slower" in row(app, "L0.norm") and "reading" not in screen(app)[-2]
        await press(pilot, "r")
        app.post_message(Paste(f"'{folder}/absent.jsonl'\n"))
        await until(app, pilot, "file: ")
        await press(pilot, "enter")
        await until(app, pilot, "absent.jsonl: no such file")
        assert isinstance(app.workspace.page, RunList)
        await press(pilot, "slash", "escape", "escape")
        assert app.workspace.is_showing_view and app.workspace.draft is None

    play(script, [AFTER], ScreenOptions(view="kernels"), size=(120, 30))


def test_b_in_the_list_pins_the_run_under_the_cursor() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "r", "j", "j", "b", "escape", "d")
        assert "a is third, b is before" in "\n".join(screen(app))

    play(script, [BEFORE, AFTER, recording("third", noise=3)], ScreenOptions(view="kernels"), size=(120, 30))


def test_many_runs_divide_by_a_pinned_one_and_brackets_take_the_next() -> None:
    runs = [decode(f"ctx{n}", steps=n) for n in (2, 4, 8)]

    async def script(app: Explorer, pilot: Pilots) -> None:
        total = {r["row"]: r for r in answer(app).rows.to_dicts()}["gemm_down"]
        assert [total[f"ctx{n}_ns"] for n in (2, 4, 8)] == [2000, 4000, 8000]
        assert total["exponent"] == pytest.approx(1) and total["r2"] == pytest.approx(1)
        await press(pilot, "b")
        assert [answer(app).rows[0, f"ctx{n}_times"] for n in (2, 4, 8)] == [1, 2, 4]
        await press(pilot, "right_square_bracket")
        assert [answer(app).rows[0, f"ctx{n}_times"] for n in (2, 4, 8)] == [0.5, 1, 2]
        assert "4.00×" not in row(app, "gemm_down") and "0.50×" in row(app, "gemm_down")
        # that at the median of its row has no colour
        tones = app.main_screen.table.sheet.list_styles(
            0, 1, app.main_screen.table.sheet.arrange_columns(100, app.workspace.session.look)
        )[0]
        assert [t for t in tones if t.startswith(("fall", "level", "rise"))] == ["fall3", "rise3"]
        await press(pilot, "enter")
        assert app.workspace.session.view == "detail"

    play(script, runs, ScreenOptions(view="compare"), size=(100, 30))


@pytest.mark.corpus
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (110, 24), (160, 48)])
def test_every_view_of_a_comparison_keeps_to_the_screen(size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        for view in ("diff", "waterfall", "curves", "shifts", "cycles", "findings", "compare"):
            app.answers.show_session(app.workspace.session.with_view(view))
            await settle(pilot)
            assert {count_cells(line) for line in screen(app)} == {size[0]}
            assert app.workspace.exit_code == 0

    play(script, RUNS, DIFF, size=size)


def test_a_diff_is_written_as_a_comment_by_keys_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "x")
        assert "export: diff.md   Enter writes it, Tab changes the file type: .md .csv" in screen(app)[-1]
        await press(pilot, "enter")
        await until(app, pilot, "wrote")
        comment = (tmp_path / "diff.md").read_text()
        _, decision, *_, counts = filter(None, comment.partition("<details>")[0].splitlines())
        assert decision.startswith("- **SLOWER: decode step ") and counts.startswith("- 2 slower")
        assert "<summary>What was compared</summary>" in comment
        await press(pilot, "x", "tab", "enter")
        await until(app, pilot, "wrote diff-2.csv in ")
        assert (tmp_path / "diff-2.csv").read_text().startswith("name,median_a_ns")

    play(script, RUNS, DIFF, size=(160, 30))
