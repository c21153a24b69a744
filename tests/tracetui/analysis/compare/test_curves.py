"""Two planted lines: both slopes, their ratio and where they cross."""

import polars as pl
import pytest

from capture.importlog import Log
from capture.run import Run, build
from tracetui.analysis.compare.curves import curves
from tracetui.look import Look


def line(name: str, start: int, slope: int) -> Run:
    """attn.core takes start + slope ns for each token of context."""
    steps = range(1, 41)
    kernels = [
        {
            "kind": "kernel",
            "name": "attention",
            "op": "attn.core",
            "step": s,
            "dur": start + slope * (100 + s),
        }
        for s in steps
    ]
    marks = [{"kind": "step", "name": "step", "step": s, "tokens": 1, "context": 100 + s} for s in steps]
    frame = pl.DataFrame([*kernels, *marks], infer_schema_length=None)
    return build(name, {}, frame.with_columns(phase=pl.lit("decode"), lens=pl.lit("gpu")), Log())


def test_slopes_ratio_and_crossing() -> None:
    found = curves(line("a", 1000, 30), line("b", 2200, 20), Look(), "op").rows.row(0, named=True)
    assert found["op"] == "attn.core"
    assert found["slope_a_ns_per_1k"] == pytest.approx(30_000)
    assert found["slope_b_ns_per_1k"] == pytest.approx(20_000)
    assert found["slope_ratio"] == pytest.approx(2 / 3)
    assert found["cross"] == pytest.approx(120)
    assert found["law_a"] == found["law_b"] == "linear"


def test_lines_that_cross_elsewhere_do_not_cross() -> None:
    found = curves(line("a", 1000, 30), line("b", 9000, 20), Look(), "op").rows.row(0, named=True)
    assert found["cross"] is None


def test_what_scatters_is_set_against_nothing_and_stands_below_what_grows() -> None:
    def run(name: str, slope: int) -> Run:
        """A line, and beside it ten times as much that jumps up and down."""
        grown = line(name, 1000, slope).events
        wild = [
            {"kind": "kernel", "name": "wild", "op": "mlp.down", "step": s, "dur": 50_000 * (1 + s % 2),
             "phase": "decode", "lens": "gpu"}
            for s in range(1, 41)
        ]  # fmt: skip
        frame = pl.concat([grown, pl.DataFrame(wild)], how="diagonal_relaxed")
        return build(name, {}, frame, Log())

    found = curves(run("a", 30), run("b", 20), Look(), "op").rows
    assert found["op"].to_list() == ["attn.core", "mlp.down"]
    assert found["law_a"].to_list() == ["linear", "noisy"]
    assert found["slope_ratio"].to_list() == [pytest.approx(2 / 3), None]
    assert found["cross"][1] is None
