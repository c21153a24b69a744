"""Every view: its picture at two sizes, its manners on thin sources and odd looks, its steadiness."""

import json
from collections.abc import Callable

import polars as pl
import pytest

from capture.run import Run
from tests.tracetui.runs import aggregates, decode, made, nested, scopes
from tracetui.glyphs import count_cells
from tracetui.look import GROUPS, PERS, Look
from tracetui.report_formats import FORMATS, format_report
from tracetui.views import VIEWS, Answer, View, ask, find_focus, ink, load_view, load_views
from tracetui.views.ink import DrawSize

SINGLE = [
    v
    for v in load_views()
    if v.run_count == 1 and v.name not in ("sections", "cycles", "findings", "waterfall")
]
SIZES = (DrawSize(80, 24), DrawSize(120, 40))
SCROLLED = ("summary", "training")

TABLES = {
    "reports": pl.DataFrame({"title": ["prefill", "decode"], "total_ns": [10, 20]}),
    "selections": pl.DataFrame({"op": ["matmul"], "variant": ["gemv"]}),
}


def everything() -> Run:
    """A run that feeds every view."""
    whole = decode(steps=40, layers=6, spike=17, odd=2)
    extra = pl.DataFrame(
        {"name": ["gemm"], "dur": [7000], "shape": ["m=1 n=2 k=3"], "flops": [12e6], "bytes": [3e6]}
    )
    rows = [
        *whole.events.drop("op", "category").to_dicts(),
        *extra.with_columns(
            kind=pl.lit("kernel"), lens=pl.lit("gpu"), path=pl.lit("forward / layer 0")
        ).to_dicts(),
    ]
    return made(rows, TABLES, **whole.meta)


def screen(shown: View, answer: Answer, look: Look, size: DrawSize) -> str:
    """What a pane of that size holds, with the notes below."""
    drawn = shown.draw is not None and not answer.missing
    lines = (
        shown.draw(answer, look, size)
        if drawn and shown.draw
        else ink.draw_table(answer.rows, size, shown.columns, 0)
    )
    assert max((count_cells("".join(s.text for s in ln)) for ln in lines), default=0) <= size.width
    assert len(lines) <= size.height or shown.name in SCROLLED
    assert {s.style for ln in lines for s in ln} <= set(ink.STYLES)
    return ink.format_plain(lines) + "\n" + "".join(f"note: {n}\n" for n in answer.notes)


@pytest.mark.corpus
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("shown", SINGLE, ids=lambda v: v.name)
def test_golden(shown: View, size: DrawSize, golden: Callable[[str, str], None]) -> None:
    focus = {"detail": (("op", "mlp.down"),), "calls": (("scope", "layers 0–5"),)}
    look = Look(focus=focus.get(shown.name, ()))
    answer = ask(shown, [everything()], look)
    golden(f"{shown.name}-{size.width}x{size.height}", screen(shown, answer, look, size))


def test_golden_layers_by_step(golden: Callable[[str, str], None]) -> None:
    look = Look(group="step", cursor=(2, 17))
    golden(
        "layers-by-step-80x24",
        screen(load_view("layers"), ask(load_view("layers"), [everything()], look), look, SIZES[0]),
    )


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SINGLE, ids=lambda v: v.name)
def test_nothing_that_matches_is_no_error(shown: View) -> None:
    for look in (
        Look(filter="no such name" if shown.filters != "rows" else ""),
        Look(phase="backward"),
        Look(window=(900, 901)),
        Look(lens="host"),
    ):
        answer = ask(shown, [everything()], look)
        for size in (*SIZES, DrawSize(40, 10), DrawSize(20, 3)):
            screen(shown, answer, look, size)


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SINGLE, ids=lambda v: v.name)
@pytest.mark.parametrize(
    "source", [aggregates, scopes, nested, lambda: made([{"kind": "mark", "name": "only a line"}])]
)
def test_thin_sources_are_told_what_is_missing(shown: View, source: Callable[[], Run]) -> None:
    run = source()
    answer = ask(shown, [run], Look())
    screen(shown, answer, Look(), SIZES[0])
    if answer.missing:
        assert answer.rows.is_empty() and any(word in answer.notes[0] for word in answer.missing)
        assert f"the {shown.title.lower()} view" in answer.notes[0]


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SINGLE, ids=lambda v: v.name)
def test_the_same_question_has_the_same_answer(shown: View) -> None:
    run = everything()
    shuffled = made(
        run.events.drop("op", "category").sample(fraction=1, shuffle=True, seed=1).to_dicts(),
        TABLES,
        **run.meta,
    )
    for group in (None, "name", "layer"):
        answers = [ask(shown, [r], Look(group=group)) for r in (run, run, shuffled)]
        assert answers[0].rows.equals(answers[1].rows)
        if shown.name not in ("log", "detail", "import"):
            assert (
                answers[0]
                .rows.drop("trend", strict=False)
                .equals(answers[2].rows.drop("trend", strict=False))
            )


@pytest.mark.corpus
@pytest.mark.parametrize("shown", SINGLE, ids=lambda v: v.name)
def test_every_look_and_format_is_answered(shown: View) -> None:
    run = everything()
    for group in (*GROUPS, None):
        for per in PERS:
            actual = json.loads(format_report(shown, [run], Look(group=group, per=per, limit=5), "json"))
            assert all(set(r) == set(actual["columns"]) for r in actual["rows"])
    for name in FORMATS:
        assert format_report(shown, [run], Look(), name)


