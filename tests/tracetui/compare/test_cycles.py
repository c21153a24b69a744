"""Cycle statistics against those that a report published."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from capture.load_runs import load
from tests.conftest import FIXTURES, shared
from tests.tracetui.runs import made
from tracetui.compare.cycle_statistics import compute_cycle_statistics

BETA = ("suspicion", "beta_a", "beta_b", "d_beta", "z_beta", "p_beta", "u_beta")
MU = ("mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu")


def test_cycle_statistics_equal_the_published_ones() -> None:
    folder = shared("samples/latencyprism")
    table = compute_cycle_statistics(
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


def test_metrics_that_no_side_has_give_no_table() -> None:
    folder = FIXTURES / "latencyprism"
    a, b = (load(folder / f"{n}_perf_data.csv", cache=False)[0] for n in ("normal", "abnormal"))
    assert compute_cycle_statistics(a, b, "cpu") is not None
    assert compute_cycle_statistics(a, b, "no such metric") is None


def test_figures_are_the_same_each_time() -> None:
    """Sums of floats depend on their order."""
    rng = np.random.default_rng(0)
    kernels = [
        {"kind": "kernel", "name": f"k{i % 7}", "lens": "gpu", "t": 1000 * i, "dur": 900, "step": i // 70}
        for i in range(3500)
    ]
    counters = [
        {"kind": "counter", "name": f"gpu {what}", "t": 5000 * i, "value": float(rng.random())}
        for i in range(700)
        for what in ("load", "watts")
    ]
    a, b = made([*kernels, *counters]), made([*kernels[:3000], *counters])
    first, *others = (compute_cycle_statistics(replace(a), replace(b)) for _ in range(4))
    assert first is not None and first.height == 14
    assert all(other is not None and other.equals(first) for other in others)
