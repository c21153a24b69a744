"""Nsight Systems SQLite exports against plain sqlite3 and against files whose truth the test wrote."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders._nsys_file import call, kernel, range_, truth, write
from tests.capture.loaders._rows import matching, notices
from tests.conftest import document, shared

SAMPLES = (
    "nsys/no_graphs.sqlite",
    "samples/nsys/h100_2gpu_1s.sqlite",
    "samples/nsys/old_schema_saxpy.sqlite",
)
ELSEWHERE = "[launched from another thread]"


def two_processes(folder: Path, *without: str) -> Path:
    """Two processes that share every correlation id; one runs its backward pass on another thread."""
    tables: nsys.Rows = {
        "StringIds": [
            (0, "cudaLaunchKernel_v7000"),
            (1, "gemm_fwd<float, 3>"),
            (2, "gemm_bwd"),
            (3, "worker"),
        ],
        nsys.KERNEL: [
            kernel(1000, 1100, 1, process=10, name=1),
            kernel(1200, 1500, 2, process=10, name=2),
            kernel(1600, 1610, 3, process=10, name=1),
            kernel(1005, 1025, 1, process=11, name=2, device=1),
            kernel(1300, 1340, 2, process=11, name=1, device=1),
        ],
        nsys.RUNTIME: [
            call(110, 1, process=10, thread=10),
            call(320, 2, process=10, thread=77),
            call(900, 3, process=10, thread=77),
            call(150, 1, process=11, thread=11),
            call(650, 2, process=11, thread=11),
        ],
        nsys.MEMCPY: [[2000, 2050, 0, 7, 9, nsys.pid(10), 4096, 1]],
        nsys.MEMSET: [[2100, 2101, 0, 7, 8, nsys.pid(10), 64, 0]],
        nsys.SYNC: [[2200, 2300, 0, 0xFFFFFFFF, 7, nsys.pid(10), 4]],
        nsys.GRAPH: [[3000, 3900, 0, 7, 3, nsys.pid(11), 5, 6]],
        nsys.NVTX: [
            range_(90, 800, "step 3", process=10, thread=10),
            range_(100, 200, "forward_pass", process=10, thread=10),
            range_(105, 190, "layer_5", process=10, thread=10),
            range_(300, 400, "backward", process=10, thread=10),
            range_(140, 160, "optimizer", process=11, thread=11),
            range_(600, None, "decode", process=11, thread=11),
            range_(50, None, "warm", process=10, thread=10, style=34),
        ],
        "ThreadNames": [(3, 0, nsys.tid(10, 77))],
    }
    return write(folder / "two.sqlite", {t: r for t, r in tables.items() if t not in without})


@pytest.mark.parametrize("sample", SAMPLES)
def test_sums_equal_plain_sqlite(sample: str) -> None:
    path = document(sample)
    (run,) = load(path)
    kernels = matching(run, kind="kernel", lens="gpu")
    copies = kernels.filter(pl.col("name").cast(pl.String).str.starts_with("[CUDA memcpy"))
    work = kernels.filter(~pl.col("name").cast(pl.String).str.starts_with("[CUDA"))
    ((count, total),) = truth(path, "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert (work.height, work["dur"].sum()) == (count, total)
    ((count, total, size),) = truth(
        path, "SELECT count(*), sum(end - start), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    )
    assert (copies.height, copies["dur"].sum(), int(copies["bytes"].sum())) == (count, total, size)
    ((count, total),) = truth(
        path,
        "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass <> 67",
    )
    calls = matching(run, kind="span", lens="host")
    assert (calls.height, calls["dur"].sum()) == (count, total)
    ((count, total),) = truth(path, "SELECT count(*), sum(end - start) FROM NVTX_EVENTS WHERE eventType = 59")
    ranges = matching(run, kind="span", lens="wall")
    assert (ranges.height, ranges["dur"].sum()) == (count, total)
    steps = matching(run, kind="step")  # numbered ranges stand twice: as a span and as a step
    assert run.log.read == run.events.height - steps.height
    assert run.log.dropped == 0


@pytest.mark.parametrize("sample", SAMPLES)
def test_each_kernel_name_equals_plain_sqlite(sample: str) -> None:
    path = document(sample)
    (run,) = load(path)
    by_name = "SELECT value, count(*), sum(end - start), min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
    by_name += "JOIN StringIds s ON s.id = k.demangledName GROUP BY value"
    work = matching(run, kind="kernel", lens="gpu").filter(
        ~pl.col("name").cast(pl.String).str.starts_with("[CUDA")
    )
    got = work.group_by(pl.col("name").cast(pl.String)).agg(pl.len(), pl.sum("dur"), pl.min("t"))
    assert sorted(got.rows()) == sorted(truth(path, by_name))
    launches = run.tables["launches"]
    assert (launches["count"].sum(), launches["total_ns"].sum()) == (work.height, work["dur"].sum())


def test_devices_threads_and_makers_are_named() -> None:
    (new,) = load(shared("samples/nsys/h100_2gpu_1s.sqlite"))
    (old,) = load(shared("samples/nsys/old_schema_saxpy.sqlite"))
    assert set(matching(new, kind="kernel", lens="gpu")["track"].cast(pl.String)) >= {
        "gpu0/stream7",
        "gpu1/stream15",
    }
    assert new.meta["producer"] == "Nsight Systems 2026.2.1.210"
    assert new.meta["driver"] == "580.95.05"
    assert new.name == "perf_h100_sp2_fa3"
    assert new.meta["argv"][:2] == ["bash", "-c"]
    assert "MODAL_TASK_SECRET" not in str(new.meta)
    assert old.meta["device"] == "NVIDIA A100-SXM4-40GB"
    assert old.meta["schema"] == "2.9.1"
    assert {n for n in notices(old) if n.startswith("missing")} == set()


def test_correlation_ids_are_matched_within_their_process(tmp_path: Path) -> None:
    (run,) = load(two_processes(tmp_path))
    work = matching(run, kind="kernel", lens="gpu").with_columns(
        pl.col("path", "name", "phase").cast(pl.String)
    )
    placed = {(r["name"], r["t"]): (r["path"], r["phase"], r["layer"], r["step"]) for r in work.to_dicts()}
    assert placed["gemm_fwd<float, 3>", 1000] == ("step / forward_pass / layer_5", "forward", 5, 3)
    assert placed["gemm_bwd", 1005] == ("optimizer", "optimizer", None, None)
    assert placed["gemm_fwd<float, 3>", 1300] == ("decode", "decode", None, 1)
    assert matching(run, kind="kernel", lens="gpu").filter(pl.col("t") < 2000)["dur"].sum() == 470


def test_backward_kernels_get_the_range_of_the_waiting_thread(tmp_path: Path) -> None:
    (run,) = load(two_processes(tmp_path))
    (backward,) = matching(run, name="gemm_bwd").filter(pl.col("t") == 1200).to_dicts()
    assert backward["path"] == f"step / backward / {ELSEWHERE}"
    assert (backward["phase"], backward["step"]) == ("backward", 3)
    (late,) = run.events.filter(pl.col("t") == 1600).to_dicts()
    assert late["path"] is None  # launched after the last range of its process had ended
    assert notices(run)["nvtx_lent"] == 1


def test_ranges_calls_marks_and_steps(tmp_path: Path) -> None:
    (run,) = load(two_processes(tmp_path))
    (layer,) = matching(run, kind="span", name="layer_5").to_dicts()
    assert (layer["path"], layer["layer"], layer["dur"]) == ("step / forward_pass", 5, 85)
    assert layer["phase"] == "forward"
    (decode,) = matching(run, kind="span", name="decode").to_dicts()
    assert (decode["dur"], decode["phase"], decode["step"]) == (None, "decode", 1)
    assert notices(run)["nvtx_unclosed"] == 1
    calls = matching(run, kind="span", lens="host")
    assert set(calls["name"].cast(pl.String)) == {"cudaLaunchKernel"}
    assert set(calls["track"].cast(pl.String)) == {"pid10/tid10", "pid10/tid77 worker", "pid11/tid11"}
    (mark,) = matching(run, kind="mark").to_dicts()
    assert (mark["name"], mark["t"], mark["path"]) == ("warm", 50, "note")
    (step,) = matching(run, kind="step").to_dicts()
    assert (step["name"], step["step"], step["t"], step["dur"]) == ("step 3", 3, 90, 710)


def test_copies_fills_waits_and_graphs(tmp_path: Path) -> None:
    (run,) = load(two_processes(tmp_path))
    (copy,) = matching(run, name="[CUDA memcpy Host-to-Device]").to_dicts()
    assert (copy["category"], copy["bytes"], copy["dur"], copy["lens"]) == ("copy", 4096, 50, "gpu")
    (fill,) = matching(run, name="[CUDA memset]").to_dicts()
    assert (fill["category"], fill["bytes"]) == ("copy", 64)
    (wait,) = matching(run, lens="wait").to_dicts()
    assert (wait["name"], wait["track"], wait["dur"]) == ("[CUDA Context sync]", "gpu0", 100)
    (graph,) = matching(run, name="CUDA graph 5").to_dicts()
    assert (graph["dur"], graph["lens"], graph["kind"]) == (900, "gpu", "kernel")
    assert notices(run)["graphs_whole"] == 1


def test_one_device_used_by_two_processes_gives_two_tracks(tmp_path: Path) -> None:
    shared_gpu = {nsys.KERNEL: [kernel(0, 1, 1, 10, 1), kernel(0, 1, 1, 11, 1)], "StringIds": [(1, "k")]}
    (run,) = load(write(tmp_path / "x.sqlite", shared_gpu))
    assert set(run.events["track"].cast(pl.String)) == {"pid10/gpu0/stream7", "pid11/gpu0/stream7"}


def test_clocks_may_start_below_zero(tmp_path: Path) -> None:
    (run,) = load(write(tmp_path / "x.sqlite", {nsys.KERNEL: [kernel(-500, -400, 1, 10, 1)]}))
    assert run.events.select("t", "dur").row(0) == (-500, 100)
    assert run.events["name"].cast(pl.String).to_list() == ["unnamed kernel"]


def test_impossible_times_are_dropped_and_counted(tmp_path: Path) -> None:
    bad = [kernel(5, 4, 1, 10, 1), kernel(2**63 - 1, -(2**63), 1, 10, 1), [None, *kernel(1, 2, 1, 10, 1)[1:]]]
    (run,) = load(write(tmp_path / "x.sqlite", {nsys.KERNEL: [kernel(1, 3, 1, 10, 1), *bad]}))
    assert run.events["dur"].to_list() == [2]
    assert (run.log.read, run.log.dropped) == (4, 3)


def test_the_profilers_own_warnings_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", {nsys.KERNEL: [kernel(1, 2, 1, 10, 1)]})
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp, severity, text)")
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 'hello'), (2, 2, 'buffers were \x1b[2J lost')")
        db.commit()
    (run,) = load(path)
    (warning,) = [n for n in run.log.notices if n.id == "profiler_warnings"]
    assert warning.count == 1
    assert "lost" in warning.message
    assert "\x1b" not in warning.message


@pytest.mark.corpus
@pytest.mark.parametrize(
    "table",
    [
        nsys.KERNEL,
        nsys.RUNTIME,
        nsys.NVTX,
        nsys.MEMCPY,
        nsys.MEMSET,
        nsys.SYNC,
        nsys.GRAPH,
        "StringIds",
        "ThreadNames",
    ],
)
def test_any_table_may_be_missing(tmp_path: Path, table: str) -> None:
    (whole,) = load(two_processes(tmp_path))
    (tmp_path / "two.sqlite").unlink()
    (run,) = load(two_processes(tmp_path, table))
    gone = {
        nsys.KERNEL: 5,
        nsys.RUNTIME: 5,
        nsys.NVTX: 8,
        nsys.MEMCPY: 1,
        nsys.MEMSET: 1,
        nsys.SYNC: 1,
        nsys.GRAPH: 1,
    }
    assert run.events.height == whole.events.height - gone.get(table, 0)
    named = {nsys.GRAPH, "ThreadNames"}
    assert (f"missing_{table.lower()}" in notices(run)) == (table not in named)


def test_bare_exports_with_few_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)")
        db.execute("CREATE TABLE StringIds (id, value)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 1), (10, 11, 'stray')")
        db.execute("INSERT INTO StringIds VALUES (1, 'k')")
        db.commit()
    (run,) = load(path)
    assert run.events.select(pl.col("name").cast(pl.String), "dur").rows() == [("k", 4), ("stray", 1)]


@pytest.mark.parametrize(
    ("table", "words"),
    [("rocpd_kernel_dispatch", "rocpd"), ("cookies", "its tables: cookies")],
)
def test_other_databases_are_named(tmp_path: Path, table: str, words: str) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {table} (a)")
        db.commit()
    with pytest.raises(UnreadableError, match=words):
        load(path)


def test_the_sample_of_another_kind_is_refused() -> None:
    with pytest.raises(UnreadableError, match="its tables: test"):
        load(shared("samples/nsys/not_nsys.sqlite"))


def test_the_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = two_processes(tmp_path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        load(path)
    finally:
        tmp_path.chmod(0o700)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["two.sqlite"]


def test_a_write_ahead_log_beside_the_file_is_told(tmp_path: Path) -> None:
    path = two_processes(tmp_path)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO StringIds VALUES (99, 'x')")
        writer.commit()
        (run,) = load(path)
    assert notices(run)["wal_unread"] == 1


def test_calls_of_no_known_process_lend_none(tmp_path: Path) -> None:
    tables = {
        "StringIds": [(0, "cudaLaunchKernel"), (1, "gemm")],
        nsys.KERNEL: [kernel(1000, 1100, 1, process=10, name=1)],
        nsys.RUNTIME: [[90, 95, 0, None, 1, 0]],
    }
    path = write(tmp_path / "x.sqlite", tables)
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {nsys.KERNEL} SET globalPid = NULL")
    db.close()
    (run,) = load(path, cache=False)
    assert matching(run, name="gemm")["dur"].to_list() == [100]
