"""`nsys stats` in print and in CSV, against a plain reading of the same lines."""

import csv
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.load_runs import load
from capture.loaders import _delimited
from capture.loaders.nsys import stats
from capture.loaders.nsys.printed_reports import iter_tables
from capture.run import Run
from tests.conftest import FIXTURES, document, shared

TEXT = "samples/nsys/stats_text_llama7b_jetson.txt"
CSV = ("nsys/kern_sum.csv", "samples/nsys/summary_cuda_gpu_kern_sum.csv")


def rows(run: Run, **equal: str) -> list[dict[str, Any]]:
    return run.events.filter(pl.col(c) == v for c, v in equal.items()).to_dicts()


def row(run: Run, name: str) -> dict[str, Any]:
    (found,) = rows(run, name=name)
    return found


@pytest.mark.parametrize("name", CSV)
def test_csv_equals_the_csv_module(name: str) -> None:
    path = document(name)
    (run,) = load(path)
    with path.open(newline="") as f:
        printed = list(csv.DictReader(f))
    assert run.events.height == len(printed) > 2
    assert run.events["dur"].sum() == sum(int(p["Total Time (ns)"]) for p in printed)
    for got, p in zip(run.events.iter_rows(named=True), printed, strict=True):
        assert got["name"] == p["Name"]
        assert (got["dur"], got["count"]) == (int(p["Total Time (ns)"]), int(p["Instances"]))
        assert (got["min"], got["max"]) == (int(p["Min (ns)"]), int(p["Max (ns)"]))
        assert abs(got["std"] - float(p["StdDev (ns)"])) <= 0.5
        assert abs(got["p50"] - float(p["Med (ns)"])) <= 0.5
    assert set(run.events["lens"].cast(pl.String)) == {"gpu"}


def test_text_sample_keeps_every_section() -> None:
    (run,) = load(shared(TEXT))
    printed = [line.split() for line in shared(TEXT).read_text().splitlines()]
    figures = [cells for cells in printed if len(cells) > 8 and cells[0].replace(".", "").isdigit()]
    assert run.log.read == len(figures) == 77
    assert run.log.dropped == 0
    kernels = [r for r in rows(run, kind="kernel") if not r["name"].startswith("[CUDA")]
    assert (len(kernels), sum(k["dur"] for k in kernels)) == (22, 13_484_128_512)
    attention = row(run, "batch_decode_paged_kv_kernel")
    assert (attention["count"], attention["dur"], attention["p50"]) == (10688, 732_110_848, 68_896)
    assert (attention["min"], attention["max"], attention["std"]) == (34_304, 105_120, 19_923)
    copy = row(run, "[CUDA memcpy Host-to-Device]")
    assert (copy["category"], copy["dur"], copy["bytes"]) == ("copy", 453_712_160, 3_790_785_000)
    assert {h["name"] for h in rows(run, lens="host")} >= {"ioctl", "cuLaunchKernel"}
    assert all(h["kind"] == "span" for h in rows(run, lens="host"))
    assert {t: f.height for t, f in run.tables.items()} == {
        "calls": 36,
        "cuda_api_sum": 15,
        "cuda_gpu_kern_sum": 22,
        "cuda_gpu_mem_time_sum": 2,
        "cuda_gpu_mem_size_sum": 2,
    }


def test_units_come_from_the_header() -> None:
    (run,) = load(FIXTURES / "nsys" / "stats.csv")
    kernel = row(run, 'void gemv<int, float>(T1 *, T2, "x")')
    assert (kernel["count"], kernel["dur"]) == (30, 3_000_500)
    assert (kernel["min"], kernel["max"], kernel["p50"], kernel["std"]) == (90_250, 120_125, 99_500, 4_500)
    copy = row(run, "[CUDA memcpy Host-to-Device]")
    assert (copy["dur"], copy["bytes"], copy["count"]) == (12_500, 4_096_000, 2)


def test_no_time_is_stated_twice() -> None:
    (run,) = load(FIXTURES / "nsys" / "stats.csv")
    assert sum(r["dur"] for r in rows(run, kind="kernel")) == 3_000_500 + 1_000_000 + 12_500
    assert run.tables["cuda_gpu_kern_gb_sum"].height == 2
    assert any(n.id == "table_only" for n in run.log.notices)
    assert run.name == "decode"


def test_nvtx_sums_are_spans_with_phases() -> None:
    (run,) = load(FIXTURES / "nsys" / "stats.csv")
    ranges = {r["name"]: (r["phase"], r["dur"], r["lens"], r["kind"]) for r in rows(run, lens="wall")}
    assert ranges == {
        "forward_pass": ("forward", 9_000_000, "wall", "span"),
        "backward": ("backward", 1_000_000, "wall", "span"),
    }


