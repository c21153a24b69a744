"""Causes weighed together: runs made with known causes, whose shares of the change are known."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.conftest import shared
from tracetui.compare.diff import compare_runs
from tracetui.compare.explained_change import explain_change
from tracetui.compare.words.change_findings import list_findings
from tracetui.look import Look

BY_USAGE = 0.6  # logarithm of time that all of the machine's usage costs


def made(
    name: str,
    mhz: float = 2500.0,
    usage: float = 6.0,
    work: float = 1.0,
    by_usage: float = BY_USAGE,
    scatter: float = 4.0,
) -> Run:
    """Eighty steps of 10 ms of work whose clock and whose machine's usage wander; a sample of each a step."""
    rng = np.random.default_rng(len(name) + int(mhz + usage + 10 * work))
    rows: list[dict[str, Any]] = []
    now = 1_000_000
    for step in range(80):
        clock = mhz * float(np.exp(rng.normal(0, 0.02)))
        used = float(np.clip(usage + scatter * rng.normal(), 0, 100))
        cost = work * 2500 / clock * np.exp(by_usage * used / 100 + rng.normal(0, 0.01))
        dur = int(1e7 * cost)
        same = {"step": step, "phase": "decode"}
        rows.append({"kind": "kernel", "name": "mm", "op": "mm", "t": now, "dur": dur, "lens": "wall"} | same)
        rows.append({"kind": "step", "name": "step", "t": now, "dur": dur, "tokens": 1} | same)
        for t in (now, now + dur - 1):
            for metric, value, unit in (("cpu_frequency", clock, "MHz"), ("host_cpu_usage", used, "%")):
                rows.append({"kind": "counter", "name": metric, "t": t, "value": value, "unit": unit})
        now += dur
    return build_run(name, {}, pl.DataFrame(rows, infer_schema_length=None), Log())


def shares(a: Run, b: Run) -> tuple[dict[str, float], float]:
    found = explain_change(a, b, Look())
    assert found is not None
    return dict(found.metrics.select("metric", "share").rows()), found.unexplained_share


def test_a_busy_machine_beside_a_lower_clock_has_its_own_share() -> None:
    """The clock at −12 % costs log(1 / 0.88), usage from 6 to 56 % half of what all of it costs."""
    by_clock, by_usage = np.log(1 / 0.88), 0.5 * BY_USAGE
    actual, rest = shares(made("a"), made("b", 2500 * 0.88, 56.0))
    whole = by_clock + by_usage
    assert actual["host_cpu_usage"] == pytest.approx(by_usage / whole, abs=0.06)
    assert actual["cpu_frequency"] == pytest.approx(by_clock / whole, abs=0.06)
    assert list(actual) == ["host_cpu_usage", "cpu_frequency"]  # from the one that explains most
    assert rest == pytest.approx(0.0, abs=0.06)


def test_a_neighbour_on_the_same_core_shows_in_the_fixed_loop() -> None:
    """The clock stays; a loop of 10 µs takes as much longer as the steps do, in steps and between runs."""

    def beside(name: str, pace: float) -> Run:
        run = made(name, scatter=0.0)
        clock = pl.col("name").cast(pl.String) == "cpu_frequency"
        rows = run.events.with_columns(
            name=pl.when(clock).then(pl.lit("fixed_loop_time")).otherwise(pl.col("name").cast(pl.String)),
            value=pl.when(clock).then(1e4 * pace * 2500 / pl.col("value")).otherwise("value"),
            dur=(pl.col("dur") * pace).cast(pl.Int64),
            unit=pl.when(clock).then(pl.lit("ns")).otherwise(pl.col("unit").cast(pl.String)),
        )
        longer = ((pl.col("t") - 1_000_000) * pace).cast(pl.Int64) + 1_000_000
        return build_run(name, {}, rows.with_columns(t=longer), Log())

    actual, rest = shares(beside("a", 1.0), beside("b", 1.4))
    assert list(actual) == ["fixed_loop_time"]
    assert actual["fixed_loop_time"] == pytest.approx(1.0, abs=0.03) and rest == pytest.approx(0.0, abs=0.03)


