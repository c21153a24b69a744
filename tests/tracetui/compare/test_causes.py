"""Counters beside times: weighted by common time, and a throttled clock told from a change of code."""

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.conftest import document, shared
from tests.tracetui.compare.evidence.test_repeat_test import FACTORS, noisy
from tests.tracetui.runs import recording
from tracetui.compare.cycle_statistics import (
    build_sampled_cycles,
    compute_cycle_statistics,
    integrate_counter,
)
from tracetui.compare.diff import compare_runs
from tracetui.compare.run_sides import Sides
from tracetui.compare.words.change_findings import list_findings
from tracetui.look import Look
from tracetui.views import ask, load_view


def clocked(name: str, mhz: float, attention_cycles: float, *, pressure: float = 5.0) -> Run:
    """Forty steps of two ops: their times are cycles over the clock; counters every third of a step."""
    rng = np.random.default_rng(int(mhz))
    rows: list[dict[str, Any]] = []
    now = 1_000_000
    for step in range(1, 41):
        begin = now
        for op, cycles in (("attn.core", attention_cycles), ("mlp.down", 4e6)):
            dur = int(cycles * rng.normal(1, 0.002) / mhz * 1000)
            rows.append(
                {"kind": "kernel", "name": op, "op": op, "t": now, "dur": dur, "step": step, "lens": "wall"}
            )
            now += dur
        rows.append(
            {"kind": "step", "name": "step", "step": step, "tokens": 1, "context": step, "dur": now - begin}
        )
        for i in range(3):
            t = begin + i * (now - begin) // 3
            wobble = float(rng.normal(0, 0.5))
            rows.append(
                {"kind": "counter", "name": "cpu_frequency", "t": t, "value": mhz + wobble, "unit": "MHz"}
            )
            rows.append(
                {"kind": "counter", "name": "cpu_pressure", "t": t, "value": pressure + wobble, "unit": "%"}
            )
    return build_run(name, {"model": "toy"}, pl.DataFrame(rows, infer_schema_length=None), Log())


def told(a: Run, b: Run) -> pl.DataFrame:
    return list_findings(compare_runs((a, b), Look()), Look())


def causes(a: Run, b: Run) -> list[str]:
    return told(a, b).filter(pl.col("kind") == "cause")["finding"].to_list()


def test_a_counter_counts_for_a_kernel_by_their_common_time() -> None:
    """Against a sum over every nanosecond of the line that is drawn from sample to sample."""
    samples = pl.DataFrame({"t": [100, 200, 230, 400], "value": [10.0, 30.0, 0.0, 17.0]})
    begin, end = pl.Series([50, 110, 190, 395, 500]), pl.Series([150, 111, 390, 420, 540])
    moments = [np.arange(a, b) + 0.5 for a, b in zip(begin, end, strict=True)]
    expected = [np.interp(m, samples["t"], samples["value"]).sum() for m in moments]
    np.testing.assert_allclose(integrate_counter(samples, begin, end), expected, rtol=1e-6)


def test_cycles_are_time_by_the_clock() -> None:
    rows = build_sampled_cycles(clocked("a", 2000.0, 2e6), "freq")
    assert rows is not None and set(rows["unit"]) == {"MHz"}
    by_op = {op: rows.filter(pl.col("function") == op) for op in ("attn.core", "mlp.down")}
    assert by_op["attn.core"]["cycles"].mean() == pytest.approx(2e6, rel=0.01)
    assert by_op["mlp.down"]["time"].mean() == pytest.approx(4e6 / 2, rel=0.01)
    assert by_op["mlp.down"]["mu"].mean() == pytest.approx(2000, rel=1e-3)


def test_a_throttled_clock_is_no_change_of_code() -> None:
    a, b = clocked("a", 2800.0, 2e6), clocked("b", 2000.0, 2e6)
    table = compute_cycle_statistics(a, b)
    assert table is not None
    row = table.filter((pl.col("function") == "attn.core") & (pl.col("metric") == "cpu_frequency")).row(
        0, named=True
    )
    assert row["time_b_ns"] / row["time_a_ns"] == pytest.approx(1.4, rel=0.01)
    assert row["cycles_b"] / row["cycles_a"] == pytest.approx(1.0, abs=0.01)
    assert row["p_time"] < 1e-6 < 0.01 < row["p_cycles"]
    output = causes(a, b)
    assert "2,800 MHz → 2,000 MHz" in output[0]
    assert any("attn.core: time +40%" in s and "cycles +0%: the clock explains it" in s for s in output)
    assert sum("the clock explains it" in s for s in output) == 2


def test_more_cycles_are_a_change_of_code_on_any_clock() -> None:
    """A clock of five sevenths and half as many cycles again: 2.1 times the time."""
    output = causes(clocked("a", 2800.0, 2e6), clocked("b", 2000.0, 3e6))
    assert any(
        re.search(r"attn.core: time \+110%.*, cycles \+50%: the clock explains 5[456]% of it", s)
        for s in output
    )
    assert any("mlp.down: time +40%" in s and "the clock explains it" in s for s in output)
    assert causes(clocked("a", 2800.0, 2e6), clocked("b", 2801.0, 3e6)) == []


def test_a_machine_that_was_not_alone_is_named() -> None:
    """Its pressure moved between the runs and not within them, so that its part cannot be told."""
    a, b = clocked("a", 2800.0, 2e6), clocked("b", 2801.0, 2.4e6, pressure=60.0)
    output = told(a, b).filter(pl.col("kind") == "not concluded")["finding"].to_list()
    assert causes(a, b) == []
    assert any(s.startswith("cpu_pressure 5% → 60%: work waited") for s in output)