def test_old_names_and_cut_names() -> None:
    (run,) = load(FIXTURES / "nsys" / "old_stats.txt")
    cut = "void at::native::elementwise_kernel<128, 2, v…"
    assert (row(run, f"{cut} [1]")["dur"], row(run, f"{cut} [2]")["dur"]) == (600_000, 300_000)
    assert run.meta["names_cut"] == 2
    assert row(run, "vectorAdd(const float *, float *, int)")["max"] == 11_000
    assert row(run, "[CUDA memcpy HtoD]")["count"] == 4
    assert row(run, "cudaMalloc")["dur"] == 1_900_000
    assert set(run.tables) == {
        "cuda_api_sum",
        "cuda_gpu_kern_sum",
        "cuda_gpu_mem_time_sum",
        "cuda_gpu_mem_size_sum",
    }


def test_reports_of_2021_print_sizes_in_kib_and_rows_may_have_moved() -> None:
    (run,) = load(FIXTURES / "nsys" / "stats_2021.txt")
    moved = row(run, "vector_sub(const float *, int)")
    assert (moved["dur"], moved["count"], moved["min"], moved["max"]) == (
        66_399_104,
        15,
        4_391_821,
        4_462_860,
    )
    assert row(run, "vector_add(const float *, int)")["min"] == 4_469_005
    copy = row(run, "[CUDA Unified Memory memcpy HtoD]")
    assert (copy["count"], copy["dur"], copy["bytes"]) == (2304, 68_477_200, 393_216 * 1024)
    assert row(run, "cudaFree")["count"] == 4
    assert (run.log.read, run.log.dropped) == (7, 1)  # ` torn`


def test_traces_are_real_events() -> None:
    (run,) = load(FIXTURES / "nsys" / "traces.csv")
    kernel = row(run, "gemm<float, 4>(int)")
    assert (kernel["t"], kernel["dur"], kernel["track"]) == (1000, 250, "gpu1/stream7")
    copy = row(run, "[CUDA memcpy Host-to-Device]")
    assert (copy["category"], copy["bytes"], copy["track"]) == ("copy", 2000, "gpu1/stream13")
    assert row(run, "cudaLaunchKernel")["track"] == "pid41/tid42"
    layer = row(run, "layer_3")
    assert (layer["path"], layer["layer"], layer["phase"]) == ("forward_pass", 3, "forward")


def test_kernels_under_several_ranges_are_not_added_up(tmp_path: Path) -> None:
    header = (
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),"
    )
    lines = [header + "StdDev (ns),Kernel Name"]
    lines += [f":{r},PushPop,1,2,1,4,400,100,100,100,100,0,gemm" for r in ("step", "forward")]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(lines) + "\n")
    (run,) = load(path)
    assert [(r["kind"], r["path"], r["count"]) for r in run.events.to_dicts()] == [
        ("span", "step", 4),
        ("span", "forward", 4),
    ]
    path.write_text("\n".join(lines[:2]) + "\n")
    (run,) = load(path)
    assert [r["kind"] for r in run.events.to_dicts()] == ["kernel"]


def test_two_profiles_in_one_text_are_two_runs(tmp_path: Path) -> None:
    whole = (FIXTURES / "nsys" / "stats.csv").read_text()
    path = tmp_path / "x.txt"
    path.write_text(whole + whole.replace("decode.sqlite", r"C:\runs\prefill.sqlite"))
    runs = load(path)
    assert [r.name for r in runs] == ["decode", "prefill"]
    assert runs[0].events["dur"].sum() == runs[1].events["dur"].sum()


@pytest.mark.parametrize("file", ["kern_sum.csv", "old_stats.txt"])
def test_a_report_that_begins_anew_is_a_run_of_its_own(tmp_path: Path, file: str) -> None:
    whole = (FIXTURES / "nsys" / file).read_text()
    path = tmp_path / "x.txt"
    path.write_text(f"{whole}\n{whole.replace('5210000', '7210000').replace('600,000', '800,000')}")
    first, second = load(path)
    assert (first.name, second.name) == ("nsys stats, 1", "nsys stats, 2")
    assert second.events.height == first.events.height
    assert second.events["dur"].sum() - first.events["dur"].sum() in (2_000_000, 200_000)
    path.write_text(whole + "\n" + whole)
    assert len(load(path)) == 1  # the same printed twice is one report


