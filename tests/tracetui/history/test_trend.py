"""`tracetui trend`: what changed, since when, and by what; what fails a build."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import decode
from tracetui.history import row_trends
from tracetui.history.change_points import find_change_points, select_discoveries
from tracetui.history.part import COLUMNS, build_part
from tracetui.history.row_trends import RowSeries
from tracetui.history.run_log import RunLog

Factor = Callable[[int], dict[str, float]]  # run → row → factor; "" for all rows
RUNS = 40


ROWS = ("attention", "ffn_down", "rmsnorm", *(f"more{i}" for i in range(5)))


def with_more_rows(part: pl.DataFrame) -> pl.DataFrame:
    """The part with five more rows like the largest: a machine is known by several."""
    attention = part.filter((pl.col("name") == "attention") & (pl.col("kind") == "row"))
    return pl.concat([part, *(attention.with_columns(name=pl.lit(name)) for name in ROWS[3:])])


def write_log(
    folder: Path,
    factor: Factor,
    facts: Callable[[int], dict[str, Any]] | None = None,
    counters: Factor | None = None,
) -> Path:
    """A log of runs that differ by noise, by these factors, columns and counters of the machine."""
    rng, log, part = (
        np.random.default_rng(1),
        RunLog(str(folder / "log")),
        with_more_rows(build_part(decode())),
    )
    times = [c for c in part.columns if c.endswith("_ns") and c != "total_ns"]
    for i in range(RUNS):
        common, rows = float(np.exp(rng.normal(0, 0.03))), factor(i)
        noise = {name: float(np.exp(rng.normal(0, 0.01))) for name in ROWS}
        by_row = {
            name: common * rows.get("", 1) * rows.get(name, 1) * noise.get(name, 1)
            for name in part["name"].unique()
        }
        scale = pl.col("name").replace_strict(by_row, return_dtype=pl.Float64)
        columns: dict[str, Any] = {
            "run": f"{i:04}", "started": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=i),
            "commit": f"{i // 2:03}" + "0" * 37, "commit_time": datetime(2026, 1, 1, i // 2, tzinfo=UTC),
        } | (facts(i) if facts else {})  # fmt: skip
        constants = [pl.lit(value).cast(COLUMNS[c]).alias(c) for c, value in columns.items()]
        run = part.with_columns(*(pl.col(c) * scale for c in times), *constants)
        machine = run.filter(pl.col("kind") == "machine").head(1)
        lines = [
            machine.with_columns(name=pl.lit(name), value=pl.lit(value))
            for name, value in (counters(i) if counters else {}).items()
        ]
        log.add(pl.concat([run, *lines]))
    return folder / "log"


def trend(log: Path, *words: str) -> list[dict[str, Any]]:
    done = tracetui("trend", *words, "--log", log, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return [row for row in rows if row["p"] is not None]


def test_row_that_changed_is_named_with_its_commit(tmp_path: Path) -> None:
    log = write_log(tmp_path, lambda i: {"ffn_down": 1.2} if i >= 24 else {})
    rows = trend(log)
    first = rows[0]
    assert [row["row"] for row in rows if row["what"] == "code" and row["row"] != "step"] == ["ffn_down"]
    assert (first["row"], first["phase"], first["what"]) == ("ffn_down", "decode", "code")
    assert first["run_after"].startswith("20260102T000000")
    assert first["low_pct"] < first["change_pct"] < first["high_pct"]
    assert first["change_pct"] == pytest.approx(20, abs=1)
    assert (first["runs_before"], first["runs_after"]) == (24, 16)
    text = tracetui("trend", "--log", log).stdout
    assert text.startswith("ffn_down in decode +") and "(its own change)" in text
    for format in ("md", "html", "csv"):
        assert "ffn_down" in tracetui("trend", "--log", log, "--format", format).stdout


def make_series(seed: int, runs: int, at: int, change: float, load: float = 0.0) -> RowSeries:
    """Five quantiles of eight rows: the noise of each, of its run, and of a load that slows each its own way.

    The load is felt in the median and above, and it comes and goes with long tails; row 2 changes at `at`.
    """
    rng = np.random.default_rng(seed)
    felt = load * rng.standard_t(2, runs) * np.linspace(0.2, 2, 8)[:, None]
    values = rng.normal(0, 0.03, (1, 1, runs)) + rng.normal(0, 0.01, (1, 8, runs))
    values = values + rng.normal(0, 0.003, (5, 8, runs))
    values = values + np.array([1, 0.1, 0.5, 1.2, 2])[:, None, None] * felt
    values[:, 2, at:] += np.log1p(change)
    labels = [str(i) for i in range(runs)]
    facts = dict.fromkeys(
        ("versions", "options", "lens", "device", "host"), pl.Series([None] * runs, dtype=pl.String)
    )
    unknown = pl.Series([None] * runs, dtype=pl.Float64)
    frame = pl.DataFrame({"label": labels, "file": labels, "group": range(runs), "context": unknown, **facts})
    return RowSeries([f"r{i}" for i in range(8)], values[0], values, np.full(8, 1 / 8), frame)


@pytest.mark.parametrize(("runs", "at"), [(24, 12), (40, 24), (80, 40)])
def test_intervals_of_sizes_hold_the_planted_one(runs: int, at: int) -> None:
    changes = [row_trends._find_row_changes(make_series(seed, runs, at, 0.2))[0][2] for seed in range(40)]
    near = [change for row in changes for change in row if abs(change.at - at) <= 1]
    covered = sum(abs(change.size - np.log(1.2)) < 1.96 * change.error for change in near)
    assert len(near) >= 38 and covered >= 0.85 * len(near)  # of 95 %: fewer in one of 100 tries


def test_change_below_the_noise_of_a_load_is_found_by_what_the_load_does_to_all_rows() -> None:
    """The medians of the row vary by more than the change; what does not follow the load tells."""
    series = [make_series(seed, 60, 30, 0.1, load=0.1) for seed in range(20)]
    spread = np.median(
        [np.std(each.level[2, :30] - np.median(each.level[:, :30], axis=0)) for each in series]
    )
    found = [
        [abs(change.at - 30) <= 1 for change in row_trends._find_row_changes(each)[0][2]] for each in series
    ]
    assert spread > 0.03 and sum(map(any, found)) >= 18


@pytest.mark.parametrize("differing", [0, 60])
def test_row_that_grows_with_the_context_is_judged_at_equal_ones(differing: int) -> None:
    """Its time follows contexts of 80 to 220 tokens far more than the change; known ones tell how far."""
    found = alarms = 0
    for seed in range(20):
        series, contexts = make_series(seed, 60, 30, 0.1), np.random.default_rng(seed).uniform(80, 220, 60)
        quantiles = series.quantiles.copy()
        quantiles[:, 2] += 0.5 * np.log(contexts)
        known = np.where(np.arange(60) < differing, contexts, 150.0)
        frame = series.runs.with_columns(context=pl.Series(known))
        changes = select_discoveries(
            row_trends._find_row_changes(replace(series, quantiles=quantiles, runs=frame))[0]
        )
        found += any(abs(change.at - 30) <= 1 for change in changes[2])
        alarms += any(changes[row] for row in range(8) if row != 2)
    assert found >= 18 if differing else found < 18
    assert alarms <= 2


def test_equal_runs_under_a_load_with_long_tails_have_few_changes() -> None:
    series = [make_series(seed, 60, 30, 0.0, load=0.1) for seed in range(50)]
    changes = [select_discoveries(row_trends._find_row_changes(each)[0]) for each in series]
    assert sum(any(rows) for rows in changes) <= 2


def test_two_rows_that_change_at_once_do_not_hide_each_other() -> None:
    strays = 0
    for seed in range(20):  # each in another order of the rows: the chance by ranks of clear changes is equal
        series = make_series(seed, 60, 30, 0.2)
        values = series.quantiles.copy()
        values[:, 5, 30:] += np.log(0.8)
        order = np.random.default_rng(seed).permutation(8)
        values = values[:, order]
        series = replace(series, level=values[0], quantiles=values)
        changes = select_discoveries(row_trends._find_row_changes(series)[0])
        at = [int(np.flatnonzero(order == row)[0]) for row in (2, 5)]
        sizes = [[change.size for change in changes[row] if abs(change.at - 30) <= 1] for row in at]
        strays += sum(bool(changes[row]) for row in range(8) if row not in at)
        assert sizes[0] == pytest.approx([np.log(1.2)], abs=0.03)
        assert sizes[1] == pytest.approx([np.log(0.8)], abs=0.03)
    assert strays <= 2


def find_own(series: RowSeries, factors: dict[int, float], at: int) -> set[int]:
    """The rows classed as code once each of some rows is multiplied by a factor from a run on."""
    values = series.quantiles.copy()
    for row, factor in factors.items():
        values[:, row, at:] += np.log(factor)
    series = replace(series, level=values[0], quantiles=values)
    changes, moves = row_trends._find_row_changes(series)
    no_counters = np.full((1, values.shape[-1]), np.nan)
    words = row_trends.classify_rows(select_discoveries(changes), series, moves, no_counters)
    return {row for row, of_row in enumerate(words) if "code" in of_row}


def test_load_that_moves_rows_apart_is_no_change_of_code() -> None:
    """A busy cache slows small rows by a few per cent more than others: evident, and nobody's code."""
    found, alarms, kept = 0, 0, 0
    for seed in range(30):
        series = make_series(seed, 60, 30, 0.0)
        apart = dict(enumerate(np.exp(np.random.default_rng(seed).normal(0, 0.04, 8)).tolist()))
        changed = find_own(series, apart, 30)
        alarms += bool(changed)
        kept += 2 in find_own(series, apart | {2: 1.4}, 30)
        found += 2 in find_own(series, {2: 1.1}, 30)
    assert alarms <= 6 and kept >= 27 and found >= 27  # 2.4 expected of eight rows: Student's t beyond 3.5


