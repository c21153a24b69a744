"""Two planted lines: both slopes, their ratio and where they cross."""

import polars as pl
import pytest

from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.analysis.growth import compare_growth
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
    return build_run(name, {}, frame.with_columns(phase=pl.lit("decode"), lens=pl.lit("gpu")), Log())


def test_slopes_ratio_and_crossing() -> None:
    actual = compare_growth(line("a", 1000, 30), line("b", 2200, 20), Look(), "op").rows.row(0, named=True)
    assert actual["op"] == "attn.core"
    assert actual["slope_a_ns_per_1k"] == pytest.approx(30_000)
    assert actual["slope_b_ns_per_1k"] == pytest.approx(20_000)
    assert actual["slope_ratio"] == pytest.approx(2 / 3)
    assert actual["cross"] == pytest.approx(120)
    assert actual["law_a"] == actual["law_b"] == "linear"


def test_lines_that_cross_elsewhere_do_not_cross() -> None:
    actual = compare_growth(line("a", 1000, 30), line("b", 9000, 20), Look(), "op").rows.row(0, named=True)
    assert actual["cross"] is None


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
        return build_run(name, {}, frame, Log())

    actual = compare_growth(run("a", 30), run("b", 20), Look(), "op").rows
    assert actual["op"].to_list() == ["attn.core", "mlp.down"]
    assert actual["law_a"].to_list() == ["linear", "noisy"]
    assert actual["slope_ratio"].to_list() == [pytest.approx(2 / 3), None]
    assert actual["cross"][1] is None