def test_bad_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    good = "50.0,100,1,100.0,100.0,100,100,0.0,k"
    bad = [
        '50.0,100,1,100.0,100.0,100,100,0.0,"open',
        "1,2,3",
        "50.0,what,1,1,1,1,1,0,k2",
        "50.0,-5,1,1,1,1,1,0,k3",
    ]
    path = tmp_path / "x.csv"
    path.write_text("\n".join([head, good, *bad, good]) + "\n")
    (run,) = load(path)
    assert run.events["dur"].to_list() == [100, 100]
    assert (run.log.read, run.log.dropped) == (6, 4)


def test_other_encodings_delimiters_and_line_ends(tmp_path: Path) -> None:
    text = (FIXTURES / "nsys" / "traces.csv").read_text()
    (plain,) = load(FIXTURES / "nsys" / "traces.csv")
    for name, raw in {
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "utf16": text.encode("utf-16"),
    }.items():
        path = tmp_path / name
        path.write_bytes(raw)
        (run,) = load(path)
        assert run.events.equals(plain.events), name


def test_a_header_alone_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("Start (ns),Duration (ns),CorrId,Strm,Name\n")
    try:
        (run,) = load(path)
    except UnreadableError:
        return
    assert run.events.is_empty()


TRACE = "Start (ns),Duration (ns),CorrId,Device,Strm,Name"
TIME = st.one_of(
    st.integers(0, 10**13).map(str), st.sampled_from(["", "x", "1,000", "1.5", "2.5", " 7 ", "1e3", "-4"])
)
NAME = st.text("ab<,> \"'Time\t", max_size=6).map(lambda name: '"' + name.replace('"', '""') + '"')
ROW = st.tuples(TIME.map(lambda t: f'"{t}"' if "," in t else t), TIME.map(lambda t: f'"{t}"'), NAME)
LINE = st.one_of(
    *[ROW.map(lambda row: f"{row[0]},{row[1]},3,GPU (0),7,{row[2]}")] * 3,
    st.text('a1",', min_size=1, max_size=9),
)


@given(st.lists(LINE.filter(lambda line: line.strip() != ""), max_size=8))
@example(["5,6,3,GPU (0),7,k", '5,6,3,GPU (0),7,"a ""b"" Time"', "5,6,3", '5,"6', "Time,1"])
def test_a_trace_equals_a_plain_reading(lines: list[str]) -> None:
    log = Log()
    (table,) = iter_tables("\n".join(["noise", TRACE, *lines]).encode(), log)
    expected = [cells for line in lines if len(cells := plain_cells(line)) == 6]
    assert table.cells.rows() == [tuple(cells) for cells in expected]
    assert (log.read, log.dropped) == (len(lines), len(lines) - len(expected))
    assert table.read_text("name").to_list() == [cells[5].strip() for cells in expected]
    assert table.read_ns("start").to_list() == [plain_number(cells[0]) for cells in expected]


def plain_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return []


def plain_number(text: str) -> int | None:
    digits = text.strip().replace(",", "")
    return round(Decimal(digits)) if re.fullmatch(r"-?[0-9.]+(e[0-9]+)?", digits) else None


@given(st.text('ab\n\r\x01\0é "', max_size=30))
@example("")
@example("a\n\nb\n\n")
def test_lines_of_a_large_text_are_those_of_python(text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_delimited, "_LARGE_TEXT_BYTES", 0)
        lines = _delimited.split_lines(text.encode())
    expected = text.split("\n")
    assert lines.to_list() in (expected, expected[:-1] if not expected[-1] else expected)


CELL = st.sampled_from(["", "1", "-4", "1,000", " 7 ", "1.5", "k", "nan", "+3", "9" * 30, "1e3", "٣"])


@given(st.lists(CELL, min_size=1, max_size=4), st.integers(1, 60))
def test_a_column_of_few_words_is_that_of_every_cell(words: list[str], times: int) -> None:
    column = pl.Series("c", words * times, dtype=pl.String)
    assert_series_equal(stats._infer_column_type(column), stats._try_numbers(column))


def test_many_empty_lines_part_tables_as_one_does() -> None:
    first, second = (f'10.0,{ns},1,{ns},{ns},{ns},{ns},0,"k"\n' for ns in (5, 7))
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    for gap in ("\n", 1000 * "\n", "\n \n\n \n\n"):
        text = f"{head}{first}{gap}{head}{second}{gap}".encode()
        assert [table.read_text("total time").to_list() for table in iter_tables(text)] == [["5"], ["7"]]
