"""A filter that selects whole rows changes no figure of them; a sort changes none but the running sum."""

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from capture.load_runs import load
from capture.run import Run
from tests.tracetui.runs import decode
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.views import ask, load_view, sort_answer

POSITIONAL = ("cumulative_share", "mark")  # depend on the rows above, and are counted anew
RUNS: dict[str, Run] = {"made": decode(layers=6, odd=2, spike=9), "sample": load(find_sample("decode"))[0]}
VIEWS_AND_GROUPS = [
    *(("kernels", group) for group in ("name", "op", "layer")),
    *(("growth", group) for group in ("name", "op", "layer")),
    *(("roofline", group) for group in ("name", "op", "layer")),
    ("layers", "op"),
    ("shapes", None),
]


def select_rows(data: st.DataObject, group: str | None, rows: pl.DataFrame) -> str:
    """A filter that selects some rows of the table, each of them wholly."""
    column = group or "shape"
    values = rows[column].drop_nulls().unique().sort().to_list()
    if group == "layer":
        return f"layer:>={data.draw(st.sampled_from(values))}"
    chosen = data.draw(st.lists(st.sampled_from(values), min_size=1, unique=True))
    return f"{column}:/^({'|'.join(re.escape(value) for value in chosen)})$/"


@pytest.mark.corpus
@settings(max_examples=3)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("view", "group"), VIEWS_AND_GROUPS)
@given(st.data())
def test_a_filter_changes_no_figure_of_a_row_that_remains(
    view: str, group: str | None, name: str, data: st.DataObject
) -> None:
    if view in ("shapes", "roofline") and name == "made":
        pytest.skip("has no shapes, bytes or operations")
    run, shown = RUNS[name], load_view(view)
    whole = ask(shown, [run], Look(group=group)).rows
    text = select_rows(data, group, whole)
    part = ask(shown, [run], Look(group=group, filter=text)).rows
    key = ["layer", "op"] if view == "layers" else ["shape", "op"] if view == "shapes" else [str(group)]
    columns = [c for c in part.columns if c in whole.columns and c not in POSITIONAL]
    assert part.height
    before = whole.join(part.select(key), on=key, how="semi", nulls_equal=True).select(columns)
    assert_frame_equal(part.select(columns).sort(key), before.sort(key), rel_tol=1e-9)


@pytest.mark.parametrize("column", ["p95_ns", "name", "count"])
def test_a_cumulative_share_is_that_of_all_rows_above(column: str) -> None:
    look = Look(sort=column, descending=column != "name")
    rows = sort_answer(ask(load_view("kernels"), [RUNS["sample"]], look), look).rows
    running = 0.0
    for share, cumulative in rows.select("share", "cumulative_share").iter_rows():
        running += share
        assert cumulative == pytest.approx(running)