def test_a_change_of_code_is_left_unexplained() -> None:
    by_clock, by_usage, by_code = np.log(1 / 0.88), 0.5 * BY_USAGE, np.log(1.3)
    actual, rest = shares(made("a"), made("b", 2500 * 0.88, 56.0, work=1.3))
    assert rest == pytest.approx(by_code / (by_clock + by_usage + by_code), abs=0.06)
    assert sum(actual.values()) + rest == pytest.approx(1.0)


def test_one_slower_row_is_no_effect_of_the_machine() -> None:
    """Pressure slows all rows within both runs, and moved; the change is one row's, six times as much."""

    def made_of_rows(name: str, usage: float, slow: float) -> Run:
        run = made(name, usage=usage, by_usage=0.5)
        steps = run.events.filter(pl.col("kind") == "kernel")
        rows = [
            steps.with_columns(
                name=pl.lit(row).cast(pl.Categorical), dur=(pl.col("dur") * factor / 8).cast(pl.Int64)
            )
            for row, factor in (*((f"row {i}", 1.0) for i in range(7)), ("planted", slow))
        ]
        others = run.events.filter(pl.col("kind") != "kernel").with_columns(
            dur=pl.when(pl.col("kind") == "step")
            .then((pl.col("dur") * (7 + slow) / 8).cast(pl.Int64))
            .otherwise("dur")
        )
        return build_run(name, {}, pl.concat([others, *rows]), Log())

    a, b = made_of_rows("a", 6.0, 1.0), made_of_rows("b", 12.0, 2.6)
    actual, rest = shares(a, b)
    assert actual.get("host_cpu_usage", 0.0) == pytest.approx(0.03 / np.log(9.6 / 8), abs=0.1)
    assert rest > 0.7


def test_no_cause_is_seen_where_what_moved_costs_nothing() -> None:
    """Others used the machine, but inside the runs no step is slower for it."""
    a, b = made("a", by_usage=0.0), made("b", usage=56.0, work=1.3, by_usage=0.0)
    actual, rest = shares(a, b)
    assert actual["host_cpu_usage"] < 0.1 and rest > 0.9
    output = list_findings(compare_runs((a, made("b", work=1.3)), Look()), Look())
    nothing = output.filter(pl.col("kind") == "no cause seen")["finding"].to_list()
    assert len(nothing) == 1 and "none of 2 moved" in nothing[0]


def test_causes_are_turned_round_with_the_sides() -> None:
    a, b = made("a"), made("b", 2500 * 0.88, 56.0)
    there, back = shares(a, b)[0], shares(b, a)[0]
    assert there == pytest.approx(back, abs=1e-6)


def test_what_did_not_change_has_no_cause() -> None:
    assert explain_change(made("a"), made("b"), Look()) is None


def test_an_unstable_clock_is_named_with_all_of_the_change() -> None:
    """The published pair: 1,236 to 210 MHz, every step some 3.5 times slower."""
    folder = shared("samples/latencyprism_unstable_gpu/normal_perf_data.csv").parent
    a, b = (load(folder / f"{side}_perf_data.csv", cache=False)[0] for side in ("normal", "abnormal"))
    compared = compare_runs((a, b), Look())
    total = compared.rows["total_b_ns"].sum() / compared.rows["total_a_ns"].sum() - 1
    assert total == pytest.approx(2.639, abs=0.0005)
    kernels = compared.phases.filter(pl.col("what") == "kernels").row(0, named=True)
    assert kernels["verdict"] == "slower"
    output = list_findings(compared, Look()).filter(pl.col("kind") == "cause")["finding"].to_list()
    assert output[0].startswith("gpu_frequency") and "210 MHz (-83%) explains 100% of kernels" in output[0]
