"""Views of two runs and of many: pictures at two sizes, ASCII, thin sources, every look and format."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from msgspec import structs

from capture.errors import UsageError
from capture.run import Run
from tests.tracetui.runs import aggregates, decode, made, nested, scopes
from tests.tracetui.views.test_views import SIZES, screen
from tracetui import units
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.glyphs import count_cells
from tracetui.look import GROUPS, Look
from tracetui.report_formats import FORMATS, format_report
from tracetui.views import View, ask, ink, load_view, load_views
from tracetui.views.diff import build_labels, build_titles, describe_sides
from tracetui.views.ink import DrawSize

KNOWN = NoiseFloor(0.01, source="said")
SEVERAL = [v for v in load_views() if v.run_count > 1]
DRAWN = ("waterfall", "shifts", "pair")
ENTERED = Look(focus=(("name", "ffn_down"), ("name_b", "ffn_down"), ("phase", "decode"), ("by", "name")))


def pair() -> list[Run]:
    """Two runs alike but for layer 1, whose ffn_down takes twice as long in the second."""
    return [decode(steps=12, layers=3), decode(steps=12, layers=3, odd=1)]


def look(shown: View) -> Look:
    return ENTERED if shown.name == "pair" else Look()


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", DRAWN)
def test_golden(name: str, size: DrawSize, golden: Callable[[str, str], None]) -> None:
    shown = load_view(name)
    answer = ask(shown, pair(), look(shown))
    assert shown.draw is not None
    drawn = shown.draw(answer, look(shown), DrawSize(size.width, size.height))
    assert max(count_cells(ink.format_plain([line])) for line in drawn) <= size.width
    golden(f"{name}-{size.width}x{size.height}", ink.format_plain(drawn) + "\n")


def test_the_planted_layer_is_the_one_that_doubled() -> None:
    rows = ask(load_view("shifts"), pair(), Look()).rows
    changed = {(r["layer"], r["op"]): r["change_pct"] for r in rows.to_dicts() if r["change_pct"]}
    assert changed == {(1, "mlp.down"): 100}


def test_the_row_entered_has_the_launches_and_counters_of_both_runs() -> None:
    answer = ask(load_view("pair"), pair(), ENTERED)
    sides = {r["side"]: r for r in answer.rows.to_dicts()}
    assert (sides["a"]["count"], sides["b"]["count"]) == (36, 36)
    assert sides["b"]["total_ns"] - sides["a"]["total_ns"] == 12 * 400_000
    longest = answer.parts["launches"].filter(side="b")
    assert longest["dur_ns"].to_list() == [800_000] * 5 and set(longest["layer"]) == {1}
    power = answer.parts["counters"].row(0, named=True)
    assert power["counter"] == "power" and 100 <= power["a"] <= 112 and power["unit"] == "W"


def test_a_counter_is_weighed_by_the_time_of_the_row() -> None:
    def run(first: int, second: int) -> Run:
        rows = [{"kind": "counter", "name": "clock", "t": t, "value": v, "unit": "MHz"}
                for t, v in ((0, 1000.0), (100, 2000.0))]  # fmt: skip
        for t, dur in ((0, first), (90, second)):
            rows.append({"kind": "kernel", "name": "ffn_down", "t": t, "dur": dur, "lens": "gpu"})
        return made(rows)

    answer = ask(load_view("pair"), [run(20, 20), run(60, 20)], Look(focus=(("name", "ffn_down"),)))
    clock = answer.parts["counters"].row(0, named=True)
    assert clock["a"] == pytest.approx((20 * 1100 + 20 * 2000) / 40)
    assert clock["b"] == pytest.approx((60 * 1300 + 20 * 2000) / 80)


def test_a_launch_far_out_does_not_hide_that_all_others_moved() -> None:
    """400 launches of 100 to 139 ns against 400 of 150 to 189 ns, and one of 100 µs."""

    def run(first: int, *more: int) -> Run:
        durs = [*(first + i % 40 for i in range(400)), *more]
        return made([{"kind": "kernel", "name": "ffn_down", "dur": d, "lens": "gpu"} for d in durs])

    answer = ask(load_view("pair"), [run(100), run(150, 100_000)], Look(focus=(("name", "ffn_down"),)))
    bins = answer.parts["bins"]
    assert bins["a"].sum() == 400 and bins["b"].sum() == 401
    assert bins.filter((pl.col("a") > 0) & (pl.col("b") > 0)).is_empty()
    *_, (low, high, a, b) = bins.rows()
    assert low < 190 and high == 100_000 and a == 0 and b < 30


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SEVERAL, ids=lambda v: v.name)
@pytest.mark.parametrize(
    "source", [aggregates, scopes, nested, lambda: made([{"kind": "mark", "name": "x"}])]
)
def test_thin_sources_are_no_error(shown: View, source: Callable[[], Run]) -> None:
    for size in (*SIZES, DrawSize(40, 10)):
        runs = [source(), source()]
        answer = ask(shown, runs, look(shown))
        if shown.name != "pair" and shown.name != "findings":
            screen(shown, answer, look(shown), size)


@pytest.mark.parametrize("shown", SEVERAL, ids=lambda v: v.name)
@pytest.mark.parametrize("format", FORMATS)
def test_one_run_is_not_compared_with_itself(shown: View, format: str) -> None:
    with pytest.raises(UsageError, match=f"the {shown.name} view compares runs, and one run was given"):
        format_report(shown, pair()[:1], look(shown), format)


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SEVERAL, ids=lambda v: v.name)
def test_every_group_and_format_is_answered(shown: View) -> None:
    for group in (*GROUPS, None):
        asked = Look(group=group, focus=look(shown).focus, limit=3)
        actual = json.loads(format_report(shown, pair(), asked, "json"))
        assert all(set(r) == set(actual["columns"]) for r in actual["rows"])
    for name in FORMATS:
        assert format_report(shown, pair(), look(shown), name)


@pytest.mark.parametrize("shown", [v for v in SEVERAL if v.draw], ids=lambda v: v.name)
def test_ascii_drawings_hold_nothing_else(shown: View) -> None:
    answer = ask(shown, pair(), look(shown))
    text = (
        ink.format_plain(shown.draw(answer, look(shown), DrawSize(100, 40, ascii=True))) if shown.draw else ""
    )
    assert not set(text) & set("▁▂▃▄▅▆▇█░▒▓│┤└┬─⠉⣀━·▐")


def test_a_filter_hides_rows_and_makes_none_new_or_gone() -> None:
    renamed = made([{"name": n, "dur": 10, "lens": "gpu"} for n in ("void gemm<1>()", "norm")])
    other = made([{"name": n, "dur": 20, "lens": "gpu"} for n in ("gemm", "norm")])
    rows = ask(load_view("diff"), [renamed, other], Look(filter="void")).rows
    assert rows["verdict"].to_list() == ["~"] and rows["name_b"].to_list() == ["gemm"]


def test_runs_of_one_name_are_told_apart_by_their_files() -> None:
    files = ("/x/one.jsonl", "/y/two.jsonl")
    runs = [replace(r, log=structs.replace(r.log, source=f)) for r, f in zip(pair(), files, strict=True)]
    assert build_titles(*runs) == ("made (one.jsonl)", "made (two.jsonl)")
    assert build_labels(*runs) == ("one.jsonl", "two.jsonl")
    assert build_labels(runs[0], runs[0]) == build_titles(runs[0], runs[0])
    assert build_labels(runs[0], replace(runs[1], name="other")) == ("made", "other")


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    files = ("/x/a/trace.json", "/x/b/trace.json")
    runs = [
        replace(r, name="trace.json", log=structs.replace(r.log, source=f))
        for r, f in zip(pair(), files, strict=True)
    ]
    assert build_labels(*runs) == build_titles(*runs) == ("a/trace.json", "b/trace.json")
    assert build_titles(runs[0], runs[0]) == ("trace.json", "trace.json"), "one file twice"


def test_runs_of_different_length_are_compared_by_their_medians() -> None:
    runs = [decode(steps=12, layers=3), decode(steps=30, layers=3)]
    answer = ask(load_view("diff"), runs, Look(phase="decode"))
    row = next(r for r in answer.rows.to_dicts() if r["name"] == "ffn_down")
    assert row["total_b_ns"] == 30 * 3 * 400_000 and row["total_a_ns"] == 12 * 3 * 400_000
    assert row["median_a_ns"] == row["median_b_ns"] == 3 * 400_000 // 2
    assert row["median_change_pct"] == 0 and row["verdict"] == "same"
    assert answer.columns[:3] == ("name", "median_a_ns", "median_b_ns")
    assert any("unequal amounts of work" in note for note in answer.notes)


def test_the_first_columns_are_what_the_verdict_is_about() -> None:
    """One step of a took a second: b's total is smaller, and yet nearly every step of b is slower."""

    def run(dur: int, spike: int) -> Run:
        rows = [
            {"kind": kind, "name": name, "dur": spike if step == 7 else dur, "step": step, "phase": "decode",
             "context": step, "tokens": 1}
            for step in range(20)
            for kind, name in (("step", "step"), ("kernel", "ffn_down"))
        ]  # fmt: skip
        return made(rows, model="toy")

    runs = run(1_000_000, 1_000_000_000), run(1_100_000, 1_100_000)
    answer = ask(load_view("diff"), Sides(runs, floor=KNOWN), Look())
    row = answer.rows.row(0, named=True)
    assert row["verdict"] == "slower" and row["delta_ns"] < 0 and row["change_pct"] < -90
    columns = ["name", "median_a_ns", "median_b_ns", "median_delta_ns", "median_change_pct", "verdict"]
    assert answer.rows.columns[:6] == columns and list(answer.columns[:6]) == columns
    assert [row[c] for c in columns[1:]] == [1_000_000, 1_100_000, 100_000, pytest.approx(10), "slower"]
    assert row["per"] == "token"
    assert answer.notes[answer.leading_notes].startswith(
        "ffn_down slower +10.0% in decode; kernels -97.8%; 1 slower"
    )


