"""Which rows of two runs are the same work: by name, by the plain name, by role, by hand."""

import polars as pl
import pytest

from capture.load_runs import load
from tests.conftest import document
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.row_matching import match_rows, normalise_name
from tracetui.look import Look


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("NT_matmul7_kernel_2", "fused_dequantize3_NT_matmul7_kernel_2"),
        ("void foo<int, 4>(float*)", "void foo<long, 8>(float*)"),
        ("triton_poi_fused_add_3f9a1c02", "triton_poi_fused_add_77aa0bd1"),
    ],
)
def test_names_that_mean_the_same(a: str, b: str) -> None:
    assert normalise_name(a) == normalise_name(b)
    assert [m.how for m in match_rows(pl.DataFrame({"name": [a]}), pl.DataFrame({"name": [b]}))] == [
        "normalised"
    ]


def test_every_row_stands_in_exactly_one_match() -> None:
    a = [{"name": f"gemm_{i}", "op": "mlp", "phase": "decode"} for i in range(3)] + [
        {"name": "x"},
        {"name": "same"},
    ]
    b = [{"name": f"Cijk_{i}", "op": "mlp", "phase": "decode"} for i in range(2)] + [
        {"name": "y"},
        {"name": "same"},
    ]
    actual = match_rows(pl.DataFrame(a), pl.DataFrame(b), {"x": "y"})
    assert sorted(i for m in actual for i in m.a) == list(range(5))
    assert sorted(j for m in actual for j in m.b) == list(range(4))
    assert {m.how for m in actual} == {"role", "linked by you", "exact"}


@pytest.mark.parametrize("name", ["mlc/three_quants.md", "seed 0"])
def test_renamed_kernels_of_a_quantised_model_find_each_other(name: str) -> None:
    runs = {r.meta["quant"]: r for r in load(document(name), cache=False)}
    actual = compare_runs((runs["q0f16"], runs["q4f32_1"]), Look())
    pairs = {r["name"]: (r["name_b"], r["fused"]) for r in actual.rows.to_dicts()}
    dequantised, both = "dequantise fused", "dequantise fused, residual add fused"
    assert pairs["NT_matmul7_kernel_2"] == ("fused_dequantize3_NT_matmul7_kernel_2", dequantised)
    assert pairs["NT_matmul8_kernel_2"] == ("fused_dequantize4_fused_NT_matmul8_add1_kernel_2", both)
    assert pairs["NT_matmul5_kernel_2"] == ("fused_dequantize1_NT_matmul5_kernel_2", dequantised)
    assert pairs["NT_matmul6_kernel_2"] == ("fused_dequantize2_fused_NT_matmul6_add1_kernel_2", both)
    assert actual.rows["total_a_ns"].sum() == runs["q0f16"].events["dur"].sum()
    assert actual.rows["total_b_ns"].sum() == runs["q4f32_1"].events["dur"].sum()
    assert not set(actual.rows["verdict"]) & {"slower", "faster"}


def test_kernels_of_different_vendors_match_by_the_shape_of_their_work() -> None:
    def row(name: str, shape: str | None, category: str = "matmul") -> dict[str, object]:
        return {"name": name, "shape": shape, "category": category, "total_ns": 1}

    a = [row("sm90_x", "m=1 n=2 k=3"), row("cutlass_y", "m=1 n=9 k=9"), row("sm90_z", None)]
    b = [row("Cijk_1", "m=1 n=9 k=9"), row("Cijk_2", "m=1 n=2 k=3"), row("Cijk_3", None)]
    assert [(m.a, m.b, m.how) for m in match_rows(pl.DataFrame(a), pl.DataFrame(b))] == [
        ((0,), (1,), "shape"), ((1,), (0,), "shape"), ((2,), (2,), "category"),
    ]  # fmt: skip


def test_names_that_stand_twice_on_a_side_are_no_pair_and_parts_stay_apart() -> None:
    schema = ["name", "phase", "rank"]
    a = pl.DataFrame([("x", "decode", 0), ("x", "decode", 1), ("x", "prefill", 0)], schema, orient="row")
    b = pl.DataFrame([("x", "decode", 1), ("x", "prefill", 0), ("x", "prefill", 0)], schema, orient="row")
    actual = {(m.a, m.b): m.how for m in match_rows(a, b)}
    assert actual == {
        ((1,), (0,)): "exact", ((0,), ()): "gone", ((2,), ()): "gone", ((), (1,)): "new", ((), (2,)): "new",
    }  # fmt: skip


def test_a_link_goes_before_the_same_name() -> None:
    a, b = pl.DataFrame({"name": ["x", "y"]}), pl.DataFrame({"name": ["x", "y"]})
    actual = [(m.a, m.b, m.how) for m in match_rows(a, b, {"x": "y"})]
    assert actual[0] == ((0,), (1,), "linked by you")
    assert {m[:2] for m in actual[1:]} == {((1,), ()), ((), (0,))}
