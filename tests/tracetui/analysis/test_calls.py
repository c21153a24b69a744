"""Callers and callees of a scope, against the tree added up by hand."""

import pytest

from tests.tracetui.runs import made, nested
from tracetui.analysis.calls import compute_calls_table
from tracetui.look import Look
from tracetui.views import ask, find_focus, load_view

ROWS = (
    ("gemm", "forward / layer 0", 30), ("gemm", "forward / layer 1", 20), ("gemm", "backward", 10),
    ("norm", "forward / layer 0", 4), ("gemm", "forward / layer 0", 6), ("gemm", None, 1),
)  # fmt: skip
RUN = made([{"kind": "kernel", "name": n, "path": p, "dur": d, "lens": "gpu"} for n, p, d in ROWS])


def told(scope: str) -> list[tuple[object, ...]]:
    table = compute_calls_table(RUN, Look(), scope)
    return table.select("relation", "scope", "inclusive_ns", "self_ns", "count").rows()


@pytest.mark.parametrize("scope", ["gemm", "forward / layer 0 / gemm"])
def test_a_kernel_and_the_scopes_that_call_it(scope: str) -> None:
    assert told(scope) == [
        ("itself", "gemm", 67, 67, 5),
        ("caller", "forward / layer 0", 36, 36, 2),
        ("caller", "forward / layer 1", 20, 20, 1),
        ("caller", "backward", 10, 10, 1),
    ]
    shares = compute_calls_table(RUN, Look(), scope)["share"].to_list()
    assert shares == pytest.approx([1, 36 / 67, 20 / 67, 10 / 67])


def test_a_scope_and_what_it_calls() -> None:
    assert told("forward") == [
        ("itself", "forward", 60, 0, 4),
        ("callee", "layer 0", 40, 0, 3),
        ("callee", "layer 1", 20, 0, 1),
    ]
    assert told("forward / layer 0") == [
        ("itself", "layer 0", 40, 0, 3),
        ("caller", "forward", 40, 0, 3),
        ("callee", "gemm", 36, 36, 2),
        ("callee", "norm", 4, 4, 1),
    ]
    assert told("nowhere") == []


def test_a_scope_within_itself_is_counted_once() -> None:
    rows = [("f", 0, 100), ("f", 10, 50), ("g", 20, 30)]
    run = made([{"kind": "span", "name": n, "t": t, "dur": d, "lens": "host"} for n, t, d in rows])
    table = compute_calls_table(run, Look(), "f")
    assert table.select("relation", "scope", "inclusive_ns", "self_ns").rows() == [
        ("itself", "f", 100, 50), ("callee", "f", 50, 20),
    ]  # fmt: skip


def test_enter_goes_from_the_tree_to_calls_and_on() -> None:
    tree = ask(load_view("tree"), [RUN], Look())
    place = tree.rows["path"].to_list().index("forward / layer 0 / gemm")
    focus = find_focus(load_view("tree"), tree, Look(cursor=(place, 0)))
    assert focus == (("scope", "forward / layer 0 / gemm"),)
    calls = ask(load_view("calls"), [RUN], Look(focus=focus))
    assert find_focus(load_view("calls"), calls, Look(cursor=(0, 0))) == (("name", "gemm"),)
    assert find_focus(load_view("calls"), calls, Look(cursor=(1, 0))) == (("scope", "forward / layer 0"),)
    assert ask(load_view("calls"), [nested()], Look()).rows.is_empty()  # of which scope?
