"""Waits on the device of their context, and copies by the kinds of memory at both ends."""

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from tests.capture.loaders._rows import matching
from tests.capture.loaders.test_nsys_sqlite_export import truth
from tests.conftest import shared

CONTEXTS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
    demangledName);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, deviceId, contextId, streamId, correlationId,
    globalPid, syncType);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid,
    bytes, copyKind, srcKind, dstKind);
CREATE TABLE ENUM_CUDA_MEM_KIND (id, name, label);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'A', 'Pageable'), (1, 'B', 'Pinned'), (2, 'C', 'Device'),
    ('x', 'D', 'E');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 10, 0, 1, 7, 1, 16777216, 1),
    (0, 10, 1, 2, 15, 2, 33554432, 1),
    (20, 30, 0, 3, 7, 3, 16777216, 1), (40, 50, 1, 3, 7, 4, 16777216, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (10, 15, 0, 1, 7, 5, 16777216, 3),
    (10, 19, 0, 2, 15, 6, 33554432, 3), (60, 61, 0, 3, 7, 7, 16777216, 3), (70, 72, 0, 9, 7, 8, 16777216, 3);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 200, 0, 1, 7, 9, 16777216, 1000, 1, 1, 2),
    (300, 400, 0, 1, 7, 10, 16777216, 3000, 1, 1, 2), (500, 600, 0, 1, 7, 11, 16777216, 50, 1, 0, 2);
"""


def test_a_wait_is_on_the_device_of_its_context(tmp_path: Path) -> None:
    """The file says device 0 for every wait; a context with work on one device says which it is."""
    path = tmp_path / "contexts.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(CONTEXTS)
    (run,) = load(path, cache=False)
    waits = matching(run, lens="wait").sort("t").select(pl.col("track").cast(pl.String), "dur")
    assert waits.rows() == [
        ("gpu0/stream7", 5), ("gpu1/stream15", 9), ("gpu0/stream7", 1), ("gpu0/stream7", 2),
    ]  # fmt: skip
    copies = run.tables["copies"].sort("count", descending=True).rows()
    assert copies == [
        ("Host-to-Device", "Pinned", "Device", 0, 2, 4000, 200, 20.0),
        ("Host-to-Device", "Pageable", "Device", 0, 1, 50, 100, 0.5),
    ]


def test_the_waits_and_copies_of_two_gpus_equal_those_of_the_file() -> None:
    path = shared("samples/nsys/h100_2gpu_1s.sqlite")
    (run,) = load(path, cache=False)
    waits = (
        matching(run, lens="wait")
        .group_by(pl.col("track").cast(pl.String).str.head(4))
        .agg(pl.col("dur").sum())
    )
    stated = truth(
        path,
        "SELECT contextId, SUM(end - start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION GROUP BY 1 ORDER BY 1",
    )  # context 1 works on device 0, context 2 on device 1
    assert dict(waits.rows()) == {f"gpu{context - 1}": total for context, total in stated}
    pinned = run.tables["copies"].filter((pl.col("source") == "Pinned") & (pl.col("target") == "Device"))
    stated = truth(
        path,
        "SELECT COUNT(*), SUM(bytes), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY "
        "WHERE srcKind = 1 AND copyKind = 1",
    )
    assert pinned.select("count", "bytes", "total_ns").sum().rows() == stated
    assert pinned["gb_per_s"].to_list() == pytest.approx([27.67, 27.67], abs=0.02)
