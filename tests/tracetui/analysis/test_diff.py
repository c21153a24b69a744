"""Two runs side by side: matches, exact sums, evidence and comparability, by value."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.importlog import Log
from capture.open import load
from capture.run import Run, build
from tests.conftest import seed, shared
from tracetui.analysis.compare.cycles import cycle_statistics
from tracetui.analysis.compare.diff import diff
from tracetui.analysis.compare.findings import findings
from tracetui.analysis.compare.match import match, plain_name
from tracetui.analysis.compare.matrix import axis, matrix, scaling
from tracetui.analysis.compare.waterfall import waterfall
from tracetui.look import Look, Terms

BETA = ("suspicion", "beta_a", "beta_b", "d_beta", "z_beta", "p_beta", "u_beta")
MU = ("mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu")
OPS = ("attn.q", "attn.core", "mlp.down", "norm")


def recording(
    name: str, *, slow: dict[str, float] | None = None, steps: int = 48, noise: int = 0, gap: int = 50
) -> Run:
    """A decode of `steps` steps with four ops on two layers; `slow` multiplies an op's time."""
    rng = np.random.default_rng(noise)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        total = 0
        for layer in range(2):
            for i, op in enumerate(OPS):
                base = 1000 * (i + 1) + (40 * step if op == "attn.core" else 0)
                dur = int(base * (slow or {}).get(op, 1) * rng.normal(1, 0.02))
                rows.append(
                    {
                        "kind": "kernel",
                        "name": f"L{layer}.{op}",
                        "op": op,
                        "layer": layer,
                        "dur": dur,
                        "step": step,
                    }
                )
                total += dur
        rows.append(
            {
                "kind": "step",
                "name": "step",
                "step": step,
                "tokens": 1,
                "context": 10 + step,
                "dur": total + gap,
            }
        )
    frame = pl.DataFrame(rows).with_columns(phase=pl.lit("decode"), lens=pl.lit("gpu"))
    return build(name, {"model": "toy"}, frame, Log())


def verdicts(found: pl.DataFrame) -> dict[str, str]:
    return dict(found.select("name", "verdict").iter_rows())


def test_a_run_against_itself_is_empty() -> None:
    run = recording("a")
    found = diff(run, run, Look())
    assert found.comparable.score == 1
    assert set(found.rows["verdict"]) == {"same"}
    assert found.rows["delta_ns"].to_list() == [0] * 8


def test_identical_runs_with_noise_are_not_different() -> None:
    found = diff(recording("a", noise=1), recording("b", noise=2), Look())
    assert not set(found.rows["verdict"]) & {"slower", "faster"}


def test_a_planted_slow_op_is_found_and_named() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2, slow={"mlp.down": 1.1})
    found = diff(a, b, Look(group="op"))
    told = verdicts(found.rows)
    assert told["mlp.down"] == "slower"
    assert {v for op, v in told.items() if op != "mlp.down"} <= {"same", "~"}
    sentences = findings(a, b, found, Look())
    assert sentences.filter(pl.col("kind") == "slower")["row"].to_list() == ["mlp.down"]


def test_swapping_the_sides_swaps_every_sign() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2, slow={"norm": 1.2})
    there = diff(a, b, Look()).rows.sort("name")
    back = diff(b, a, Look()).rows.sort("name")
    assert there["delta_ns"].to_list() == [-x for x in back["delta_ns"]]
    np.testing.assert_allclose(there["low_ns"].to_numpy(), -back["high_ns"].to_numpy())
    opposite = {"slower": "faster", "faster": "slower"}
    assert there["verdict"].to_list() == [opposite.get(v, v) for v in back["verdict"]]


def test_the_order_of_events_does_not_matter() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2)
    shuffled = Run(b.name, b.meta, b.events.sample(fraction=1.0, shuffle=True, seed=3), b.log)
    assert diff(a, b, Look()).rows.equals(diff(a, shuffled, Look()).rows)


def test_steps_pair_by_context() -> None:
    """A run that began five tokens later is compared at equal context, where nothing has changed."""
    a, b = recording("a", steps=48), recording("b", steps=53)
    later = Run("b", b.meta, b.events.filter(pl.col("step") > 5), b.log)
    assert (
        diff(a, later, Look(group="op")).how[0].startswith("decode: 43 steps of equal context length paired")
    )
    by_number = diff(a, later, Look(group="op", terms=Terms(align="step")))
    assert verdicts(by_number.rows)["attn.core"] == "slower"


def test_the_waterfall_is_exact() -> None:
    a, b = recording("a", noise=1, gap=50), recording("b", noise=2, gap=80, slow={"norm": 2})
    found = diff(a, b, Look())
    for by in ("op", "layer", "phase", "category"):
        bars = waterfall(found.rows, by, found.gap_ns)
        walls = [int(r.events.filter(pl.col("kind") == "step")["dur"].sum()) for r in (a, b)]
        assert bars["delta_ns"].sum() == walls[1] - walls[0]
    assert found.gap_ns == 48 * 30


