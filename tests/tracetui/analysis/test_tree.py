"""Scopes by their stated paths, and nested by time, against sums worked out in plain lines."""

from tests.tracetui.runs import made, nested, scopes
from tracetui.analysis.tree import tree_table
from tracetui.look import Look


def test_a_tree_of_stated_paths() -> None:
    rows = {r["path"]: r for r in tree_table(scopes(), Look()).to_dicts()}
    times = {path: (r["inclusive_ns"], r["self_ns"]) for path, r in rows.items()}
    assert times == {
        "forward": (75, 0),
        "forward / layer 0": (50, 0),
        "forward / layer 0 / gemv": (50, 50),
        "forward / layer 1": (25, 15),  # measured itself: more than what is in it
        "forward / layer 1 / add": (10, 10),
        "sample": (5, 5),
    }
    assert rows["forward / layer 0 / gemv"]["count"] == 2
    assert next(iter(rows)) == "forward" and rows["forward / layer 1"]["scope"] == "  layer 1"


def test_a_tree_nested_by_time() -> None:
    rows = tree_table(nested(), Look()).to_dicts()
    assert [(r["path"], r["inclusive_ns"], r["self_ns"], r["count"]) for r in rows] == [
        ("run", 105, 25, 2),
        ("run / step", 50, 20, 1),
        ("run / step / gemm", 30, 30, 2),
        ("run / load", 30, 30, 1),
    ]


def test_a_scope_may_have_an_empty_name() -> None:
    run = made(
        [
            {"kind": "kernel", "name": name, "path": path, "dur": dur}
            for name, path, dur in (("", None, 4), ("", "outer", 3), ("gemm", None, 5), ("add", "", 1))
        ]
    )
    rows = tree_table(run, Look()).to_dicts()
    assert {r["path"]: (r["inclusive_ns"], r["self_ns"]) for r in rows} == {
        "": (5, 4), " / add": (1, 1), "gemm": (5, 5), "outer": (3, 0), "outer / ": (3, 3),
    }  # fmt: skip
