"""Two runs side by side: matches, exact sums, evidence and comparability, by value."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.conftest import FIXTURES, document
from tests.tracetui.runs import MS, made, recording
from tracetui.analysis.frames.statistics import compute_interval_from_a
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence.pair_test import judge_pair
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.change_findings import list_findings
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look, Terms


def verdicts(found: pl.DataFrame) -> dict[str, str]:
    return dict(found.select("name", "verdict").iter_rows())


def log_end(rows: pl.DataFrame, end: str) -> np.ndarray:
    """An end of the interval as the log of a ratio, which swapping the sides negates."""
    return np.log1p((rows[end] / rows["median_a_ns"]).to_numpy())


def test_a_run_against_itself_is_empty() -> None:
    run = recording("a")
    actual = compare_runs((run, run), Look())
    assert actual.comparability.score == 1
    assert set(actual.rows["verdict"]) == {"same"}
    assert actual.rows["delta_ns"].to_list() == [0] * 8


def test_identical_runs_with_noise_are_not_different() -> None:
    actual = compare_runs((recording("a", noise=1), recording("b", noise=2)), Look())
    assert not set(actual.rows["verdict"]) & {"slower", "faster"}


def test_a_planted_slow_op_is_found_and_named() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2, slow={"mlp.down": 1.1})
    computed = compare_runs(Sides((a, b), floor=NoiseFloor(0.01, source="said")), Look(group="op"))
    actual = verdicts(computed.rows)
    assert actual["mlp.down"] == "slower"
    assert {v for op, v in actual.items() if op != "mlp.down"} <= {"same", "~"}
    sentences = list_findings(computed, Look())
    assert sentences.filter(pl.col("kind") == "slower")["row"].to_list() == ["mlp.down"]


def test_swapping_the_sides_swaps_every_sign() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2, slow={"norm": 1.2})
    there = compare_runs((a, b), Look()).rows.sort("name")
    back = compare_runs((b, a), Look()).rows.sort("name")
    assert there["delta_ns"].to_list() == [-x for x in back["delta_ns"]]
    np.testing.assert_allclose(log_end(there, "low_ns"), -log_end(back, "high_ns"), atol=1e-12)
    opposite = {"slower": "faster", "faster": "slower"}
    assert there["verdict"].to_list() == [opposite.get(v, v) for v in back["verdict"]]


@settings(max_examples=30)
@given(st.floats(1e-3, 1e3), st.floats(0, 12))
def test_no_interval_falls_below_minus_100_percent(ratio: float, noise: float) -> None:
    """A time cannot fall by more than it is, however little is known of it."""
    rng = np.random.default_rng(1)
    a, b = (np.exp(rng.normal(0, noise, (3, 12))) * k for k in (1e6, 1e6 * ratio))
    evidence = judge_pair(a, b, NoiseFloor(0.5))
    low, high = compute_interval_from_a(evidence)
    assert (low >= -evidence.median_a).all() and (low <= high).all()
    exact = replace(evidence, low=evidence.median_b - evidence.median_a)
    np.testing.assert_allclose(compute_interval_from_a(exact)[0], exact.low, rtol=1e-6)


def test_the_first_line_of_two_noisy_recordings_has_a_possible_interval() -> None:
    """Two recordings of a few scattered steps: `-5.2 %; 95 %: -233 to +209 %` was printed of such."""
    a, b = recording("a", noise=1, steps=8), recording("b", noise=2, steps=8)
    look, floor = Look(), NoiseFloor(0.8, source="said")
    compared = compare_runs(Sides((a, b), floor=floor), look)
    lines = " ".join(describe_decision(compared, look.terms))
    ends = [int(x.replace(",", "")) for x in re.findall(r"95% likely ([-+−][\d,]+)% to", lines)]
    assert ends and min(ends) >= -100
    share = compared.rows.drop_nulls("low_ns").select(pl.col("low_ns") / pl.col("median_a_ns")).to_series()
    assert share.len() and share.min() >= -1


def test_the_order_of_events_does_not_matter() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2)
    shuffled = Run(b.name, b.meta, b.events.sample(fraction=1.0, shuffle=True, seed=3), b.log)
    assert compare_runs((a, b), Look()).rows.equals(compare_runs((a, shuffled), Look()).rows)


def test_steps_pair_by_context() -> None:
    """A run that began five tokens later is compared at equal context, where nothing has changed."""
    a, b = recording("a", steps=48), recording("b", steps=53)
    later = Run("b", b.meta, b.events.filter(pl.col("step") > 5), b.log)
    assert (
        compare_runs((a, later), Look(group="op"))
        .notes[0]
        .startswith("decode: 43 steps of equal context length paired")
    )
    by_number = compare_runs(
        Sides((a, later), floor=NoiseFloor(0.001, source="said")),
        Look(group="op", terms=Terms(align="step")),
    )
    assert verdicts(by_number.rows)["attn.core"] == "slower"


def test_first_steps_that_are_left_out_are_called_slow_and_nothing_else() -> None:
    """A prompt, a compilation or a cold cache: the file of a run without phases does not say which."""

    def run(name: str) -> Run:
        slow = pl.when(pl.col("step") == 1).then(10 * pl.col("dur")).otherwise("dur")
        b = recording(name, steps=48)
        return Run(name, b.meta, b.events.with_columns(dur=slow).drop("phase"), b.log)

    note = compare_runs((run("a"), run("b")), Look(group="op")).notes[0]
    assert "1 and 1 slow first steps left out" in note
    assert "warm-up" not in note


@pytest.mark.parametrize(("name", "cycles"), [("latencyprism/cross.md", "3 36"), ("seed 3", "14 238")])
def test_runs_cut_at_different_anchors_are_not_comparable(name: str, cycles: str) -> None:
    runs = load(document(name), cache=False)
    actual = compare_runs((runs[0], runs[1]), Look())
    assert not actual.comparability.ok
    assert any(all(n in r for n in cycles.split()) for r in actual.comparability.reasons)


def test_an_empty_capture_is_no_improvement() -> None:
    full = recording("a")
    empty = build_run("b", {"model": "toy"}, full.events.head(0), Log())
    actual = compare_runs((full, empty), Look())
    assert actual.comparability.score == 0
    assert set(actual.rows["verdict"]) == {"gone"}


def test_a_row_without_a_name_keeps_it() -> None:
    a, b = (
        build_run(run, {}, pl.DataFrame({"name": [name], "dur": [5], "lens": ["gpu"]}), Log())
        for run, name in (("a", ""), ("b", "gemm"))
    )
    assert compare_runs((a, b), Look()).rows.select("name", "verdict").rows() == [
        ("", "gone"),
        ("gemm", "new"),
    ]


@pytest.mark.parametrize(("launches", "verdict"), [([300] * 9, "slower"), ([100] * 8 + [1900], "~")])
def test_one_long_launch_of_many_is_no_slower_kernel(launches: list[int], verdict: str) -> None:
    """Where steps are too few the mean per launch is judged; 300 µs of each nine are no 1.9 ms of one."""
    runs = [
        made([{"kind": "kernel", "name": name, "dur": us * 1000, "lens": "wall"}
              for name, durations in (("gemm", gemm), ("norm", [50] * 9)) for us in durations])
        for gemm in ([100] * 9, launches)
    ]  # fmt: skip
    compared = compare_runs(runs, Look())
    assert verdicts(compared.rows)["gemm"] == verdict
    if verdict == "slower":
        (text,) = list_findings(compared, Look()).filter(kind="slower")["finding"]
        assert "100.0 µs → 300.0 µs per launch" in text and "9 and 9 launches" in text


def test_time_of_no_launch_has_no_mean() -> None:
    """A summary row of -0.0 instances, which took 5.21 ms."""
    run = load(FIXTURES / "nsys" / "no_instances.csv")[0]
    actual = compare_runs((run, run), Look())
    assert actual.rows.select("median_a_ns", "total_a_ns", "count_a").row(0) == (None, 5_210_000, 0)


@pytest.mark.parametrize("is_back", [False, True])
def test_all_of_a_compiled_module_is_not_judged_against_its_own_work(is_back: bool) -> None:
    """Steps of 10 ms, of which the module itself takes 1 ms; compiled, it is one row of 6 ms."""
    parts = [("Net (own work)", 1), ("up", 5), ("down", 4)], [("Net", 6)]
    runs = [
        made([
            {"kind": "kernel", "name": name, "dur": ms * MS + step % 3 * 1000, "step": step, "lens": "wall"}
            for step in range(12)
            for name, ms in rows
        ])
        for rows in parts
    ]  # fmt: skip
    compared = compare_runs(runs[::-1] if is_back else runs, Look())
    assert set(compared.rows["verdict"]) == {"~", "new" if is_back else "gone"}
    assert compared.phases["verdict"].to_list() == ["slower" if is_back else "faster"]