def test_renamed_kernels_of_a_quantised_model_find_each_other() -> None:
    runs = {r.meta["quant"]: r for r in load(seed(0), cache=False)}
    found = diff(runs["q0f16"], runs["q4f32_1"], Look())
    pairs = {r["name"]: (r["name_b"], r["fused"]) for r in found.rows.to_dicts()}
    dequantised, both = "dequantise fused", "dequantise fused, residual add fused"
    assert pairs["NT_matmul7_kernel_2"] == ("fused_dequantize3_NT_matmul7_kernel_2", dequantised)
    assert pairs["NT_matmul8_kernel_2"] == ("fused_dequantize4_fused_NT_matmul8_add1_kernel_2", both)
    assert pairs["NT_matmul5_kernel_2"] == ("fused_dequantize1_NT_matmul5_kernel_2", dequantised)
    assert pairs["NT_matmul6_kernel_2"] == ("fused_dequantize2_fused_NT_matmul6_add1_kernel_2", both)
    assert found.rows["total_a_ns"].sum() == 2_344_950_000
    assert found.rows["total_b_ns"].sum() == 4_015_160_000
    assert not set(found.rows["verdict"]) & {"slower", "faster"}


def test_runs_cut_at_different_anchors_are_not_comparable() -> None:
    runs = load(seed(3), cache=False)
    found = diff(runs[0], runs[1], Look())
    assert not found.comparable.ok
    assert any("14" in r and "238" in r for r in found.comparable.reasons)


def test_an_empty_capture_is_no_improvement() -> None:
    full = recording("a")
    empty = build("b", {"model": "toy"}, full.events.head(0), Log())
    found = diff(full, empty, Look())
    assert found.comparable.score == 0
    assert set(found.rows["verdict"]) == {"gone"}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("NT_matmul7_kernel_2", "fused_dequantize3_NT_matmul7_kernel_2"),
        ("void foo<int, 4>(float*)", "void foo<long, 8>(float*)"),
        ("triton_poi_fused_add_3f9a1c02", "triton_poi_fused_add_77aa0bd1"),
    ],
)
def test_names_that_mean_the_same(a: str, b: str) -> None:
    assert plain_name(a) == plain_name(b)
    assert [m.how for m in match([{"name": a}], [{"name": b}])] == ["normalised"]


def test_every_row_stands_in_exactly_one_match() -> None:
    a = [{"name": f"gemm_{i}", "op": "mlp", "phase": "decode"} for i in range(3)] + [
        {"name": "x"},
        {"name": "same"},
    ]
    b = [{"name": f"Cijk_{i}", "op": "mlp", "phase": "decode"} for i in range(2)] + [
        {"name": "y"},
        {"name": "same"},
    ]
    found = match(a, b, {"x": "y"})
    assert sorted(i for m in found for i in m.a) == list(range(5))
    assert sorted(j for m in found for j in m.b) == list(range(4))
    assert {m.how for m in found} == {"role", "linked by you", "exact"}


def test_cycle_statistics_equal_the_published_ones() -> None:
    folder = shared("samples/latencyprism")
    table = cycle_statistics(
        *(load(folder / f"{n}_perf_data.csv", cache=False)[0] for n in ("normal", "abnormal"))
    )
    assert table is not None
    ours = {(r["function"], r["metric"], r["device"]): r for r in table.to_dicts()}
    with (folder / "cross_comparison.csv").open(newline="") as f:
        header, *rows = csv.reader(f)
    figures = (*BETA, *MU)
    assert len(header) == 17 and len(rows) == 264 == len(ours)
    for row in rows:
        mine = ours[row[0], row[1], row[2]]
        for name, text in zip(figures, row[3:], strict=True):
            stated = float(text or "nan")
            if math.isnan(stated):
                assert math.isnan(mine[name]) and mine["constant"]
            else:
                assert mine[name] == pytest.approx(stated, rel=1e-6, abs=1e-6)


def test_the_clock_is_named_as_the_cause() -> None:
    folder = shared("samples/latencyprism")
    a, b = (load(folder / f"{n}_perf_data.csv", cache=False)[0] for n in ("normal", "abnormal"))
    sentences = findings(a, b, diff(a, b, Look()), Look())
    kinds = sentences["kind"].to_list()
    cause = sentences.row(kinds.index("cause"), named=True)["finding"]
    assert "cpu_frequency" in cause and "85." in cause and "22.5" in cause
    assert all(
        kinds.index("cause") < i for i, k in enumerate(kinds) if k in ("slower", "faster", "new", "gone")
    )


def test_many_runs_in_one_matrix_scale_along_their_axis() -> None:
    runs = [
        build(
            f"ctx{n}",
            {},
            pl.DataFrame({"name": ["attn", "mlp"], "dur": [n * n, 7 * n], "lens": ["gpu"] * 2}),
            Log(),
        )
        for n in (100, 200, 400, 800)
    ]
    along = axis(runs)
    assert along is not None and (along.name, along.values) == ("ctx", (100, 200, 400, 800))
    found = matrix(runs, Look())
    laws = dict(zip(found.rows["row"], scaling(found, along)["exponent"], strict=True))
    assert laws["attn"] == pytest.approx(2) and laws["mlp"] == pytest.approx(1)


def test_twenty_runs_of_one_report(tmp_path: Path) -> None:
    runs = load(seed(4), cache=False)
    found = matrix(runs, Look())
    assert len(found.columns) == len(runs) == 20