@pytest.mark.parametrize("height", [5, 6, 40])
def test_bars_that_have_no_room_share_one_and_still_add_up(height: int) -> None:
    """Ten ops, each slower by a power of two of a microsecond: 1,023 µs in all."""

    def run(slower: int) -> Run:
        rows = [
            {"name": f"k{i}", "op": f"op{i}", "dur": 10_000 + slower * 1000 * 2**i, "lens": "gpu"}
            for i in range(10)
        ]
        return made(rows, model="toy")

    shown = load_view("waterfall")
    answer = ask(shown, [run(0), run(1)], Look())
    assert shown.draw is not None and answer.key == ("op",)
    drawn = [ink.format_plain([line]).split() for line in shown.draw(answer, Look(), DrawSize(100, height))]
    assert len(drawn) == min(height, 12) and drawn[1][0] == "op9" and "+512.0" in drawn[1]
    assert drawn[-1] == ["total", "▲", "+1.023", "ms"]
    others = {5: "255.0", 6: "127.0"}
    if height in others:
        assert drawn[-2][1] == "others" and f"+{others[height]}" in drawn[-2]


def test_repeats_of_a_side_are_counted_with_it() -> None:
    one, other = pair()
    runs = one, replace(other, name="new")
    assert (
        describe_sides(Sides(runs, more_a=(one, one), more_b=(other,)))
        == "a is made and 2 repeats, b is new and 1 repeat; Δ is b − a"
    )
    assert describe_sides(runs) == "a is made, b is new; Δ is b − a"


