"""Of every file: names are the same in all views and under all filters, and a filter changes no figure."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.errors import CaptureError, UsageError
from capture.load_runs import load
from capture.run import Run
from tests.capture.test_fixtures import FILES
from tests.tracetui.runs import decode, made
from tests.tracetui.views.test_plausible_figures import CORPUS
from tracetui import filter_syntax
from tracetui.analysis.frames.display_names import select_display_names
from tracetui.analysis.ledger.step_ledger import BOUND
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.samples import SAMPLES, find_sample
from tracetui.ui.question import Question, make_picture
from tracetui.ui.session import Session
from tracetui.ui.sheet import measure_sheet
from tracetui.views import Answer, View, ask, load_view, load_views, select_row_key, sort_answer
from tracetui.views.ink import DrawSize

FILTERED = 3  # rows of a view, each selected by a filter of its own
MOST_EVENTS = 60_000
TERMS = (*filter_syntax.TEXT_COLUMNS, *filter_syntax.INTEGER_COLUMNS)
VIEWS = [view for view in load_views() if view.run_count == 1]


def build_filter(row: dict[str, Any], key: tuple[str, ...]) -> str:
    """A filter that selects the row wholly; empty if its key cannot be typed."""
    terms = []
    for column in key:
        value = row[column]
        if column not in TERMS or value is None or "/" in str(value):
            return ""
        text = f"/^{re.escape(str(value).strip())}{'( . |$)' if column == 'path' else '$'}/"
        text = str(value) if column in filter_syntax.INTEGER_COLUMNS else text
        terms.append(f"{column}:{text}")
    return " ".join(terms)


def iter_filtered(view: View, run: Run, whole: Answer) -> Iterator[tuple[str, Answer]]:
    """The answers under filters that select a row each: the first, one in the middle, the last."""
    rows = whole.rows
    for at in sorted({0, rows.height // 2, rows.height - 1}) if rows.height else ():
        key = ("op",) if view.name == "fix" else select_row_key(view, whole)
        text = build_filter(rows.row(at, named=True), key)
        if text and view.filters == "events" and all(map(run.has, key)):
            yield text, ask(view, [run], Look(filter=text))


def iter_names(answer: Answer) -> Iterator[tuple[str, str]]:
    shown = select_display_names(answer.rows, answer.names)
    yield from ((name.strip(), short.strip()) for name, short in shown.items())


def check(run: Run) -> list[str]:
    """What differs, in words."""
    faults, names = [], dict[str, str]()
    for view in VIEWS:
        whole = ask(view, [run], Look())
        for text, part in [("", whole), *iter_filtered(view, run, whole)]:
            for name, short in iter_names(part):
                if names.setdefault(name, short) != short:
                    faults.append(f"{view.name} {text}: {name[:60]} is {names[name]} and {short}")
            if text:
                faults += compare_rows(view, text, whole, part)
    return faults


def compare_rows(view: View, text: str, whole: Answer, part: Answer) -> list[str]:
    if view.name == "tree":
        return []  # its paths are longer than those of events, and scopes around a match are shown in part
    if view.name == "fix":
        if part.rows.is_empty():
            return []  # of a gap, which no kernel is
        part = replace(part, rows=part.rows.filter(pl.col("id") != BOUND))  # of what was asked for
    if part.rows.is_empty():
        return [f"{view.name} {text}: no row"]
    columns = [c for c in part.rows.columns if c in whole.rows.columns]
    key = list(select_row_key(view, whole))
    before = whole.rows.join(part.rows.select(key), on=key, how="semi", nulls_equal=True)
    faults = []
    for column in columns:
        pair = (frame.sort(key).select(*{*key, column}) for frame in (before, part.rows))
        try:
            assert_frame_equal(*pair, rel_tol=1e-9, check_dtypes=False)
        except AssertionError:
            values = (frame[column].to_list()[:3] for frame in (before, part.rows))
            faults.append(f"{view.name} {text}: {column} {' -> '.join(map(str, values))}")
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("path", [*FILES, *CORPUS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_names_and_figures_of_a_file_are_the_same_under_all_filters(path: Path) -> None:
    try:
        run = load(path, cache=False)[0]
    except CaptureError:
        pytest.skip("holds no profile")
    if run.events.height > MOST_EVENTS:
        pytest.skip("a large one")
    assert check(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_names_and_figures_of_a_sample_are_the_same_under_all_filters(name: str) -> None:
    assert check(load(find_sample(name))[0]) == []


def test_a_name_with_a_variant_keeps_it_when_a_filter_hides_the_other() -> None:
    kernel = "void aiter::add_rmsnorm_quant_kernel<c10::BFloat16, c10::BFloat16, 256, {}, 16>(int)"
    names = [kernel.format("true"), kernel.format("false")]
    rows = [{"name": name, "dur": 5, "lens": "gpu", "layer": i} for i, name in enumerate(names)]
    run = made(rows)
    both = ask(load_view("kernels"), [run], Look()).names
    assert len({both[name] for name in names}) == 2
    for view, look in (("kernels", Look(filter="layer:1")), ("summary", Look()), ("growth", Look())):
        assert ask(load_view(view), [run], look).names[names[1]] == both[names[1]]
    shown = format_report(load_view("kernels"), [run], Look(filter="layer:1"), width=300)
    assert both[names[1]] in shown


def test_a_filter_finds_a_name_as_it_is_shown() -> None:
    kernel = "void aiter::add_rmsnorm_quant_kernel<c10::BFloat16, c10::BFloat16, 256, {}, 16>(int)"
    run = made([{"name": kernel.format(x), "dur": 5, "lens": "gpu"} for x in ("true", "false")])
    kernels = ask(load_view("kernels"), [run], Look())
    for name in kernels.rows["name"]:
        text = f"^{re.escape(kernels.names[name])}$"
        assert ask(load_view("kernels"), [run], Look(filter=text)).rows["name"].to_list() == [name]


def test_a_name_is_cut_the_same_whatever_rows_are_shown() -> None:
    names = ["gemm_" + "x" * 30 + kind + "y" * 30 + "_end" for kind in ("fp8", "bf16", "int4")]
    run = made([{"name": name, "dur": 5, "lens": "gpu"} for name in names])
    shown = set[str]()
    for text in ("", "bf16"):
        answer = ask(load_view("kernels"), [run], Look(filter=text))
        sheet = measure_sheet(answer.rows, answer.key, ("name",), names=answer.names)
        columns = [replace(c, width=22) for c in sheet.columns[:1]]
        cells = sheet.format_rows(0, 9, columns)
        at = answer.rows["name"].to_list().index(names[1])
        shown.add(cells[at][0])
    assert len(shown) == 1


def test_steps_under_a_filter_are_those_in_which_something_matches() -> None:
    run = decode(steps=6)
    steps = load_view("steps")
    assert ask(steps, [run], Look(filter="step:3")).rows["step"].to_list() == [3]
    assert ask(steps, [run], Look(filter="nothing")).rows.is_empty()
    whole, part = (ask(steps, [run], Look(filter=text)).rows for text in ("", "op:norm"))
    assert part["step"].to_list() == whole["step"].to_list()
    assert (part["total_ns"] < whole["total_ns"]).all()


@pytest.mark.parametrize(
    ("view", "text"), [("import", "norm"), ("import", "layer:3"), ("tables", "op:norm"), ("now", "layer:3")]
)
def test_a_filter_that_would_do_nothing_is_refused(view: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"the {view} view"):
        ask(load_view(view), [decode(steps=6)], Look(filter=text))


def test_a_running_sum_of_filtered_rows_in_another_order_is_unknown() -> None:
    look = Look(filter="norm", sort="count")
    rows = sort_answer(ask(load_view("kernels"), [decode(steps=6)], look), look).rows
    assert rows.height == 1 and rows["cumulative_share"].to_list() == [None]


def test_a_filter_given_at_the_start_stops_no_view_that_cannot_use_it() -> None:
    run = decode(steps=6)
    session = Session(sources=(run,), view="import", start=Look(filter="norm"))
    question = Question.from_session(session, load_view("import"))
    assert (
        question.look.filter == "" and not make_picture(question, session.look, DrawSize(80, 24)).is_refusal
    )
