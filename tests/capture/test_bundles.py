"""Several files that are one recording: nsys exports as folders of Parquet, CSVs of a job of rocprofv3."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.errors import UnreadableError
from capture.load_runs import expand_inputs, group_inputs, load, load_all
from capture.run import Run
from tests.conftest import FIXTURES

NSYS = FIXTURES / "nsys"
ROCPROF = FIXTURES / "rocprof"
TRACES = ("kernel_trace.csv", "memory_copy_trace.csv")


def parquetdir(export: Path, folder: Path) -> Path:
    """Write every table of a SQLite export as a Parquet file, as `nsys export --type parquetdir` does."""
    folder.mkdir()
    with closing(sqlite3.connect(export)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{name}"')
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            columns = {n: [row[i] for row in rows] for i, n in enumerate(names)}
            pl.DataFrame(columns, strict=False).write_parquet(folder / f"{name}.parquet")
    return folder


@contextmanager
def one(paths: list[Path]) -> Iterator[Run]:
    (run,) = load_all(paths, cache=False)
    yield run


@pytest.mark.parametrize("export", ["two_processes.sqlite", "no_graphs.sqlite"])
def test_both_forms_of_an_export_give_the_same_rows(export: str, tmp_path: Path) -> None:
    folder = parquetdir(NSYS / export, tmp_path / "run.parquetdir")
    (expected,) = load(NSYS / export, cache=False)
    with one([folder]) as run:
        assert_frame_equal(run.events, expected.events, categorical_as_str=True, check_row_order=True)
        assert run.meta == expected.meta
        assert (run.log.read, run.log.dropped) == (expected.log.read, expected.log.dropped)
        assert run.log.format == "nsys-parquetdir" and run.log.source == str(folder)
        assert run.tables.keys() == expected.tables.keys()
        assert_frame_equal(run.tables["launches"], expected.tables["launches"])


def test_the_files_of_an_export_may_be_named_one_by_one(tmp_path: Path) -> None:
    folder = parquetdir(NSYS / "two_processes.sqlite", tmp_path / "x")
    files = sorted(folder.iterdir())
    (expected,) = load_all([folder], cache=False)
    with one(files) as run:
        assert_frame_equal(run.events, expected.events, categorical_as_str=True)


def test_names_may_stand_where_ids_should(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    frame = pl.DataFrame({"start": [1, 5], "end": [4, 6], "shortName": ["gemm", "norm"], "deviceId": [0, 0]})
    frame.write_parquet(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    with one([folder]) as run:
        assert run.events.select("name", "dur").rows() == [("gemm", 3), ("norm", 1)]


def test_a_broken_table_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    folder = parquetdir(NSYS / "two_processes.sqlite", tmp_path / "x")
    ranges = folder / "NVTX_EVENTS.parquet"
    ranges.write_bytes(ranges.read_bytes()[:40])
    (folder / "CUPTI_ACTIVITY_KIND_MEMCPY.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")
    with one([folder]) as run:
        assert run.events.filter(pl.col("lens") == "gpu").height
        broken = [n.message for n in run.log.notices if n.id == "broken_table"]
        assert any("NVTX_EVENTS" in m for m in broken) and all("\n" not in m for m in broken)
    for file in folder.iterdir():
        file.write_bytes(b"PAR1")
    with pytest.raises(UnreadableError, match="no readable table of events"):
        load_all([folder], cache=False)


def test_cells_of_other_types_are_null(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    frame = pl.DataFrame(
        {
            "start": [1, 2, 1 << 63],
            "end": [3, 4, 5],
            "deviceId": ["a", "b", "c"],
            "shortName": [1.5, 2.5, 3.5],
        },
        schema_overrides={"start": pl.UInt64},
    )
    frame.write_parquet(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    with one([folder]) as run:
        assert run.events.select("name", "dur").rows() == [("unnamed kernel", 2)] * 2
        assert (run.log.read, run.log.dropped) == (3, 1)


def job(folder: Path, prefix: str, *names: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [Path(shutil.copy(ROCPROF / name, folder / f"{prefix}{name}")) for name in names]


def test_files_of_one_job_are_one_run_on_one_clock(tmp_path: Path) -> None:
    files = job(tmp_path / "host", "77_", *TRACES)
    apart = [load(file, cache=False)[0].events for file in files]
    for paths in (files, [tmp_path / "host"]):
        with one(paths) as run:
            assert run.events.height == sum(events.height for events in apart)
            times = set(zip(run.events["t"], run.events["dur"], strict=True))
            assert times == {pair for e in apart for pair in zip(e["t"], e["dur"], strict=True)}
            assert set(run.events["category"]) >= {"copy"} and run.name == "77"
            (notice,) = [n for n in run.log.notices if n.id == "one_job"]
            assert notice.count == 2 and "77_kernel_trace.csv, 77_memory_copy_trace.csv" in notice.message
            assert run.log.read == run.log.retained == run.events.height


def test_statistics_beside_their_trace_are_a_table(tmp_path: Path) -> None:
    files = job(tmp_path / "host", "", "kernel_stats.csv", *TRACES)
    with one(files) as run:
        (expected,) = load_all(job(tmp_path / "other", "", *TRACES), cache=False)
        assert_frame_equal(run.events, expected.events, categorical_as_str=True)
        (statistics,) = load(files[0], cache=False)
        assert run.tables["kernel_stats"]["dur"].sum() == statistics.events["dur"].sum()
        assert any(n.id == "said_again" for n in run.log.notices)


def test_files_of_several_jobs_stay_apart(tmp_path: Path) -> None:
    job(tmp_path / "host", "77_", *TRACES)
    job(tmp_path / "host", "78_", *TRACES)
    job(tmp_path / "elsewhere", "77_", TRACES[0])
    runs = load_all([tmp_path], cache=False)
    assert [run.name for run in runs] == ["77_kernel_trace.csv", "77", "78"]
    (alone,) = load_all([tmp_path / "elsewhere"], cache=False)
    assert not any(n.id == "one_job" for n in alone.log.notices)


def test_files_of_other_writers_are_not_taken(tmp_path: Path) -> None:
    files = job(tmp_path / "host", "77_", *TRACES)
    files[0].write_text("name,duration_ms\nk,3\n")
    assert [run.log.format for run in load_all(files, cache=False)] == ["plain table", "rocprof-csv"]


def test_other_files_keep_their_places(tmp_path: Path) -> None:
    document = FIXTURES / "proton" / "scopes.hatchet"
    traces = job(tmp_path / "host", "77_", *TRACES)
    order = [
        [str(path) for path in group]
        for group in group_inputs([document, *traces, NSYS / "kern_sum.csv"], merge=False)
    ]
    assert order == [[str(document)], [str(traces[0].parent)], [str(NSYS / "kern_sum.csv")]]
    assert len(expand_inputs([document, *traces])) == 2