def test_change_three_runs_after_a_load_began_is_found_beside_it() -> None:
    """Each row has a level of its own under the load, and more noise."""
    hits = alarms = 0
    for seed in range(20):
        rng, is_loaded = np.random.default_rng(seed), np.arange(60) >= 30
        series = make_series(seed, 60, 30, 0.0)
        values = series.quantiles + is_loaded * rng.uniform(0.3, 1.5, (8, 1))
        values += is_loaded * rng.normal(0, 0.01, values.shape)
        loads = tuple(find_change_points(is_loaded.astype(np.float64)))
        series = replace(series, level=values[0], quantiles=values, is_loaded=is_loaded, loads=loads)
        alarms += bool(find_own(series, {}, 33))
        hits += find_own(series, {2: 1.2}, 33) == {2}
    assert hits >= 18 and alarms <= 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_of_few_rows_the_one_whose_time_changed_is_named(rows: int) -> None:
    """Contrasts of two rows mirror each other: the times say which of them moved."""
    found = []
    for seed in range(20):
        series = make_series(seed, 60, 30, 0.0)
        values = series.quantiles[:, :rows] - series.quantiles[:1].mean(axis=1)  # of an even machine
        few = replace(
            series, names=series.names[:rows], level=values[0], quantiles=values, share=series.share[:rows]
        )
        found.append(find_own(few, {0: 1.25}, 30))
    assert found.count({0}) >= 18


