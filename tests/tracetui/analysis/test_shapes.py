"""Shapes: sums and rates, by value."""

import pytest

from tests.tracetui.runs import aggregates
from tracetui.analysis.shapes import compute_shape_table
from tracetui.look import Look


def test_shapes_know_a_rate_only_where_all_rows_know_their_work() -> None:
    gemm, softmax = compute_shape_table(aggregates(), Look()).to_dicts()
    assert (gemm["shape"], gemm["count"], gemm["total_ns"], gemm["flops"]) == ("m=1 n=2 k=3", 4, 1000, 1600)
    assert gemm["flop_per_s"] == pytest.approx(1600 / 1000e-9)
    assert softmax["flops"] is None and softmax["flop_per_s"] is None and softmax["byte_per_s"] is None
    assert gemm["share"] == pytest.approx(1000 / 1500)
    assert (gemm["flops_per_launch"], softmax["flops_per_launch"]) == (1600 / 4, None)