def test_a_filter_that_fits_nothing_leaves_the_columns_and_the_notes() -> None:
    every, none = (ask(load_view("diff"), pair(), Look(filter=text)) for text in ("", "no such name"))
    assert none.rows.is_empty() and none.rows.columns == every.rows.columns
    assert none.notes == every.notes and any("per token in decode" in note for note in none.notes)


def test_without_samples_totals_stand_first() -> None:
    answer = ask(load_view("diff"), [aggregates(), aggregates()], Look())
    assert answer.columns == () and answer.rows.columns[1:4] == ["total_a_ns", "total_b_ns", "delta_ns"]


def test_decided_rows_come_first_and_the_weightiest_of_them_leads() -> None:
    rng = np.random.default_rng(5)

    def run(changes: dict[str, float]) -> Run:
        rows = [{"kind": "step", "name": "step", "dur": 9, "step": s, "phase": "decode"} for s in range(40)]
        for step in range(40):
            for name, ns, noise in (("small", 1e4, 0.01), ("large", 1e6, 0.01), ("wild", 1e7, 0.9)):
                dur = int(ns * changes.get(name, 1) * (1 + noise * rng.random()))
                rows.append({"kind": "kernel", "name": name, "dur": dur, "step": step, "phase": "decode"})
        return made(rows, model="toy")

    rows = ask(load_view("diff"), [run({}), run({"small": 2, "large": 1.5})], Look()).rows
    assert rows["name"].to_list() == ["large", "small", "wild"]
    assert rows["verdict"].to_list() == ["slower", "slower", "~"]
    assert rows["per"].to_list() == ["step"] * 3