@pytest.mark.parametrize("leaves_out", [False, True])
@pytest.mark.parametrize(("rows", "others", "runs"), [(1, 1, 20), (2, 1, 20), (9, 4, 20), (30, 24, 90)])
def test_contrasts_are_those_of_least_squares(rows: int, others: int, runs: int, leaves_out: bool) -> None:
    """Of whitened series, one row after the other: its own level, and that of all."""
    rng = np.random.default_rng(rows)
    offset = rng.normal(size=(5, rows, runs)) + rng.normal(size=(1, rows, runs)) + rng.normal(size=runs)
    noise = row_trends.estimate_noise(offset.reshape(-1, runs))
    noise = noise if leaves_out else replace(noise, step_weight=0.0)
    is_other = np.arange(rows) % (rows // others) == 0
    is_other[np.flatnonzero(is_other)[others:]] = False
    contrast = row_trends.compute_contrasts(offset, noise, is_other)
    row = np.tile(np.arange(rows), 5)
    for i in range(rows):
        used = np.flatnonzero(is_other[row] | (row == i))
        levels = [row[used] == i, np.ones(len(used))][: 1 + (row[used] != i).any()]
        fits = []
        for step in noise.steps[used].T if leaves_out and len(levels) > 1 else np.zeros((1, len(used))):
            correlation = noise.correlation[np.ix_(used, used)] - noise.step_weight * np.outer(step, step)
            covariance = correlation * noise.sd[used][:, None] * noise.sd[used]
            whiten = np.linalg.inv(np.linalg.cholesky(covariance))
            values = whiten @ offset.reshape(-1, runs)[used]
            fits.append(np.linalg.lstsq(whiten @ np.column_stack(levels), values, rcond=None)[0][0])
        clearness = [abs(stats.ttest_ind(fits[p - 1][:p], fits[p - 1][p:])[0]) for p in range(2, len(fits))]
        best = 1 + int(np.argmax(clearness)) if clearness else 0
        np.testing.assert_allclose(contrast[i], fits[best], atol=1e-9)


def test_change_in_few_runs_is_not_spread_over_its_neighbours() -> None:
    """Weights that fit each difference of 19 make also that of the change small."""
    moves: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(20):
        series = make_series(seed, 20, 10, 0.2, load=0.1)
        offset = series.quantiles - np.median(series.quantiles, axis=-1, keepdims=True)
        noise = row_trends.estimate_noise(offset.reshape(-1, 20))
        for leaves_out, used in ((True, noise), (False, replace(noise, step_weight=0.0))):
            contrast = row_trends.compute_contrasts(offset, used, np.ones(8, dtype=bool))
            moves[leaves_out].append(contrast[2, 10] - contrast[2, 9])
    assert np.median(moves[True]) > 0.95 * np.log(1.2) and np.median(moves[False]) < 0.9 * np.log(1.2)


@pytest.mark.parametrize("shape", [(20, 7), (7, 20)])
def test_runs_that_weights_spend_are_counted_by_eigenvalues(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).normal(size=shape)
    shrunk = 0.3 * np.eye(shape[0]) + 0.7 * values @ values.T / shape[1]
    spent = (1 - 0.3 / np.linalg.eigvalsh(shrunk)).sum()
    assert row_trends._count_spent(values, 0.3, 0.7) == pytest.approx(spent, abs=1e-9)


def test_runs_without_any_noise_have_contrasts() -> None:
    noise = row_trends.estimate_noise(np.ones((10, 20)))
    contrast = row_trends.compute_contrasts(np.ones((5, 2, 20)), noise, np.array([True, True]))
    assert np.abs(contrast).max() < 1e-9 and noise.widening == 1


def test_a_log_of_one_run_has_no_change(tmp_path: Path) -> None:
    RunLog(str(tmp_path / "log")).add(build_part(decode()))
    done = tracetui("trend", "--log", tmp_path / "log")
    assert done.returncode == 0 and "no row changed in 1 runs" in done.stdout and not done.stderr


def test_equal_runs_have_no_change(tmp_path: Path) -> None:
    log = write_log(tmp_path, lambda i: {})
    assert trend(log) == []
    assert tracetui("trend", "--log", log).stdout.startswith("no row changed in 40 runs")


def test_row_that_changed_within_an_equal_step_is_named(tmp_path: Path) -> None:
    log = write_log(tmp_path, lambda i: {"ffn_down": 1.2, "attention": 0.8} if i >= 24 else {})
    changes = {row["row"]: row["change_pct"] for row in trend(log) if row["what"] == "code"}
    assert changes["ffn_down"] > 0 > changes["attention"]


def test_machine_that_slows_all_rows_is_no_change_of_code(tmp_path: Path) -> None:
    log = write_log(tmp_path, lambda i: {"": 1.3} if i >= 20 else {})
    assert {row["what"] for row in trend(log)} <= {"all rows", "machine"}
    other = write_log(
        tmp_path / "b", lambda i: {"": 1.3} if i >= 20 else {}, lambda i: {"host": "ab"[i >= 20]}
    )
    rows = trend(other)
    assert rows and {row["what"] for row in rows} == {"machine"}


def test_load_of_other_programs_is_the_machine_and_hides_no_change_before_it(tmp_path: Path) -> None:
    """From run 20 on they slow one row greatly; the code of another changed at run 8."""
    rng = np.random.default_rng(2)

    def factor(i: int) -> dict[str, float]:
        slowed = 2.0 * float(np.exp(rng.normal(0, 0.2))) if i >= 20 else 1.0
        return {"ffn_down": 1.1 if i >= 8 else 1.0, "more1": slowed}

    def count(i: int) -> dict[str, float]:
        usage = (5.0, 180.0, 92.0) if i < 20 else (80.0, 90.0, 100.0)
        return dict(zip(row_trends.LOAD_COUNTERS, usage, strict=True))

    rows = trend(write_log(tmp_path, factor, counters=count), "--by", "time")
    of_code = [(row["row"], row["run_after"][:13]) for row in rows if row["what"] == "code"]
    assert {row for row, _ in of_code} - {"step"} == {"ffn_down"}
    assert {at for _, at in of_code} == {"20260101T0800"}
    assert "more1" in {row["row"] for row in rows if row["what"] == "machine"}


def test_load_that_comes_and_goes_hides_no_change(tmp_path: Path) -> None:
    """Every third run is under load, which moves one row most; another changed at run 20."""
    rng = np.random.default_rng(3)

    def factor(i: int) -> dict[str, float]:
        slowed = float(np.exp(rng.normal(0.7, 0.3))) if i % 3 == 0 else 1.0
        return {"ffn_down": 1.08 if i >= 20 else 1.0, "more1": slowed, "": slowed}

    def count(i: int) -> dict[str, float]:
        usage = (80.0, 90.0, 100.0) if i % 3 == 0 else (5.0, 180.0, 92.0)
        return dict(zip(row_trends.LOAD_COUNTERS, usage, strict=True))

    rows = trend(write_log(tmp_path, factor, counters=count), "--by", "time")
    of_code = {(row["row"], row["run_after"][:13]) for row in rows if row["what"] == "code"}
    assert of_code == {("ffn_down", "20260101T2000")}


def test_other_versions_are_the_method(tmp_path: Path) -> None:
    log = write_log(
        tmp_path,
        lambda i: {"ffn_down": 1.3} if i >= 20 else {},
        lambda i: {"versions": "torch 2.13" if i < 20 else "torch 2.14"},
    )
    assert {row["what"] for row in trend(log)} == {"method"}


def test_build_fails_on_a_new_change_only(tmp_path: Path) -> None:
    new = write_log(tmp_path / "new", lambda i: {"ffn_down": 1.2} if i >= 34 else {})
    failed = tracetui("trend", "--log", new, "--fail-on", "new")
    assert failed.returncode == 1 and "slower: ffn_down +" in failed.stderr
    old = write_log(tmp_path / "old", lambda i: {"ffn_down": 1.2} if i >= 20 else {})
    assert tracetui("trend", "--log", old, "--fail-on", "new").returncode == 0
    faster = write_log(tmp_path / "faster", lambda i: {"ffn_down": 0.8} if i >= 34 else {})
    assert tracetui("trend", "--log", faster, "--fail-on", "new").returncode == 0


def test_runs_in_other_orders(tmp_path: Path) -> None:
    log = write_log(
        tmp_path, lambda i: {"ffn_down": 1.3 if i % 2 else 1}, lambda i: {"versions": f"torch 2.{9 + i % 2}"}
    )
    rows = trend(log, "--by", "version")
    assert rows[0]["since"] == "torch 2.10"  # after 2.9
    assert trend(log, "--by", "time") == []
    assert trend(log, "attention", "--by", "version") == []


def test_other_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    log = write_log(tmp_path, lambda i: {}, lambda i: {"model": "ab"[i >= 30]})
    text = tracetui("trend", "--log", log).stdout
    assert "10 runs of model b" in text and "30 other runs are left out" in text


def test_empty_log_is_a_question_of_usage(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    done = tracetui("trend", "--log", tmp_path / "log")
    assert done.returncode == 2 and "no run to show" in done.stderr
