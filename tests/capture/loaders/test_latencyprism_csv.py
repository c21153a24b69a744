"""LatencyPrism's processed CSV files, read a second time with the csv module."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, document, shared

PRISM = FIXTURES / "latencyprism"
FIGURES = (
    "suspicion", "beta_a", "beta_b", "d_beta", "z_beta", "p_beta", "u_beta",
    "mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu",
)  # fmt: skip


FOLDERS = pytest.mark.parametrize("folder", ["latencyprism", "samples/latencyprism"])


def sample(side: str, folder: str = "samples/latencyprism") -> Path:
    return document(f"{folder}/{side}_perf_data.csv")


def stated(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as f:
        return list(csv.DictReader(f))


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind").is_in(["kernel", "span"]))


@FOLDERS
@pytest.mark.parametrize("side", ["normal", "abnormal"])
def test_cycles_are_steps(side: str, folder: str) -> None:
    (run,) = load(sample(side, folder))
    lines = stated(sample(side, folder))
    assert run.tables["cycles"].height == len(lines) > 10
    assert list(run.tables["cycles"].columns) == list(lines[0])
    anchors = {int(x["cycle"]): float(x["anchor_dur_us"]) for x in lines}
    steps = run.events.filter(pl.col("kind") == "step")
    assert steps.height == len(anchors) == run.meta["cycles"]
    assert {s: d / 1000 for s, d in steps.select("step", "dur").rows()} == anchors
    assert steps["t"][0] == 0
    assert run.meta["anchor"] == lines[0]["anchor_name"] == steps["name"][0]


@FOLDERS
@pytest.mark.parametrize("side", ["normal", "abnormal"])
def test_a_function_is_timed_once_a_cycle(side: str, folder: str) -> None:
    (run,) = load(sample(side, folder))
    once = {(int(x["cycle"]), x["function_name"], x["device"]): x for x in stated(sample(side, folder))}
    rows = kernels(run)
    assert rows.height == len(once)
    for step, name, track, dur, count in rows.select("step", "name", "track", "dur", "count").rows():
        line = once[(step, name, track)]
        assert abs(dur - 1000 * float(line["duration"])) <= 0.5
        assert count == int(line["instances_count"])
        share = 100 * float(line["duration"]) / float(line["anchor_dur_us"])
        assert share == pytest.approx(float(line["beta_pct"]), abs=1e-4)


@FOLDERS
def test_counters_are_weighted_means(folder: str) -> None:
    (run,) = load(sample("normal", folder))
    sums: dict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for x in stated(sample("normal", folder)):
        if x["mu_pct"]:
            total = sums[(int(x["cycle"]), x["metric_name"], x["device"])]
            total[0] += float(x["mu_pct"]) * float(x["duration"])
            total[1] += float(x["duration"])
    rows = run.events.filter(pl.col("kind") == "counter")
    scale = {"%": 1, "MHz": 100, "B/s": 100}
    assert rows.height == len(sums)
    for step, name, track, value, unit in rows.select("step", "name", "track", "value", "unit").rows():
        weighted, weight = sums[(step, name, track)]
        assert value * scale[unit] == pytest.approx(weighted / weight, rel=1e-6)


def test_lenses_keep_overlapping_clocks_apart() -> None:
    (run,) = load(PRISM / "perf_data.csv")
    rows = (
        kernels(run).select(pl.col("name", "kind", "lens", "category").cast(pl.String), "dur", "step").rows()
    )
    assert rows == [
        ("oncpu", "kernel", "host", "host", 1_500_000, 1),
        ("void k<1, 2>(int)", "kernel", "gpu", "other", 300_000, 1),
        ("Memcpy HtoD (Pinned -> Device)", "kernel", "gpu", "copy", 100_005, 1),
        ("runq", "kernel", "wait", "wait", 50_000, 1),
        ("cudaStreamSynchronize", "kernel", "wait", "wait", 20_000, 1),
        ("forward", "span", "wall", "other", 900_000, 1),
        ("void k<1, 2>(int)", "kernel", "gpu", "other", 500_000, 2),
    ]


def test_small_file_in_full() -> None:
    (run,) = load(PRISM / "perf_data.csv")
    assert (run.name, run.meta["host"], run.meta["mean_cycle_ns"]) == ("pid_77", "box", 1_500_000)
    steps = run.events.filter(pl.col("kind") == "step")
    assert steps.select("step", "t", "dur").rows() == [(1, 0, 1_000_000), (2, 1_001_250, 2_000_000)]
    counters = run.events.filter(pl.col("kind") == "counter").select("name", "step", "value", "unit").rows()
    assert counters == [
        ("cpu_frequency", 1, 87.5, "%"),
        ("host_cpu_usage", 1, 5.0, "%"),
        ("gpu_frequency", 1, pytest.approx((1000 * 300 + 1400 * 100.005) / 400.005), "MHz"),
        ("gpu_frequency", 2, 900.0, "MHz"),
    ]
    assert (run.log.read, run.log.dropped) == (10, 2)


def test_raw_counters() -> None:
    (run,) = load(PRISM / "counters_data.csv")
    assert run.events.select(pl.col("name", "unit").cast(pl.String), "t", "value").rows() == [
        ("cpu_frequency", "MHz", 0, 3500.006),
        ("cpu_frequency", "MHz", 0, 3490.0),
        ("container_cpu_usage", "%", 1_250, 249.269),
        ("container_mem_used", None, 1_000_000_000, 70695489536.0),
    ]
    assert run.meta["started_ns"] == 1762935807217463250
    assert {"no_device", "bad_row"} == {n.id for n in run.log.notices}
    assert (run.log.read, run.log.dropped) == (5, 1)


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")
def test_the_kept_tables_suffice_for_every_figure_of_the_comparison() -> None:
    """All columns of the published comparison come back from the two `cycles` tables."""
    groups = [_groups(load(sample(side))[0].tables["cycles"]) for side in ("normal", "abnormal")]
    comparison = load(shared("samples/latencyprism/cross_comparison.csv"))[0].tables["comparison"]
    compared = 0
    for row in comparison.iter_rows(named=True):
        key = (row["function"], row["metric"], row["device"])
        figures = _figures(*(g.get(key, np.zeros((0, 2))) for g in groups))
        for name in FIGURES:
            if row[name] is None or figures[name] is None:
                continue
            assert figures[name] == pytest.approx(row[name], rel=1e-6, abs=1e-6), (key, name)
            compared += 1
    assert compared > 264 * 13


def _groups(cycles: pl.DataFrame) -> dict[tuple[str, str, str], np.ndarray]:
    keys = ["function_name", "metric_name", "device"]
    return {
        tuple(key): part.select("beta_pct", "mu_pct").fill_null(0).to_numpy()
        for key, part in cycles.group_by(keys)
    }


def _u_test(x: np.ndarray, y: np.ndarray) -> float:
    """Mann-Whitney's p; samples that are all equal differ in nothing (later SciPy says NaN there)."""
    if min(len(x), len(y)) <= 1 or np.ptp(np.concatenate((x, y))) == 0:
        return 1.0
    return float(stats.mannwhitneyu(x, y).pvalue)