def test_narrow_headings_leave_out_the_family_where_no_other_role_ends_alike() -> None:
    ops = ("attn.qkv", "attn.kv", "attn.norm", "mlp.norm", "lm_head")
    run = made([{"name": op, "op": op, "layer": 0, "dur": 10, "lens": "gpu"} for op in ops], model="toy")
    answer = ask(load_view("shifts"), [run, run], Look())
    shown = load_view("shifts").draw
    assert shown is not None
    wide, narrow = (
        ink.format_plain(shown(answer, Look(), DrawSize(width, 10))).splitlines()[0] for width in (80, 51)
    )
    assert set(wide.split()[1:]) == set(ops)
    assert {"qkv", "kv", "lm_head"} <= set(narrow.split()) and narrow.split().count("norm") == 0


def test_a_table_for_a_terminal_keeps_to_its_width_and_counts_what_it_left_out() -> None:
    whole = ask(load_view("diff"), pair(), Look()).rows.columns
    for width in (40, 80, 120):
        decision, rows = format_report(load_view("diff"), pair(), Look(), width=width, cut=True).split("\n\n")
        *lines, actual = rows.splitlines()
        table = [line for line in lines if not line.startswith("note: ")]
        assert max(map(len, [*table, *decision.splitlines()])) <= width and len(table) == 1 + 6
        assert (
            table[0].startswith("name") and "median b" in table[0] and ("  per" in table[0]) == (width > 40)
        )
        left_out = int(actual.removeprefix("note: ").split()[0])
        shown = re.split(r"  +", table[0].strip())
        assert len(shown) + left_out == len(whole)
    assert "more columns" not in format_report(load_view("diff"), pair(), Look(), width=80)


def test_a_row_of_what_has_no_layer_is_entered() -> None:
    runs = [made([{"kind": "kernel", "name": "a", "dur": 5, "layer": n} for n in (None, 0)]) for _ in "ab"]
    shown, look = load_view("compare"), Look(group="layer")
    answer = ask(shown, runs, look)
    assert shown.find_focus is not None
    for at, row in enumerate(answer.rows["row"]):
        focus = shown.find_focus(answer, replace(look, cursor=(at, 0)))
        assert focus == (("layer", None if row == "–" else 0),)
        (own,) = ask(load_view("kernels"), runs[:1], Look(focus=focus)).rows["total_ns"]
        assert own == 5


def test_the_diff_says_what_its_median_of_delta_is() -> None:
    """In pairs of steps b − a is 0, 0 and 30 ns: its median is 0, that of b less that of a 10."""
    times = {"a": (10, 20, 30) * 4, "b": (10, 50, 30) * 4}
    runs = [
        made([{"kind": "kernel", "name": "gemm", "t": 1000 * s, "dur": dur, "step": s, "phase": "decode",
               "lens": "gpu"} for s, dur in enumerate(durs)])
        for durs in times.values()
    ]  # fmt: skip
    answer = ask(load_view("diff"), runs, Look())
    (row,) = answer.rows.to_dicts()
    assert (row["median_a_ns"], row["median_b_ns"], row["median_delta_ns"]) == (20, 30, 0)
    assert units.format_heading("median_delta_ns") == "median of Δ"
    assert any("median of Δ: of b − a in each pair" in note for note in answer.notes)


def test_many_runs_name_kernels_as_all_views_do() -> None:
    mangled = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_"
    runs = [replace(made([{"name": mangled, "dur": 10, "lens": "gpu"}]), name=name) for name in ("a", "b")]
    of_all = format_report(load_view("compare"), runs, Look())
    of_one = format_report(load_view("kernels"), runs[:1], Look())
    (name,) = (line.split("  ")[0] for line in of_one.splitlines() if "add_rmsnorm" in line)
    assert name in of_all and "_ZN5" not in of_all
    assert mangled in format_report(load_view("compare"), runs, Look(), "csv")
