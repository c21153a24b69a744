"""Kernel statistics against numpy and sums on paper."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.errors import UsageError
from capture.run import Run
from tests.tracetui.runs import MS, aggregates, decode, made
from tracetui.analysis import kernels
from tracetui.analysis.frames import name_filter, selection
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.look import GROUPS, PERS, Look, Per


def row(table: pl.DataFrame, **key: object) -> dict[str, object]:
    (found,) = table.filter(pl.col(k).cast(pl.String) == str(v) for k, v in key.items()).to_dicts()
    return found


def test_percentiles_are_those_of_numpy() -> None:
    random = np.random.default_rng(7)
    durs = {
        name: random.gamma(2, 1e5, n).astype(int) for name, n in (("a", 1), ("b", 2), ("c", 101), ("d", 400))
    }
    run = made([{"name": n, "dur": int(d), "t": i} for n, ds in durs.items() for i, d in enumerate(ds)])
    table = compute_kernel_table(run, Look())
    for name, values in durs.items():
        got = row(table, name=name)
        for q in (50, 95, 99):
            expected = np.percentile(values, q, method="linear")
            assert abs(got[f"p{q}_ns"] - expected) <= 0.5  # type: ignore[operator]
        assert (got["min_ns"], got["max_ns"]) == (values.min(), values.max())
        assert (got["count"], got["total_ns"]) == (values.size, values.sum())
        assert abs(got["mean_ns"] - values.mean()) <= 0.5  # type: ignore[operator]


def test_shares_add_up_from_the_largest() -> None:
    table = compute_kernel_table(
        made([{"name": n, "dur": d} for n, d in (("a", 1), ("b", 3), ("c", 4))]), Look()
    )
    assert table["name"].cast(pl.String).to_list() == ["c", "b", "a"]
    assert table["share"].to_list() == [0.5, 0.375, 0.125]
    assert table["cumulative_share"].to_list() == [0.5, 0.875, 1.0]


def test_a_filter_hides_rows_but_changes_no_share() -> None:
    run = made([{"name": n, "dur": d, "step": 1} for n, d in (("a", 1), ("b", 3), ("c", 4))])
    for per in PERS:
        table = compute_kernel_table(run, Look(filter="[ab]", per=per))
        assert table["share"].to_list() == [0.375, 0.125]
        assert table["cumulative_share"].to_list() == [0.875, 1.0]  # among all rows


def test_a_kernel_of_few_steps_is_divided_by_all_of_them() -> None:
    rows = [{"name": "often", "dur": 8, "step": s} for s in range(4)] + [
        {"name": "once", "dur": 8, "step": 2}
    ]
    for look in (
        Look(per="step"),
        Look(per="step", filter="once"),
        Look(per="step", focus=(("name", "once"),)),
    ):
        assert row(compute_kernel_table(made(rows), look), name="once")["total_ns"] == 2


def test_aggregates_have_no_percentiles_but_those_printed() -> None:
    table = compute_kernel_table(aggregates(), Look())
    gemm, softmax = row(table, name="gemm"), row(table, name="softmax")
    assert (gemm["count"], gemm["total_ns"], gemm["mean_ns"], gemm["max_ns"]) == (4, 1000, 250, 400)
    assert gemm["p95_ns"] is None and gemm["p50_ns"] is None and gemm["min_ns"] is None
    assert (softmax["count"], softmax["mean_ns"], softmax["p95_ns"]) == (5, 100, 150)


def test_sums_of_steps_have_no_percentiles() -> None:
    rows = [{"name": n, "dur": d, "step": s} for s in range(5) for n, d in (("a", 5), ("b", 7))]
    run = made(rows)
    assert selection.has_step_sums(run)
    assert row(compute_kernel_table(run, Look()), name="a")["p50_ns"] is None
    twice = made([*rows, {"name": "a", "dur": 6, "step": 0}])
    assert not selection.has_step_sums(twice)
    assert row(compute_kernel_table(twice, Look()), name="a")["max_ns"] == 6


def test_per_step_and_per_token() -> None:
    run = decode(steps=4)
    decoded = Look(phase="decode", group="op")
    down = 4 * 4 * 400_000  # steps · layers · ns
    for per, by in (("total", 1), ("step", 4), ("token", 8)):
        got = row(compute_kernel_table(run, Look(phase="decode", group="op", per=per)), op="mlp.down")  # type: ignore[arg-type]
        assert (got["total_ns"], got["count"]) == (down // by, 16 / by)
    assert compute_kernel_table(run, decoded).schema["count"] == pl.Int64


def test_every_grouping_holds_all_the_time() -> None:
    run = decode(steps=4)
    total = run.events.filter(pl.col("kind") == "kernel")["dur"].sum()
    for group in GROUPS:
        assert compute_kernel_table(run, Look(group=group))["total_ns"].sum() == total


def test_lens_phase_window_filter_and_focus_narrow() -> None:
    rows = [
        {"name": n, "dur": d, "lens": x, "phase": p, "step": s}
        for n, d, x, p, s in (
            ("gemm", 1, "gpu", "prefill", 0), ("gemm", 2, "gpu", "decode", 1),
            ("norm", 4, "gpu", "decode", 2),            ("gemm", 8, "wall", "decode", 1),
        )
    ]  # fmt: skip
    run = made(rows)

    def total(**look: object) -> int:
        return int(compute_kernel_table(run, Look(**look))["total_ns"].sum())  # type: ignore[arg-type]

    assert total() == 7
    assert total(lens="wall") == 8
    assert total(phase="decode") == 6
    assert total(window=(1, 1)) == 2
    assert total(filter="^NORM".lower()) == 4
    assert total(focus=(("name", "gemm"), ("phase", "decode"))) == 2
    assert total(filter="nothing") == 0
    with pytest.raises(UsageError):
        total(lens="sun")
    with pytest.raises(UsageError):
        total(filter="(")


@pytest.mark.parametrize("few", [0, kernels.MAX_ROWS_AT_ONCE])
def test_a_trend_is_per_token_and_leaves_the_prefill_out(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_ROWS_AT_ONCE", few)  # rows are added up cell by cell, or at once
    run = decode(steps=6, layers=1)
    trend = row(compute_kernel_table(run, Look(group="op")), op="attn.core")["trend"]
    assert trend == [(100 + 10 * (10 + 2 * s)) * 1000 / 2 for s in range(1, 7)]


@pytest.mark.parametrize("few", [0, kernels.MAX_ROWS_AT_ONCE])
def test_a_trend_keeps_gaps_where_nothing_ran(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_ROWS_AT_ONCE", few)
    run = made(
        [{"name": n, "dur": 5, "step": s} for n, steps in (("a", (0, 1, 2)), ("b", (1,))) for s in steps]
    )
    assert row(compute_kernel_table(run, Look()), name="b")["trend"] == [None, 5.0, None]


def test_a_label_stands_only_where_the_group_agrees() -> None:
    table = compute_kernel_table(decode(steps=2, layers=2), Look())
    got = row(table, name="ffn_down")
    assert (got["op"], got["layer"], got["phase"], got["lens"]) == ("mlp.down", None, None, "gpu")


def test_equal_totals_stand_in_the_order_of_names() -> None:
    run = made([{"name": n, "dur": 2 * MS} for n in ("c", "a", "b")])
    assert compute_kernel_table(run, Look())["name"].cast(pl.String).to_list() == ["a", "b", "c"]


def named(*, steps: int = 12) -> Run:
    """Kernels of several names and ops, of which some run in few steps, and one name has two ops."""
    return made(
        [
            {"name": n, "op": op, "dur": d + s, "step": s, "t": 1000 * s + i, "phase": "decode"}
            for s in range(steps)
            for i, (n, op, d, every) in enumerate(
                [
                    ("alpha_one", "norm", 100, 1),
                    ("alpha_two", "mlp.up", 70, 1),
                    ("beta", "norm", 50, 4),
                    ("gamma", "mlp.up", 30, 5),
                    ("gamma", "attn.core", 20, 6),
                    ("void cutlass::" + "x" * 60 + "_kernel<float>(Params)", "mlp.down", 10, 3),
                ]
            )
            if s % every == 0
        ]
    )


@pytest.mark.corpus
@pytest.mark.parametrize("per", PERS)
@pytest.mark.parametrize("group", ["name", "op", "step", "phase"])
def test_a_table_that_is_narrowed_is_the_one_that_is_measured(group: str, per: Per) -> None:
    run = named()
    compute_kernel_table(run, Look(group=group, per=per))
    for pattern in ("a", "alpha", "beta", "mlp", "norm|gamma", "one$", "gamma", "x", "cutlass", "nothing"):
        look = Look(filter=pattern, group=group, per=per)
        assert_frame_equal(compute_kernel_table(run, look), compute_kernel_table(replace(run), look))


def test_letters_of_a_filter_measure_no_rows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = named()
    compute_kernel_table(run, Look())
    measured: list[str] = []
    monkeypatch.setattr(kernels, "_compute_quantiles", lambda *a: measured.append("again"))
    table = compute_kernel_table(run, Look(filter="alpha"))
    assert measured == []
    assert table["name"].cast(pl.String).to_list() == ["alpha_one", "alpha_two"]
    assert table["total_ns"].to_list() == [12 * 100 + 66, 12 * 70 + 66]
    both = sum(table["total_ns"].to_list())
    rest = sum(50 + s for s in (0, 4, 8)) + sum(30 + s for s in (0, 5, 10)) + sum(20 + s for s in (0, 6))
    rest += sum(10 + s for s in (0, 3, 6, 9))
    assert table["share"].sum() == pytest.approx(both / (both + rest))


def test_a_course_of_few_steps_has_their_cells_alone() -> None:
    run = named()
    compute_kernel_table(run, Look())
    (trend,) = compute_kernel_table(run, Look(filter="^beta$"))["trend"].to_list()
    assert [v for v in trend if v is not None] == [50, 54, 58]


def test_names_are_shortened_before_a_filter_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = named()
    name_filter.prepare_names(run)
    monkeypatch.setattr(name_filter, "format_name", lambda name, _: pytest.fail(f"shortened again: {name}"))
    assert name_filter.find_matching_names(run, "alpha_").cast(pl.String).sort().to_list() == [
        "alpha_one",
        "alpha_two",
    ]
