"""rocpd databases: both layouts give the rows that the maker wrote, and a hostile file is read or refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.run import Run
from tests.capture.loaders._rocpd_file import COPY, DISPATCHES, GUID, REGIONS, write


def run_of(path: Path) -> Run:
    (run,) = load(path, cache=False)
    return run


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement.replace("{}", GUID))
        db.commit()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "x.db", referred=False)


def test_kernels_are_on_their_device_with_their_launch(path: Path) -> None:
    kernels = run_of(path).events.filter(pl.col("kind") == "kernel")
    columns = ("t", "dur", "track", "grid", "block", "registers", "shared", "launch")
    assert kernels.filter(pl.col("bytes").is_null()).select(columns).rows() == [
        (2_000, 3_000, "gpu0/stream3", f"{8192 // 256}x2x1", "256x1x1", 96, 1024, 1_100),
        (5_200, 1_000, "gpu0/stream3", f"1x{64 // 4}x1", "64x4x1", 96, 1024, 1_400),
    ]
    assert kernels["dur"].sum() == sum(end - start for start, end, *_ in (*DISPATCHES, COPY))
    assert kernels["step"].to_list() == [4, 4, 4], "the step of the marker around the launches"


def test_copies_have_their_size(path: Path) -> None:
    copies = run_of(path).events.filter(pl.col("category") == "copy")
    assert copies.select("name", "track", "bytes", "launch").rows() == [
        ("MEMORY_COPY_DEVICE_TO_HOST", "gpu0/stream3", 65_536.0, 1_700)
    ]


def test_markers_are_scopes_by_their_message_and_calls_are_host_time(path: Path) -> None:
    run = run_of(path)
    calls = run.events.filter(pl.col("lens") == "host")
    assert calls.select("name", "t", "dur", "track").rows() == [
        ("hipLaunchKernel" if name == 5 else "hipMemcpyAsync", start, end - start, "thread 78 main")
        for start, end, name, _ in REGIONS[1:]
    ]
    assert run.events.filter(pl.col("kind") == "step").select("name", "t", "dur").rows() == [
        ("decode step 4", 1_000, 8_000)
    ]
    assert (run.meta["device"], run.meta["producer"]) == ("MI300X", "rocprofv3")


def test_times_in_a_table_of_their_own_give_the_same(tmp_path: Path) -> None:
    inline, apart = (write(tmp_path / f"{r}.db", referred=r) for r in (False, True))
    one, other = run_of(inline), run_of(apart)
    assert_frame_equal(one.events, other.events, categorical_as_str=True)
    assert (one.log.read, one.log.dropped) == (7, 0) == (other.log.read, other.log.dropped)


def test_a_process_more_is_a_run_more(path: Path, tmp_path: Path) -> None:
    second = "_11111111_2222_7333_8444_555555555555"
    with closing(sqlite3.connect(path)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name.endswith(GUID):
                db.execute(f"CREATE TABLE `{name.removesuffix(GUID)}{second}` AS SELECT * FROM `{name}`")
        db.execute(f"UPDATE `rocpd_info_process{second}` SET pid = 99")
        db.commit()
    first, other = load(path, cache=False)
    assert [run.name for run in (first, other)] == ["x.db pid 77", "x.db pid 99"]
    assert_frame_equal(first.events, other.events, categorical_as_str=True)


def test_no_view_is_ever_read(path: Path) -> None:
    """The views that rocprofv3 writes bear the names of tables; here they would never end."""
    endless = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r"
    views = ("rocpd_kernel_dispatch", "rocpd_region", "rocpd_string", "kernels")
    drops = [f"DROP VIEW IF EXISTS {view}" for view in views]
    hostile = changed(path, *drops, *(f"CREATE VIEW {view} AS {endless}" for view in views))
    assert run_of(hostile).events.height == 7


def test_names_that_refer_to_nothing_are_said_to(path: Path) -> None:
    run = run_of(changed(path, "DELETE FROM `rocpd_string{}`", "DELETE FROM `rocpd_info_kernel_symbol{}`"))
    assert set(run.events.filter(pl.col("lens") == "gpu")["name"]) == {"kernel 21", "kernel 22", "unnamed"}


def test_times_that_are_none_are_counted(path: Path) -> None:
    run = run_of(
        changed(
            path,
            'UPDATE `rocpd_kernel_dispatch{}` SET "end" = 9223372036854775807 WHERE id = 1',
            "UPDATE `rocpd_region{}` SET start = 'soon' WHERE id = 2",
            'UPDATE `rocpd_memory_copy{}` SET "end" = "start" - 5',
        )
    )
    assert (run.log.read, run.log.dropped) == (7, 3)
    assert run.events.filter(pl.col("lens") == "gpu")["dur"].to_list() == [1_000]


@pytest.mark.corpus
@pytest.mark.parametrize(
    "column",
    [
        "workgroup_size_x",
        "grid_size_y",
        "stream_id",
        "agent_id",
        "kernel_id",
        "event_id",
        "group_segment_size",
    ],
)
def test_a_cell_may_be_of_any_type(path: Path, column: str) -> None:
    strange = ("'x'", "x'00ff'", "1.5", "NULL", "-9223372036854775808", "0")
    for value in strange:
        run = run_of(changed(path, f"UPDATE `rocpd_kernel_dispatch{{}}` SET {column} = {value}"))
        assert run.events.filter(pl.col("kind") == "kernel").height == 3


def test_messages_that_are_no_json_leave_the_name_of_the_call(path: Path) -> None:
    for text in ("'{'", "'[1]'", "'{\"message\": 4}'", "'" + "[" * 50_000 + "'"):
        run = run_of(changed(path, f"UPDATE `rocpd_event{{}}` SET extdata = {text}"))
        assert "roctxThreadRangeA" in set(run.events["name"])


def test_a_database_without_events_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "y.db", "CREATE TABLE rocpd_metadata (id, tag, value)")
    with pytest.raises(UnreadableError, match="without kernels, copies or calls"):
        load(path, cache=False)
