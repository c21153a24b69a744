"""Many runs in one matrix, and how its rows scale."""

from pathlib import Path

import polars as pl
import pytest

from capture.importlog import Log
from capture.open import load
from capture.run import build
from tests.conftest import seed
from tracetui.analysis.compare.matrix import axis, matrix, scaling
from tracetui.look import Look


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
