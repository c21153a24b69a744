"""Kernels without scopes in the tree: by kind of step, kind of layer and op, against plain sums."""

import random
from collections import Counter
from typing import Any

import pytest

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.tree import tree_table
from tracetui.look import Look
from tracetui.views import ask, view


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
    table = tree_table(run, Look())
    leaves = table.filter(table["self_ns"] > 0)
    assert dict(leaves.select("path", "self_ns").iter_rows()) == times
    assert dict(leaves.select("path", "count").iter_rows()) == counts
    assert table["self_ns"].sum() == sum(k["dur"] for k in kernels)
    for path, inclusive, count in table.select("path", "inclusive_ns", "count").iter_rows():
        inside = [k for k in kernels if f"{path_of(k)} / ".startswith(f"{path} / ")]
        assert (inclusive, count) == (sum(k["dur"] for k in inside), len(inside))
    assert (
        "kernels of no scope stand by their step, kind of layer and op"
        in ask(view("tree"), [run], Look()).notes
    )


def test_scopes_that_the_source_states_stay() -> None:
    kernel = {"kind": "kernel", "lens": "gpu", "layer": 1, "op": "mlp.up"}
    run = made(
        [
            {**kernel, "name": "gemm", "dur": 5, "path": "model / layers.1"},
            {**kernel, "name": "gemm", "dur": 7, "path": None},
        ]
    )
    leaves = {r["path"]: r["self_ns"] for r in tree_table(run, Look()).to_dicts() if r["self_ns"]}
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
    leaves = {r["path"]: r["self_ns"] for r in tree_table(run, Look()).to_dicts() if r["self_ns"]}
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
    leaves = {r["path"]: r["self_ns"] for r in tree_table(run, Look()).to_dicts() if r["self_ns"]}
    assert leaves == {
        "model / model.py(7): forward / gemm": 5, "model / model.py(9): forward / gemm": 6, "model / gemm": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "called"),
    [([3], "layer 3"), (range(36), "layers 0–35"), (range(0, 40, 2), "20 layers, 0 …")],
)
def test_what_layers_of_one_kind_are_called(numbers: Any, called: str) -> None:
    run = made([{"kind": "kernel", "name": "k", "dur": 1, "layer": n, "op": "norm"} for n in numbers])
    assert set(tree_table(run, Look()).filter(depth=0)["path"]) == {called}
