"""Nsight Compute CSV pages against figures that stand in the fixtures."""

import csv
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capture.import_log import Log
from capture.load_runs import load
from capture.loaders.ncu import _read_page
from tests.conftest import FIXTURES, shared

pytestmark = pytest.mark.usefixtures("splitter")

NCU = FIXTURES / "ncu"


def test_details_page_gives_a_row_per_launch() -> None:
    (run,) = load(NCU / "details.csv")
    rows = run.events.with_columns(pl.col("name", "track").cast(pl.String))
    assert rows.select("name", "dur", "track").rows() == [
        ("void gemv_kernel<float, 4>(const float *, float *)", 6_850, "gpu0/stream7"),
        ("softmax_kernel", 1_984, "gpu0/stream7"),
        ("softmax_kernel", 1_500_000, "gpu0/stream7"),
        ("untimed_kernel", None, "gpu0/stream13"),
    ]
    assert "t" not in run.events.columns
    assert [n.id for n in run.log.notices] == ["no_duration"]
    assert (run.log.read, run.log.dropped) == (8, 0)
    assert run.meta["compute"] == "9.0"


def test_every_metric_is_kept() -> None:
    (run,) = load(NCU / "details.csv")
    metrics = run.tables["ncu"]
    assert metrics.columns == ["id", "kernel", "metric", "unit", "value", "text"]
    assert metrics.filter(metric="Elapsed Cycles").row(0)[3:] == ("cycle", 12345.0, "12,345")
    assert metrics.filter(metric="Achieved Occupancy")["value"].to_list() == [None, 3.12]
    assert metrics.height == 7
    assert run.tables["launches"]["Grid Size"].to_list()[0] == "(896, 1, 1)"


def test_raw_page_has_its_units_in_the_second_row() -> None:
    (run,) = load(NCU / "raw.csv")
    assert run.events["dur"].to_list() == [12_500, 3_072]
    assert run.tables["ncu"].filter(metric="dram__bytes_read.sum").rows()[0][3:5] == ("Mbyte", 1.25)
    assert run.events["track"].cast(pl.String).to_list() == ["gpu1/stream7"] * 2
    assert run.log.read == 2


def test_what_is_printed_without_csv_gives_the_same_rows() -> None:
    (run,) = load(NCU / "printed.txt")
    rows = run.events.with_columns(pl.col("name", "track").cast(pl.String))
    assert rows.select("name", "dur", "track").rows() == [
        ("void gemv_kernel<float, 4>(const float *, float *)", 3_840_000, "gpu0/stream7"),
        ("softmax_kernel", 117_980, "gpu1/stream13"),
    ]
    metrics = run.tables["ncu"]
    assert dict(metrics.filter(id="0").select("metric", "value").rows()) == {
        "SM Frequency": 1.21,
        "Elapsed Cycles": 4_205_684,
        "Memory Throughput": 59.11,
        "Duration": 3.84,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 8_388_608,
        "dram__bytes_read.sum": 9.45,
        "dram__throughput.avg": None,
    }
    assert run.tables["launches"]["Grid Size"].to_list() == ["(32, 32, 1)", "(1, 1, 1)"]
    assert (run.log.read, run.log.dropped) == (2, 1)  # a row whose blanks are gone
    assert (run.meta["process"], run.meta["compute"]) == ("decode", "9.0")


@pytest.mark.parametrize(
    ("printed", "ns"), [("866,86", 866_860), ("23 982 976", 23_982_976_000), ("1,024", 1_024_000)]
)
def test_figures_of_other_languages_are_no_hundredfold(printed: str, ns: int, tmp_path: Path) -> None:
    text = (NCU / "printed.txt").read_text().replace("Duration  us  117.98", f"Duration  us  {printed}")
    path = tmp_path / "x.txt"
    path.write_text(text)
    (run,) = load(path, cache=False)
    assert run.events["dur"].to_list() == [3_840_000, ns]


RAW = '"ID","Process ID","Kernel Name"'


