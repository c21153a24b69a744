"""Scopes by their stated paths, and nested by time, against sums worked out in plain lines."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.errors import CaptureError
from capture.interval_nesting import find_enclosing_scopes
from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, SHARED, document
from tests.tracetui.runs import made, nested, scopes
from tracetui.analysis.frames import selection
from tracetui.analysis.tree import compute_tree_table, has_paths
from tracetui.look import Look
from tracetui.views import ask, load_view

FILES = sorted(
    path.relative_to(FIXTURES).as_posix()
    for path in FIXTURES.rglob("*")
    if path.is_file() and path.parent not in (FIXTURES, FIXTURES / "pictures")
)
SAMPLES = sorted(
    f"samples/{path.relative_to(SHARED / 'samples').as_posix()}"
    for folder in ("chrome_trace", "nsys", "serving", "rocprof", "metallic")
    for path in (SHARED / "samples" / folder).rglob("*")
    if path.is_file() and not (folder == "serving" and path.suffix == ".csv")
)


@pytest.mark.corpus
@pytest.mark.parametrize("name", [*FILES, *SAMPLES])
def test_what_scopes_take_themselves_is_the_time_of_the_kernels(name: str) -> None:
    """Annotations, waits and launches cover kernels; a tree of a device adds up to its kernels alone."""
    try:
        runs = load(document(name), cache=False)
    except CaptureError:
        return
    for run in runs:
        if "gpu" in selection.list_lenses(run) and (
            has_paths(run) or selection.has_start_times(run, ("span", "kernel"))
        ):
            kernels = selection.select_timed(run, Look(lens="gpu")).collect()
            table = compute_tree_table(run, Look(lens="gpu"))
            assert table["self_ns"].sum() == kernels["dur"].sum()
            assert table["self_ns"].min() >= 0
            assert table.filter(depth=0)["inclusive_ns"].sum() == kernels["dur"].sum()


def test_a_cover_holds_kernels_and_adds_nothing() -> None:
    rows = [("span", "step 1", 0, 100), ("kernel", "gemm", 10, 20), ("kernel", "norm", 40, 5),
            ("span", "unused", 200, 50), ("kernel", "zero", 300, 0)]  # fmt: skip
    run = made(
        [{"kind": k, "name": n, "t": t, "dur": d, "lens": "gpu", "track": "gpu0"} for k, n, t, d in rows]
    )
    table = {r["path"]: (r["inclusive_ns"], r["self_ns"]) for r in compute_tree_table(run, Look()).to_dicts()}
    assert table == {
        "step 1": (25, 0), "step 1 / gemm": (20, 20), "step 1 / norm": (5, 5), "zero": (0, 0),
    }  # fmt: skip


def test_kernels_that_overlap_on_a_stream_lie_beside_each_other() -> None:
    """The next kernel starts before the last one ends, throughout: 42 names are 42 scopes."""
    run = made(
        [
            {"kind": "kernel", "name": f"k{i % 42}", "t": 10 * i, "dur": 25 - i % 2, "lens": "gpu"}
            for i in range(4200)
        ]
    )
    table = compute_tree_table(run, Look())
    assert table.height == 42 and set(table["depth"]) == {0}
    assert table["self_ns"].sum() == 2100 * 25 + 2100 * 24


def test_a_row_that_reaches_out_of_a_scope_is_not_in_it() -> None:
    rows = [("span", "outer", 0, 100), ("span", "late", 50, 100), ("kernel", "in both", 60, 10),
            ("kernel", "in late", 120, 10), ("kernel", "in outer", 10, 5),
            ("kernel", "across", 95, 10)]  # fmt: skip
    run = made([{"kind": k, "name": n, "t": t, "dur": d, "lens": "wall"} for k, n, t, d in rows])
    assert set(compute_tree_table(run, Look())["path"]) == {
        "outer", "late", "outer / in outer", "late / in both", "late / in late", "late / across",
    }  # fmt: skip


def test_kernels_without_a_start_stand_beside_the_others() -> None:
    run = made([{"name": "a", "t": t, "dur": d, "lens": "gpu"} for t, d in ((5, 10), (None, 7))])
    assert compute_tree_table(run, Look()).select("path", "self_ns", "count").rows() == [("a", 17, 2)]


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20), st.booleans()), max_size=30
)


@given(ROWS)
@settings(max_examples=300)
def test_the_holder_is_the_innermost_of_the_scopes_that_contain_a_row(
    rows: list[tuple[int, int, int, bool]],
) -> None:
    rows.sort(key=lambda r: (r[0], r[1], not r[3], -r[2]))
    track, start, dur, scope = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)) if rows else (
        np.zeros(0, dtype=np.int64) for _ in range(4)
    )  # fmt: skip
    actual = find_enclosing_scopes(track, start, start + dur, scope.astype(bool))
    for i, (on, t, d, _) in enumerate(rows):
        around = [j for j in range(i) if rows[j][3] and rows[j][0] == on
                  and rows[j][1] + rows[j][2] >= t + d and rows[j][1] + rows[j][2] > t]  # fmt: skip
        assert actual[i] == (around[-1] if around else -1)


def test_a_tree_of_stated_paths() -> None:
    rows = {r["path"]: r for r in compute_tree_table(scopes(), Look()).to_dicts()}
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
    rows = compute_tree_table(nested(), Look()).to_dicts()
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
    rows = compute_tree_table(run, Look()).to_dicts()
    assert {r["path"]: (r["inclusive_ns"], r["self_ns"]) for r in rows} == {
        "": (5, 4), " / add": (1, 1), "gemm": (5, 5), "outer": (3, 0), "outer / ": (3, 3),
    }  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kernel", "span"]),
            st.lists(st.sampled_from(["a", "b", "", "é", "x / y", "/"]), max_size=4).map(" / ".join),
            st.sampled_from(["a", "gemm", "", "/ "]),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_a_tree_equals_one_counted_scope_by_scope(rows: list[tuple[str, str, str, int]]) -> None:
    named = [{"kind": kind, "name": name, "path": path, "dur": dur} for kind, path, name, dur in rows]
    actual = compute_tree_table(made(named), Look())
    own: dict[str, list[int]] = {}  # of each path: launches, time of kernels, time of spans
    for kind, path, name, dur in rows:
        whole = path if path.split(" / ")[-1] == name else f"{path} / {name}"
        sums = own.setdefault(whole, [0, 0, 0])
        sums[0] += 1
        sums[1 if kind == "kernel" else 2] += dur
    for path in list(own):
        while " / " in path:
            path = path.rpartition(" / ")[0]
            own.setdefault(path, [0, 0, 0])
    children: dict[str, list[str]] = {}
    for path in own:
        children.setdefault(path.rpartition(" / ")[0] if " / " in path else "(root)", []).append(path)

    def inside(path: str) -> int:
        return sum(whole_of(child) for child in children.get(path, []))

    def whole_of(path: str) -> int:
        return max(own[path][2], own[path][1] + inside(path))

    def count(path: str) -> int:
        return own[path][0] or sum(count(child) for child in children.get(path, []))

    def walked(path: str, depth: int) -> list[tuple[str, str, int, int, int]]:
        below = sorted(children.get(path, []), key=lambda p: (-whole_of(p), p))
        out = []
        for p in below:
            scope = "  " * depth + p.rpartition(" / ")[2]
            out += [(scope, p, whole_of(p), whole_of(p) - inside(p), count(p)), *walked(p, depth + 1)]
        return out

    assert actual.select("scope", "path", "inclusive_ns", "self_ns", "count").rows() == walked("(root)", 0)
    total = sum(whole_of(p) for p in children["(root)"])
    assert actual["share"].to_list() == [t / total if total else None for t in actual["inclusive_ns"]]


def serving(count: int = 600) -> tuple[Run, list[dict[str, Any]]]:
    """Steps of two kinds; four dense layers and two of experts, in no order; kernels of no layer and step."""
    draw = random.Random(3)
    batches = {1: 8, 2: 8, 3: 16, 4: 8}
    rows: list[dict[str, Any]] = [
        {"kind": "step", "name": "s", "t": 0, "dur": 1, "step": n, "phase": "decode", "batch": b}
        for n, b in batches.items()
    ]
    kernels = []
    for layer in range(6):  # so that the layers are of their kinds, whatever is drawn
        for op in ("attn.core", "moe.experts" if layer % 3 == 2 else "mlp.up"):
            kernels.append({"layer": layer, "op": op, "step": 1})
    for _ in range(count):
        layer = draw.choice([None, *range(6)])
        op = "lm_head" if layer is None else draw.choice(["attn.core", None])
        kernels.append({"layer": layer, "op": op, "step": draw.choice([None, 1, 2, 3, 4])})
    for each in kernels:
        each |= {
            "kind": "kernel", "lens": "gpu", "phase": "decode", "category": "matmul",
            "name": f"kernel {draw.randrange(3)}", "dur": draw.randrange(1, 1000), "t": draw.randrange(10**6),
        }  # fmt: skip
    return made([*rows, *kernels]), kernels


def path_of(kernel: dict[str, Any]) -> str:
    """The scopes in plain words."""
    step = {None: "outside of the steps", 3: "decode · batch 16"}.get(kernel["step"], "decode · batch 8")
    layer = {None: None, 2: "layers 2, 5", 5: "layers 2, 5"}.get(kernel["layer"], "layers 0–1, 3–4")
    return " / ".join(p for p in (step, layer, kernel["op"] or "matmul", kernel["name"]) if p is not None)


def test_kernels_without_scopes_stand_by_step_layer_and_op() -> None:
    run, kernels = serving()
    times, counts = Counter[str](), Counter[str]()
    for each in kernels:
        times[path_of(each)] += each["dur"]
        counts[path_of(each)] += 1
    table = compute_tree_table(run, Look())
    leaves = table.filter(table["self_ns"] > 0)
    assert dict(leaves.select("path", "self_ns").iter_rows()) == times
    assert dict(leaves.select("path", "count").iter_rows()) == counts
    assert table["self_ns"].sum() == sum(k["dur"] for k in kernels)
    for path, inclusive, count in table.select("path", "inclusive_ns", "count").iter_rows():
        inside = [k for k in kernels if f"{path_of(k)} / ".startswith(f"{path} / ")]
        assert (inclusive, count) == (sum(k["dur"] for k in inside), len(inside))
    assert (
        "kernels without a scope are grouped by step, kind of layer and op"
        in ask(load_view("tree"), [run], Look()).notes
    )


def test_scopes_that_the_source_states_stay() -> None:
    kernel = {"kind": "kernel", "lens": "gpu", "layer": 1, "op": "mlp.up"}
    run = made(
        [
            {**kernel, "name": "gemm", "dur": 5, "path": "model / layers.1"},
            {**kernel, "name": "gemm", "dur": 7, "path": None},
        ]
    )
    leaves = {r["path"]: r["self_ns"] for r in compute_tree_table(run, Look()).to_dicts() if r["self_ns"]}
    assert leaves == {"model / layers.1 / gemm": 5, "layer 1 / mlp.up / gemm": 7}


def test_scopes_in_time_stay() -> None:
    """One kernel in a cover of its stream, one outside of it."""
    rows = [("span", "pass", 0, 100, None), ("kernel", "in", 10, 20, 0), ("kernel", "out", 200, 30, 0)]
    run = made(
        [
            {"kind": k, "name": n, "t": t, "dur": d, "layer": at, "op": "norm" if at == 0 else None,
             "lens": "gpu", "track": "gpu0"}
            for k, n, t, d, at in rows
        ]
    )  # fmt: skip
    leaves = {r["path"]: r["self_ns"] for r in compute_tree_table(run, Look()).to_dicts() if r["self_ns"]}
    assert leaves == {"pass / in": 20, "layer 0 / norm / out": 30}


def test_the_line_that_launched_a_kernel_is_a_level_below_its_scope() -> None:
    kernel = {"kind": "kernel", "lens": "gpu", "name": "gemm", "path": "model"}
    run = made(
        [
            {**kernel, "dur": 5, "line": "model.py(7): forward"},
            {**kernel, "dur": 6, "line": "model.py(9): forward"},
            {**kernel, "dur": 7, "line": None},
        ]
    )
    leaves = {r["path"]: r["self_ns"] for r in compute_tree_table(run, Look()).to_dicts() if r["self_ns"]}
    assert leaves == {
        "model / model.py(7): forward / gemm": 5, "model / model.py(9): forward / gemm": 6, "model / gemm": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "called"),
    [([3], "layer 3"), (range(36), "layers 0–35"), (range(0, 40, 2), "20 layers, 0 …")],
)
def test_what_layers_of_one_kind_are_called(numbers: Any, called: str) -> None:
    run = made([{"kind": "kernel", "name": "k", "dur": 1, "layer": n, "op": "norm"} for n in numbers])
    assert set(compute_tree_table(run, Look()).filter(depth=0)["path"]) == {called}