def test_cycle_statistics_are_shown_with_their_unit_and_time() -> None:
    rows = ask(load_view("cycles"), [clocked("a", 2800.0, 2e6), clocked("b", 2000.0, 2e6)], Look()).rows
    clock = rows.filter(pl.col("metric") == "cpu_frequency")
    assert set(clock["unit"]) == {"MHz"} and clock["cycles_a"].null_count() == 0
    assert rows.filter(pl.col("metric") == "cpu_pressure")["cycles_a"].null_count() == 2


def test_a_counter_of_one_recording_alone_did_not_fall_to_zero() -> None:
    a, b = clocked("a", 2800.0, 2e6), clocked("b", 2800.0, 2e6)
    unseen = build_run("b", b.meta, b.events.filter(pl.col("name") != "cpu_pressure"), Log(), enriched=True)
    answer = ask(load_view("cycles"), [a, unseen], Look())
    assert set(answer.rows["metric"]) == {"cpu_frequency"}
    assert any(
        n.startswith("excluded, sampled in one run only") and "cpu_pressure" in n for n in answer.notes
    )
    bare = build_run("b", b.meta, b.events.filter(pl.col("kind") != "counter"), Log(), enriched=True)
    assert ask(load_view("cycles"), [a, bare], Look()).rows.is_empty()


def test_a_law_that_changed_is_told_with_its_numbers() -> None:
    """attn.core gains 40 ns a token and layer; held at its first value it is flat."""
    a = recording("a", noise=1)
    flat = a.events.with_columns(
        dur=pl.when(pl.col("op") == "attn.core").then(2040).otherwise(pl.col("dur")).cast(pl.Int64)
    )
    output = told(build_run("flat", a.meta, flat, Log(), enriched=True), a).filter(pl.col("kind") == "growth")
    assert output["row"].to_list() == ["attn.core"]
    sentence = output["finding"][0]
    assert (
        "grew flat and" in sentence
        and "now grows linear (" in sentence
        and "per token per 1,000 context" in sentence
    )
    slope = float(sentence.split("linear (")[1].split(" µs")[0])
    assert slope == pytest.approx(2 * 40, rel=0.1)


def test_kernels_that_appeared_are_named_with_their_time() -> None:
    a = recording("a", noise=1)
    extra = pl.DataFrame({"name": ["fused_x", "fused_y"], "dur": [5000, 3000], "step": [3, 4]}).with_columns(
        kind=pl.lit("kernel"), lens=pl.lit("gpu"), phase=pl.lit("decode")
    )
    both = pl.concat(
        [a.events.with_columns(pl.col(pl.Categorical).cast(pl.String)), extra], how="diagonal_relaxed"
    )
    output = told(a, build_run("b", a.meta, both, Log(), enriched=True)).filter(pl.col("kind") == "new")
    assert "2 kernels are only in b, 8.000 µs" in output["finding"][0]
    assert "fused_x (5.000 µs), fused_y (3.000 µs)" in output["finding"][0] and output["row"][0] == "fused_x"


@pytest.mark.parametrize("name", ["mlc/three_quants.md", "seed 0"])
def test_lost_records_are_called_out_and_averages_compared(name: str) -> None:
    from capture.load_runs import load

    runs = {r.meta["quant"]: r for r in load(document(name), cache=False)}
    rows = told(runs["q0f16"], runs["q4f32_1"])
    lost = rows.filter(pl.col("kind") == "lost records")["finding"][0]
    assert "prefill of Llama 3.2 1B q0f16: 62 to 64" in lost and "averages are compared" in lost
    averages = dict(rows.filter(pl.col("kind") == "average").select("row", "finding").iter_rows())
    means = 975.35 / 63, 1928.01 / 63
    assert f"{means[0]:.2f} ms → {means[1]:.2f} ms" in averages["NT_matmul7_kernel_2"]
    assert "+97.7%" in averages["NT_matmul7_kernel_2"]


def test_what_cannot_be_concluded_is_told_with_what_would_be_needed() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2)
    alone = told(a, b).filter(pl.col("kind") == "not concluded")["finding"].to_list()
    assert any("3 repeats per side would be needed" in s for s in alone)
    ops = dict.fromkeys(("attn.q", "attn.core", "mlp.down", "norm"), 1.2)
    before = [noisy("a", f, i) for i, f in enumerate(FACTORS)]
    slightly = [noisy("b", f, 50 + i, ops) for i, f in enumerate(FACTORS)]
    sides = Sides((before[0], slightly[0]), more_a=tuple(before[1:]), more_b=tuple(slightly[1:]))
    output = list_findings(compare_runs(sides, Look(group="op")), Look(group="op"))
    repeats = output.filter((pl.col("kind") == "not concluded") & pl.col("row").is_not_null())[
        "finding"
    ].to_list()
    assert repeats and all("repeats per side" in s and "run-to-run spread is" in s for s in repeats)


def test_the_clock_is_named_as_the_cause() -> None:
    folder = shared("samples/latencyprism")
    a, b = (load(folder / f"{n}_perf_data.csv", cache=False)[0] for n in ("normal", "abnormal"))
    sentences = list_findings(compare_runs((a, b), Look()), Look())
    kinds = sentences["kind"].to_list()
    cause = sentences.row(kinds.index("cause"), named=True)["finding"]
    assert "cpu_frequency" in cause and "85." in cause and "22.5" in cause
    assert all(
        kinds.index("cause") < i for i, k in enumerate(kinds) if k in ("slower", "faster", "new", "gone")
    )