@pytest.mark.parametrize("shown", [v for v in SINGLE if v.draw], ids=lambda v: v.name)
def test_ascii_drawings_hold_nothing_else(shown: View) -> None:
    run = everything()
    answer = ask(shown, [run], Look())
    text = ink.format_plain(shown.draw(answer, Look(), DrawSize(100, 40, ascii=True))) if shown.draw else ""
    assert not set(text) & set("▁▂▃▄▅▆▇█░▒▓│┤└┬─⠉⣀…━·")


SPANS_ALONE = "this source has spans and no kernels; the tree view shows them"


def test_spans_without_kernels_are_named_where_kernels_are_asked_for() -> None:
    for look in (Look(), Look(filter="gemm")):
        assert ask(load_view("kernels"), [nested()], look).notes == (SPANS_ALONE,)
    assert ask(load_view("detail"), [nested()], Look()).notes == (SPANS_ALONE, "all rows")
    unplaced = made([{"kind": "span", "name": "run", "dur": 5}])
    assert ask(load_view("kernels"), [unplaced], Look()).notes == ("this source has spans and no kernels",)
    hidden = ask(load_view("kernels"), [everything()], Look(filter="no such name"))
    assert hidden.notes[0] == "nothing matches this filter, phase and window"


def test_enter_names_what_the_cursor_stands_on() -> None:
    run = everything()
    layers = load_view("layers")
    answer = ask(layers, [run], Look())
    assert find_focus(layers, answer, Look(cursor=(2, 0))) == (("layer", 2), ("op", "attn.core"))
    kernels = load_view("kernels")
    answer = ask(kernels, [run], Look(group="op"))
    assert find_focus(kernels, answer, Look(cursor=(1, 0))) == (("op", "mlp.down"),)
    assert find_focus(kernels, answer, Look(cursor=(99, 0))) == ()


def test_the_summary_lists_what_cannot_be_known() -> None:
    rows = ask(load_view("summary"), [aggregates()], Look()).rows
    unknown = dict(rows.filter(pl.col("part") == "unknown").select("name", "text").iter_rows())
    assert unknown["growth"] == "needs step" and unknown["counters"] == "needs counter rows and value"
    assert "kernels" not in unknown and "shapes" not in unknown


def test_tables_list_and_show_what_the_source_tabulated() -> None:
    run = everything()
    listed = ask(load_view("tables"), [run], Look())
    assert listed.rows.rows() == [("reports", 2, "title, total_ns"), ("selections", 1, "op, variant")]
    shown = ask(load_view("tables"), [run], Look(focus=(("table", "reports"),)))
    assert shown.rows.rows() == [("prefill", 10), ("decode", 20)]


def test_every_module_is_a_view_of_its_name() -> None:
    names = [v.name for v in load_views()]
    assert len(set(names)) == len(VIEWS)
    assert all(load_view(n).name == n for n in names)


def test_kernel_rows_carry_the_same_keys_whatever_the_source() -> None:
    keys = {
        "name",
        "op",
        "layer",
        "phase",
        "lens",
        "count",
        "total_ns",
        "mean_ns",
        "p50_ns",
        "p95_ns",
        "p99_ns",
    }
    keys |= {"min_ns", "max_ns", "share", "cumulative_share", "category", "trend", "shape"}
    for run in (everything(), aggregates(), scopes(), made([{"name": "a", "dur": 1}])):
        there = set(ask(load_view("kernels"), [run], Look()).rows.columns)
        assert keys <= there <= keys | {"gb_per_s", "gflop_per_s", "roof_share", "bound", "joules"}


def test_one_of_several_columns_may_feed_a_view() -> None:
    assert ask(load_view("tree"), [scopes()], Look()).rows.height
    assert ask(load_view("tree"), [nested()], Look()).rows.height
    assert ask(load_view("tree"), [aggregates()], Look()).missing == ("path or t or layer",)


@pytest.mark.parametrize("group", ["op", "category", "path", "layer"])
@pytest.mark.parametrize("width", [80, 120])
def test_a_long_name_leaves_room_for_the_numbers(group: str, width: int) -> None:
    """A template of 300 characters stands beside the group, and is cut like the first column."""
    rows = [
        {"name": f"void gemm<{'float, ' * 40}{i}>", "op": "mlp.up", "category": "matmul", "layer": 0,
         "path": " / ".join(f"module_{n}" for n in range(30)), "dur": 1_000_000}
        for i in range(1)
    ]  # fmt: skip
    text = format_report(load_view("kernels"), [made(rows)], Look(group=group), width=width, cut=True)
    assert "total" in text.splitlines()[0] and "1.000 ms" in text and "100.0%" in text
    assert all(len(line) <= width for line in text.splitlines() if not line.startswith("note"))


def test_an_op_that_nobody_knows_has_no_name() -> None:
    """The row of layer 0 that is longer than all others has no op."""
    rows = [{"name": "a", "op": None, "layer": n, "dur": 900 - 800 * (n > 0) + n} for n in range(8)]
    rows += [{"name": "b", "op": "norm", "layer": n, "dur": 10} for n in range(8)]
    text = format_report(load_view("layers"), [made(rows)], Look())
    assert "layer 0, unknown op: 900 ns" in text
    assert "unlike the other layers: layer 0 in unknown op" in text
    assert "None" not in text
