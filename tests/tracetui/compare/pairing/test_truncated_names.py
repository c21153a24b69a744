"""Names that were cut: joined where one name alone can complete them, in a matrix and in a diff."""

import polars as pl
import pytest

from capture.load_runs import load
from tests.conftest import seed
from tests.tracetui.runs import made
from tracetui.compare.pairing.row_matching import complete_truncated, count_ambiguous, match_rows
from tracetui.compare.run_matrix import build_matrix
from tracetui.look import Look
from tracetui.views import ask, find_focus, load_view

GEMM = "void cutlass::gemm_256x128"
TN, ALIGN, WHOLE = f"{GEMM}_tn_al...", f"{GEMM}_tn_align…", f"{GEMM}_tn_align4>(Params)"
OTHER = f"{GEMM}_tn_all_else"


@pytest.mark.parametrize(
    ("sources", "settled"),
    [
        ([{TN}, {WHOLE}], {TN: WHOLE, WHOLE: WHOLE}),
        ([{TN}, {ALIGN}, {WHOLE}], {TN: WHOLE, ALIGN: WHOLE, WHOLE: WHOLE}),
        ([{TN, "norm"}, {ALIGN, "norm"}], {TN: ALIGN, ALIGN: ALIGN}),
        ([{TN}, {WHOLE}, {OTHER}], {}),  # two complete it
        ([{TN}, {WHOLE, OTHER}], {}),
        ([{ALIGN}, {WHOLE, OTHER}], {ALIGN: WHOLE, WHOLE: WHOLE}),
        ([{TN, ALIGN}, {WHOLE}], {}),  # one source tells both apart: it may be either
        ([{TN, WHOLE}, {"norm"}], {}),
        ([{f"{TN} [1]", f"{TN} [2]"}, {WHOLE}], {}),
        ([{TN}, {TN}], {}),  # equal already
        ([{GEMM}, {WHOLE}], {}),  # not cut
        ([{"void..."}, {WHOLE}], {}),  # says nothing
    ],
)
def test_a_cut_name_is_what_it_alone_can_be(sources: list[set[str]], settled: dict[str, str]) -> None:
    assert complete_truncated(sources) == settled
    assert complete_truncated(sources[::-1]) == settled


def test_cut_names_that_nobody_completes_are_counted() -> None:
    sources = [{TN, "norm"}, {WHOLE, OTHER}, {f"{GEMM}_nn..."}]
    assert count_ambiguous(sources, complete_truncated(sources)) == 2
    assert count_ambiguous([{TN}, {TN}], {}) == 0


def test_rows_of_a_diff_say_that_a_name_was_cut() -> None:
    a = [{"name": TN, "phase": "forward"}, {"name": TN, "phase": "backward"}]
    b = [{"name": WHOLE, "phase": "forward"}, {"name": WHOLE, "phase": "backward"},
         {"name": OTHER, "phase": "backward"}]  # fmt: skip
    actual = {(m.a, m.b): m.how for m in match_rows(pl.DataFrame(a), pl.DataFrame(b))}
    assert actual == {((0,), (0,)): "cut name", ((1,), ()): "gone", ((), (1,)): "new", ((), (2,)): "new"}


def test_twenty_tables_whose_numbers_cut_their_names_differently() -> None:
    """What stood in front of a name, a number of one to six digits, decided how much of it was printed."""
    runs = load(seed(4), cache=False)
    actual = build_matrix(runs, Look())
    rows = {r["row"]: r for r in actual.rows.to_dicts()}
    gemm = next(r for name, r in rows.items() if "256x128_32x3_tn" in name)
    printed = {"2.7B_ctx1024": 181.803, "2.7B_ctx128": 26.6733, "2.7B_ctx512": 62.1867, "xl_ctx512": 38.2751}
    assert {name: gemm[f"{name}_ns"] for name in printed} == {n: round(ms * 1e6) for n, ms in printed.items()}
    for run, column in zip(runs, actual.columns, strict=True):
        assert actual.rows[column].sum() == run.events.filter(pl.col("kind") == "kernel")["dur"].sum()
    names = {name for run in runs for name in run.events["name"].cast(pl.String)}
    apart = {name for name in names if "at::native::elementwise_kernel" in name}
    assert apart <= set(rows) and not apart & set(actual.completed_names)


def test_the_matrix_tells_of_cut_names_and_enter_finds_them() -> None:
    runs = [made([{"name": name, "dur": dur}]) for name, dur in ((TN, 5), (WHOLE, 7), (f"{GEMM}_nn...", 1))]
    answer = ask(load_view("compare"), runs, Look())
    actual = "\n".join(answer.notes)
    assert "completed: 2, in 1 rows" in actual and "truncated names without a unique completion: 1" in actual
    focus = find_focus(load_view("compare"), answer, Look(cursor=(0, 0)))
    assert answer.rows[0, "row"] == WHOLE and Look(focus=focus).focus_labels == [f"name {WHOLE}"]
    for run, dur in zip(runs, (5, 7, 0), strict=True):
        inside = ask(load_view("kernels"), [run], Look(focus=focus)).rows
        assert inside["total_ns"].sum() == dur
