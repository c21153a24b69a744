"""Rows linked by hand: what a link holds for, and the file that keeps it."""

import stat
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UsageError
from capture.import_log import Log
from capture.run import Run, build_run
from tracetui import saved_choices
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.row_matching import make_link, remove_link, resolve_links, resolve_marked_names
from tracetui.look import Look, RowLink, Terms


def run(file: str, **totals: int) -> Run:
    frame = pl.DataFrame({"name": list(totals), "dur": list(totals.values()), "lens": ["gpu"] * len(totals)})
    return build_run(Path(file).stem, {}, frame, Log(source=file))


KEY = ("name", "name_b", "phase")
A = run("/here/a.jsonl", gemm=100, left=10)
B = run("/there/b[1].jsonl", gemm=100, right=30)


def test_a_link_holds_for_its_files_wherever_they_lie_and_both_ways_round() -> None:
    link = make_link(A, B, "left", "right")
    assert resolve_links([link], A, B) == {"left": "right"}
    assert resolve_links([link], B, A) == {"right": "left"}
    assert resolve_links([link], run("/elsewhere/a.jsonl"), run("b[1].jsonl")) == {"left": "right"}
    assert resolve_links([link], A, run("/there/b1.jsonl")) == {}
    assert resolve_links([RowLink("left", "right", "a*", "*.jsonl")], A, B) == {"left": "right"}


def test_a_linked_pair_is_one_row_that_says_so_and_unlinked_it_is_two() -> None:
    link = make_link(A, B, "left", "right")
    rows = compare_runs((A, B), Look(terms=Terms(links=(link,)))).rows
    actual = {r["name"]: (r["name_b"], r["match"], r["delta_ns"]) for r in rows.to_dicts()}
    assert actual == {"gemm": ("gemm", "exact", 0), "left": ("right", "linked by you", 20)}
    back = compare_runs((B, A), Look(terms=Terms(links=(link,)))).rows
    assert {r["name"]: r["delta_ns"] for r in back.to_dicts()} == {"gemm": 0, "right": -20}
    assert remove_link((link,), A, B, "left", "right") == ()
    assert set(compare_runs((A, B), Look()).rows["verdict"]) == {"new", "gone", "~"}


def test_rows_of_equal_name_are_linked_in_their_own_phase() -> None:
    def phased(name: str, file: str) -> Run:
        rows = [
            {"name": name, "dur": d, "phase": p, "lens": "gpu"} for p, d in (("prefill", 5), ("decode", 7))
        ]
        return build_run(file, {}, pl.DataFrame(rows), Log(source=file))

    links = (RowLink("old", "new"),)
    rows = compare_runs((phased("old", "a"), phased("new", "b")), Look(terms=Terms(links=links))).rows
    assert sorted(rows.select("phase", "total_a_ns", "total_b_ns", "match").rows()) == [
        ("decode", 7, 7, "linked by you"),
        ("prefill", 5, 5, "linked by you"),
    ]


def test_two_marked_rows_mean_one_of_either_side_in_any_order() -> None:
    rows = compare_runs((A, B), Look()).rows
    keys = {r["name"]: (r["name"], r["name_b"], r["phase"]) for r in rows.to_dicts()}
    assert resolve_marked_names(rows, KEY, [keys["left"], keys["right"]]) == ("left", "right")
    assert resolve_marked_names(rows, KEY, [keys["right"], keys["left"]]) == ("left", "right")
    with pytest.raises(UsageError, match="1 rows are marked"):
        resolve_marked_names(rows, KEY, [keys["left"]])


def test_two_rows_of_one_side_cannot_be_one() -> None:
    rows = compare_runs((run("a", x=1, y=2), run("b", z=3)), Look()).rows
    keys = {r["name"]: (r["name"], r["name_b"], r["phase"]) for r in rows.to_dicts()}
    with pytest.raises(UsageError, match="neither marked row is in b"):
        resolve_marked_names(rows, KEY, [keys["x"], keys["y"]])


def test_the_file_is_private_text_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    links = (make_link(A, B, "void gemm<int>(a, b)", "naïve"), RowLink("p", "q"))
    assert saved_choices.load_links() == ()
    saved_choices.save_links(links)
    place = tmp_path / "tracetui" / "links.tsv"
    assert saved_choices.load_links() == links
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    place.write_text("# a word\n\nno link at all\n*\t*\tone\ttwo\n")
    assert saved_choices.load_links() == (RowLink("one", "two"),)