@pytest.mark.parametrize(
    ("header", "cells", "metrics"),
    [
        (RAW, '"0","9","gemm"', {}),
        (RAW + ',"line","launch","name"', '"0","9","gemm","5","6","7"', {"line": 5, "launch": 6, "name": 7}),
    ],
)
def test_columns_of_a_raw_page_may_be_none_or_be_called_as_ours(
    header: str, cells: str, metrics: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n{cells}\n")
    (run,) = load(path, cache=False)
    assert run.events["name"].to_list() == ["gemm"]
    table = run.tables["ncu"]
    assert dict(table.select("metric", "value").rows()) == metrics


def test_summary_page_states_aggregates() -> None:
    (run,) = load(NCU / "summary.csv")
    assert run.events.select("count", "dur", "min", "max").rows() == [(4, 9_000, 1_500, 3_000)]


def test_single_metric_captures_are_timed_too(tmp_path: Path) -> None:
    text = (NCU / "details.csv").read_text().replace('"Duration"', '"gpu__time_duration.sum"')
    path = tmp_path / "x.csv"
    path.write_text(text)
    (run,) = load(path)
    assert run.events["dur"].drop_nulls().to_list() == [6_850, 1_984, 1_500_000]


def test_of_several_durations_the_simplest_counts(tmp_path: Path) -> None:
    header = "ID,Process ID,Kernel Name,Metric Name,Metric Unit,Metric Value\n"
    rows = ("gpu__time_duration.max,us,9", "Duration,us,2", "gpu__time_duration.avg,us,8")
    path = tmp_path / "x.csv"
    path.write_text(header + "".join(f"0,1,k,{row}\n" for row in rows))
    (run,) = load(path)
    assert run.events["dur"].to_list() == [2_000]


def test_a_page_that_a_script_wrote_again_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ID,Process ID,Kernel Name,Metric Name,Metric Unit,Metric Value\n0,1,k,Duration,us,2\n\n")
    (run,) = load(path)
    assert run.events["dur"].to_list() == [2_000]
    assert run.log.dropped == 0


def test_rows_whose_cells_of_rules_were_left_out_are_read() -> None:
    (run,) = load(NCU / "details_without_rules.csv")
    assert run.events["dur"].to_list() == [23_420]
    assert (run.log.read, run.log.dropped) == (6, 0)
    assert run.tables["ncu"].select("metric", "unit", "text").rows() == [
        ("dram__bytes_read.sum", "Mbyte", "3.35"),
        ("flop_count_hp.sum", "", "n/a"),
        ("SM Frequency", "Ghz", "1.99"),
        ("Elapsed Cycles", "cycle", "46,970"),
        ("Duration", "us", "23.42"),
    ]


@pytest.mark.parametrize("name", ["details", "section_SpeedOfLight"])
def test_every_metric_of_a_real_page_is_read(name: str) -> None:
    path = shared(f"samples/ncu/{name}.csv")
    with path.open(newline="") as f:
        rows = [r for r in csv.DictReader(f) if r["Metric Name"]]
    (run,) = load(path)
    metrics = run.tables["ncu"].select("id", "metric", "unit", "text").rows()
    assert metrics == [(r["ID"], r["Metric Name"], r["Metric Unit"], r["Metric Value"]) for r in rows]
    assert (run.log.dropped, run.log.notices, run.events["dur"].to_list()) == (0, (), [23_420])


def test_a_row_that_ends_before_its_value_is_bad(tmp_path: Path) -> None:
    text = (NCU / "details_without_rules.csv").read_text()
    path = tmp_path / "x.csv"
    path.write_text(text.replace('"Ghz","1.99",', '"Ghz"'))
    (run,) = load(path)
    assert (run.log.read, run.log.dropped, run.tables["ncu"].height) == (6, 1, 4)


def test_bad_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text((NCU / "details.csv").read_text() + '"4","4711"\n"5","open\n')
    (run,) = load(path)
    assert (run.log.read, run.log.dropped) == (10, 2)


CELL = st.one_of(st.sampled_from(["Duration", "us", "1.5", "12,345", "", "0"]), st.text('ab,"1 ', max_size=4))
QUOTED = CELL.map(lambda cell: '"' + cell.replace('"', '""') + '"')
HEADER = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value","Rule Name"'
ROW = st.lists(QUOTED, min_size=5, max_size=8).map(",".join)
LINES = st.lists(st.one_of(ROW, ROW, st.text('"a,1=', min_size=1, max_size=6)), max_size=8)


@given(LINES)
@example(['"0","7","k","Duration","us","1.5"', '"0","7","k","Dur', '"","7","k, ""l""","x","","12,345",""'])
def test_a_page_equals_a_plain_reading(lines: list[str]) -> None:
    log = Log()
    page = _read_page("\n".join(["noise", HEADER, *lines]).encode(), log)
    rows = [plain_cells(line) for line in lines if line.startswith('"')]
    fitting = [[*cells, *[""] * (7 - len(cells))] for cells in rows if 6 <= len(cells) <= 7]
    stated = [cells for cells in fitting if any(cells[:5])]  # a row that names nothing is that of the units
    named = [(c[0] or f"{c[1]} {c[2]}", c[3], c[4], c[5], "", "") for c in stated if c[3]]
    assert page.metrics.rows() == named
    assert page.launches["launch"].to_list() == list(dict.fromkeys(c[0] or f"{c[1]} {c[2]}" for c in stated))
    assert (log.read - len(stated), log.dropped) == (len(rows) - len(fitting),) * 2


def plain_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return []


@pytest.mark.parametrize("below", ["", "\n", '\n"","","","","","us"\n', "\nnoise\n"])
def test_a_page_without_a_launch_holds_none(below: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(HEADER.removesuffix(',"Rule Name"') + below)
    (run,) = load(path, cache=False)
    assert run.events.is_empty()
    assert [run.tables[name].height for name in ("ncu", "launches")] == [0, 0]


def test_several_invocations_are_a_total_of_what_was_printed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    header = "Process ID,Kernel Name,Invocations,Metric Name,Metric Unit,Average,Minimum,Maximum\n"
    rows = (
        '9,a,3,Duration,us,"1,000.5",1,2',
        "9,b,,Duration,ms,2,,",
        "9,c,0,Duration,us,n/a,1,1",
        "9,d,1,x,us,1,,",
    )
    path.write_text(header + "\n".join(rows))
    (run,) = load(path, cache=False)
    timed = run.events.select("dur", "count", "min", "max").rows()
    assert timed[:2] == [(3_001_500, 3, 1_000, 2_000), (2_000_000, 1, None, None)]
    assert timed[2:] == [(None, 1, None, None)] * 2
