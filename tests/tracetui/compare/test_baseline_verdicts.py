"""Many runs against one of them: renamed rows stand beside each other, with ratios by hand and verdicts."""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.compare.run_matrix import compute_geometric_mean
from tracetui.look import Look, Terms
from tracetui.views import ask, load_view

MATMUL = "fused_matmul1_kernel"


def made(name: str, times: Mapping[str, float], seed: int) -> Run:
    """Thirty steps of the kernels, each of its time give or take a hundredth."""
    rng = np.random.default_rng(seed)
    rows = [
        {"kind": "kernel", "name": kernel, "lens": "gpu", "phase": "decode", "step": step}
        | {"t": 1000 * step, "dur": int(dur * rng.normal(1, 0.01))}
        for step in range(30)
        for kernel, dur in times.items()
    ]
    return build_run(name, {}, pl.DataFrame(rows), Log())


def three() -> list[Run]:
    base = made("base", {MATMUL: 1e6, "norm": 1e5, "rope": 2e5}, 1)
    renamed = made("renamed", {"fused_matmul7_kernel": 2e6, "norm": 1e5, "rope": 2e5}, 2)
    other = made("other", {MATMUL: 1e6, "norm": 1e5, "softmax_online": 3e5}, 3)
    return [base, renamed, other]


def test_a_renamed_kernel_stands_in_the_row_of_the_baseline() -> None:
    answer = ask(load_view("compare"), three(), Look())
    rows = {row["row"]: row for row in answer.rows.to_dicts()}
    assert set(rows) == {MATMUL, "norm", "rope", "softmax_online"}
    assert rows[MATMUL]["renamed_ns"] == pytest.approx(2 * rows[MATMUL]["base_ns"], rel=0.01)
    assert rows["rope"]["other_ns"] is None and rows["softmax_online"]["base_ns"] is None
    assert any("matched under another name, as in a diff: 1" in note for note in answer.notes)


def test_geometric_means_are_of_the_rows_that_both_have() -> None:
    """Of matmul twice, norm and rope as before: the third root of two."""
    answer = ask(load_view("compare"), three(), Look())
    note = next(n for n in answer.notes if n.startswith("geometric mean"))
    assert note == "geometric mean of the rows, relative to base: renamed 1.26×, other 1×"
    assert compute_geometric_mean([1.0, 2.0, None, 0.0], [4.0, 2.0, 5.0, 1.0]) == pytest.approx(2.0)
    assert compute_geometric_mean([None], [1.0]) is None


def test_each_cell_has_its_verdict_against_the_baseline() -> None:
    rows = ask(load_view("compare"), three(), Look(terms=Terms(baseline=0))).rows
    actual = dict(rows.select("row", "renamed verdict").rows())
    assert actual[MATMUL] == "slower" and actual["norm"] in ("~", "same") and actual["rope"] in ("~", "same")
    assert dict(rows.select("row", "other verdict").rows())["rope"] == "gone"
    assert "base verdict" not in rows.columns
