"""Many runs in one matrix, and how its rows scale."""

from pathlib import Path

import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.run import build_run
from tests.conftest import seed
from tracetui.compare.run_matrix import build_matrix, find_axis, fit_scaling
from tracetui.look import Look


def test_many_runs_in_one_matrix_scale_along_their_axis() -> None:
    runs = [
        build_run(
            f"ctx{n}",
            {},
            pl.DataFrame({"name": ["attn", "mlp"], "dur": [n * n, 7 * n], "lens": ["gpu"] * 2}),
            Log(),
        )
        for n in (100, 200, 400, 800)
    ]
    along = find_axis(runs)
    assert along is not None and (along.name, along.values) == ("ctx", (100, 200, 400, 800))
    actual = build_matrix(runs, Look())
    laws = dict(zip(actual.rows["row"], fit_scaling(actual, along)["exponent"], strict=True))
    assert laws["attn"] == pytest.approx(2) and laws["mlp"] == pytest.approx(1)


def test_twenty_runs_of_one_report(tmp_path: Path) -> None:
    runs = load(seed(4), cache=False)
    actual = build_matrix(runs, Look())
    assert len(actual.columns) == len(runs) == 20
