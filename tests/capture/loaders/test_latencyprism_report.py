"""LatencyPrism's comparison reports against what they print."""

import csv
import re
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.latencyprism.comparison_report import KEY_COLUMNS, METRIC_COLUMNS
from capture.run import Run
from tests.capture.loaders._common import same
from tests.conftest import FIXTURES, document

PRISM = FIXTURES / "latencyprism"
CROSS = "samples/latencyprism/cross_comparison.csv"
NORMAL, ABNORMAL = "normal_pid_805580", "abnormal_pid_842126"


@pytest.fixture(scope="module", params=["latencyprism/cross.md", "seed 3"])
def printed(request: pytest.FixtureRequest) -> str:
    """A report of two runs that were cut into cycles at different anchors."""
    return document(request.param).read_text()


@pytest.fixture(scope="module")
def sides(printed: str, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    path = tmp_path_factory.mktemp("latencyprism") / "cross.md"
    path.write_text(printed)
    return load(path)


def cells(printed: str, label: str) -> list[str]:
    """The cells of the first table row that begins with a label."""
    line = next(line for line in printed.splitlines() if line.startswith(f"| {label}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def nanoseconds(cell: str) -> int:
    return round(float(cell.replace(",", "")) * 1000)


def counters(run: Run) -> dict[tuple[str, str], tuple[float, str]]:
    rows = run.events.filter(pl.col("kind") == "counter")
    return {
        (str(f), str(n)): (v, str(u)) for f, n, v, u in rows.select("path", "name", "value", "unit").rows()
    }


def test_both_sides_are_runs(sides: list[Run], printed: str) -> None:
    normal, abnormal = sides
    assert [r.name for r in sides] == [NORMAL, ABNORMAL]
    assert [r.meta["pid"] for r in sides] == [805580, 842126]
    assert [r.meta["cycles"] for r in sides] == [int(c) for c in cells(printed, "Total Cycles")[1:3]]
    means = cells(printed, "Avg Cycle Time (us)")[1:3]
    assert [r.meta["mean_cycle_ns"] for r in sides] == [nanoseconds(c) for c in means]
    assert normal.log.dropped == abnormal.log.dropped == 0


def test_every_printed_cell_is_kept(sides: list[Run], printed: str) -> None:
    lines = [line for line in printed.splitlines() if line.startswith("| ") and line.count("|") == 18]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines[1:]]
    kept = sides[0].tables["comparison"]
    assert kept.height == len(rows) > 20
    assert kept.columns == [*KEY_COLUMNS, *METRIC_COLUMNS]
    for texts, row in zip(rows, kept.iter_rows(), strict=True):
        assert tuple(texts[:3]) == row[:3]
        figures = [None if c == "nan" else float(c.replace(",", "")) for c in texts[3:]]
        assert figures == list(row[3:])
    assert sides[0].meta["headings"]["mu_b"] == "μ_abnormal_pid_842126"
    assert sides[1].tables["comparison"].equals(kept)


def test_cycles_are_ranked_not_paired(sides: list[Run]) -> None:
    ranks = sides[0].tables["cycles"]
    assert ranks.columns == ["rank", "dur_a_ns", "dur_b_ns"]
    assert ranks.height == sides[1].meta["cycles"]
    assert ranks["dur_a_ns"].drop_nulls().len() == sides[0].meta["cycles"]
    assert ranks.row(0) == (1, 645_234_250, 278_431_250)
    step = sides[0].events.filter(pl.col("kind") == "step")
    assert step.select("count", "dur", "min", "max").row(0) == (
        sides[0].meta["cycles"],
        ranks["dur_a_ns"].sum(),
        ranks["dur_a_ns"].min(),
        645_234_250,
    )


def test_the_runs_are_not_comparable(sides: list[Run]) -> None:
    for run in sides:
        assert run.meta["comparable"]["ok"] is False
        counts = " cycles against ".join(str(side.meta["cycles"]) for side in sides)
        assert counts in run.meta["comparable"]["reasons"][0]
        assert "anchor" in run.meta["comparable"]["reasons"][1]
        assert "not_comparable" in {n.id for n in run.log.notices}


def test_metrics_stand_in_their_real_units(sides: list[Run]) -> None:
    normal, abnormal = (counters(r) for r in sides)
    assert normal[("oncpu", "cpu_frequency")] == (85.70, "%")
    assert abnormal[("oncpu", "cpu_frequency")] == (22.50, "%")
    gemm = "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"
    assert normal[(gemm, "gpu_frequency")] == (1186.875, "MHz")
    used = [unit for (_, metric), (_, unit) in normal.items() if metric == "gpu_mem_used"]
    assert set(used) == {"%"}
    copied = [unit for (_, metric), (_, unit) in normal.items() if metric == "gpu_pcie_transmit"]
    assert set(copied) == {"B/s"}


def test_times_are_derived_and_labelled(sides: list[Run]) -> None:
    rows = sides[0].events.filter(pl.col("kind") == "kernel")
    timed = sides[0].tables["comparison"].unique(["function", "device"])
    assert rows.height == timed.height
    oncpu = rows.filter(pl.col("name") == "oncpu").select("dur", "lens", "track").row(0)
    assert oncpu == (round(162.78 / 100 * sides[0].meta["mean_cycle_ns"]), "host", "Host")
    assert "time within one cycle" in sides[0].meta["guess"][0]
    assert set(rows["lens"].cast(pl.String)) == {"gpu", "host", "wait", "wall"}


def test_csv_and_markdown_agree(sides: list[Run], printed: str) -> None:
    other = load(document(CROSS) if "Processed" in printed[:200] else PRISM / "cross.csv")
    table = other[0].tables["comparison"]
    assert table.columns == sides[0].tables["comparison"].columns
    assert (
        table.select(KEY_COLUMNS)
        .sort(KEY_COLUMNS)
        .equals(sides[0].tables["comparison"].select(KEY_COLUMNS).sort(KEY_COLUMNS))
    )
    counts = [r.events.filter(pl.col("kind") == "counter").height for r in other]
    assert counts == [r.events.filter(pl.col("kind") == "counter").height for r in sides]


@pytest.mark.parametrize("name", ["latencyprism/cross.csv", CROSS])
def test_csv_rows_are_kept_to_the_last_digit(name: str) -> None:
    path = document(name)
    normal, abnormal = load(path)
    with path.open(encoding="utf-8", newline="") as f:
        stated = list(csv.reader(f))[1:]
    assert normal.tables["comparison"].height == len(stated) > 20
    for texts, row in zip(stated, normal.tables["comparison"].iter_rows(), strict=True):
        assert tuple(texts[:3]) == row[:3]
        assert [float(c) if c not in ("", "nan") else None for c in texts[3:]] == list(row[3:])
    assert (normal.name, abnormal.meta["pid"]) == ("normal_pid_805580", 842126)
    absent = [c for c in stated if float(c[5]) == 0]
    assert abnormal.events.height == len(stated) - len(absent)
    assert "no_cycles" in {n.id for n in normal.log.notices}


def test_the_strict_form() -> None:
    normal, abnormal = load(PRISM / "strict.md")
    assert [normal.name, abnormal.name] == ["normal", "abnormal"]
    assert normal.meta["pid"] == abnormal.meta["pid"] == 77
    assert (normal.meta["report"], normal.meta["cycles"], abnormal.meta["cycles"]) == ("strict", 2, 1)
    assert "comparable" not in normal.meta and "truncated" not in normal.meta
    assert normal.events.filter(pl.col("kind") == "mark")["name"].to_list() == ["It got slower."]
    assert normal.tables["comparison"]["function"][-1] == "a|b"
    assert normal.log.repaired == 1


def test_zeros_that_stand_for_absence_are_no_values() -> None:
    normal, abnormal = (counters(r) for r in load(PRISM / "strict.md"))
    assert normal[("tiny", "gpu_usage")] == (7.0, "%")
    assert ("tiny", "gpu_usage") not in abnormal
    assert abnormal[("tiny", "gpu_link_receive")] == (0.0, "B/s")
    assert abnormal[("gemm<a, b>", "gpu_link_receive")] == (0.0, "B/s")
    assert ("a|b", "disk_usage") not in abnormal


def test_the_exploratory_form_holds_several_pairs() -> None:
    runs = load(PRISM / "exploratory.md")
    assert [r.name for r in runs] == ["r_pid_1", "s_pid_2", "r_pid_1", "t_pid_3"]
    assert [r.meta["cycles"] for r in runs] == [2, 12, 2, 1]
    assert [r.meta["pid"] for r in runs] == [1, 2, 1, 3]
    assert runs[0].meta["comparable"]["ok"] is False and "comparable" not in runs[2].meta
    assert runs[0].tables["overview of roles"].rows() == [("`r_pid_1`", "2"), ("`s_pid_2`", "12")]


def test_csv_names_with_commas_and_quotes() -> None:
    normal, _ = load(PRISM / "strict.csv")
    assert normal.tables["comparison"]["function"].to_list() == ['void k<"x", 2>(int)'] * 2 + ["oncpu"]
    assert normal.tables["comparison"]["p_mu"].to_list() == [0.0, None, 1.0]
    assert (normal.log.read, normal.log.dropped) == (4, 1)


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    other = tmp_path / "report.md"
    other.write_bytes(b"\xef\xbb\xbf" + (PRISM / "strict.md").read_bytes().replace(b"\n", b"\r\n"))
    assert same(load(other), load(PRISM / "strict.md"))


def test_a_report_without_its_legend_is_cut(tmp_path: Path) -> None:
    cut = tmp_path / "cut.md"
    cut.write_text(re.split(r"\| oncpu", (PRISM / "strict.md").read_text())[0] + "| oncpu | cpu_freq")
    normal, _ = load(cut)
    assert normal.meta["truncated"] is True
    assert normal.tables["comparison"].height == 5
    assert normal.log.dropped == 1