def _figures(a: np.ndarray, b: np.ndarray) -> dict[str, float | None]:
    """The formulas as they are published: z by the normal side's deviation, Welch, Mann-Whitney."""
    out: dict[str, float | None] = {}
    for name, x, y in (("beta", _column(a, 0), _column(b, 0)), ("mu", _column(a, 1), _column(b, 1))):
        d = y.mean() - x.mean()
        out |= {f"{name}_a": x.mean(), f"{name}_b": y.mean(), f"d_{name}": d, f"z_{name}": _z(d, x)}
        out[f"u_{name}"] = _u_test(x, y)
        spread = min(len(a), len(b)) > 1 and max(x.std(), y.std()) > 1e-9
        out[f"p_{name}"] = stats.ttest_ind(x, y, equal_var=False).pvalue if spread else None
        if min(len(a), len(b)) <= 1:
            out[f"p_{name}"] = 1.0
    logs = np.log1p(_column(a, 1)), np.log1p(_column(b, 1))
    out["z_log_mu"] = _z(logs[1].mean() - logs[0].mean(), logs[0])
    out["suspicion"] = abs(out["d_beta"]) * (abs(out["z_beta"]) + abs(out["z_log_mu"]))
    return out


def _column(rows: np.ndarray, i: int) -> np.ndarray:
    return rows[:, i] if len(rows) else np.zeros(1)


def _z(difference: float, normal: np.ndarray) -> float:
    deviation = normal.std(ddof=1) if len(normal) > 1 else 0.0
    return difference / deviation if deviation > 1e-9 else 0.0


@pytest.mark.parametrize("folder", ["latencyprism_two", "samples/latencyprism_two_pids"])
@pytest.mark.parametrize("side", ["normal", "abnormal"])
def test_a_process_is_a_run(side: str, folder: str) -> None:
    """What stands in the file of a process is in its run and in no other."""
    path = shared(f"{folder}/{side}_perf_data.csv") if "/" in folder else PRISM / "two_processes.csv"
    lines = stated(path)
    runs = load(path)
    assert [run.meta["pid"] for run in runs] == list(dict.fromkeys(int(x["pid"]) for x in lines))
    for run in runs:
        own = [x for x in lines if int(x["pid"]) == run.meta["pid"]]
        once = {(x["cycle"], x["function_name"], x["device"]): float(x["duration"]) for x in own}
        assert run.tables["cycles"].height == len(own)
        assert kernels(run)["dur"].sum() == pytest.approx(1000 * sum(once.values()), rel=1e-9)


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")
def test_the_published_comparison_of_one_process_of_two() -> None:
    groups = [
        _groups(load(shared(f"samples/latencyprism_two_pids/{side}_perf_data.csv"))[0].tables["cycles"])
        for side in ("normal", "abnormal")
    ]
    path = shared("samples/latencyprism_two_pids/strict_comparison_pid90816.csv")
    rows = load(path)[0].tables["comparison"].to_dicts()
    assert len(rows) == 288
    for row in rows:
        figures = _figures(*(g[row["function"], row["metric"], row["device"]] for g in groups))
        for name in ("beta_a", "beta_b", "mu_a", "mu_b", "u_beta", "u_mu"):
            assert figures[name] == pytest.approx(row[name], rel=1e-6, abs=1e-6), (row["function"], name)
