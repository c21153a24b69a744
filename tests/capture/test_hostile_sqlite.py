"""SQLite files that lie, loop, swell or are broken."""

import json
import resource
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from capture.errors import UnreadableError
from capture.loaders import load
from capture.loaders._nsys_db import Wanted, opened
from capture.source import Source
from tests.conftest import SHARED, shared

MANIFEST = SHARED / "samples" / "hostile" / "MANIFEST.jsonl"
ENTRIES = [json.loads(line) for line in MANIFEST.read_text().splitlines()] if MANIFEST.exists() else []
DATABASES = [(e["file"], e["expect"]) for e in ENTRIES if e["file"].endswith(".sqlite")]


@pytest.mark.parametrize(("name", "expect"), DATABASES)
def test_each_does_what_is_expected(name: str, expect: str) -> None:
    path = shared(f"samples/hostile/{name}")
    before, start = path.read_bytes(), time.monotonic()
    if expect == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path)
        assert path.name in str(refused.value)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path)
        touched = run.log.dropped + run.log.repaired
        assert (touched > 0) == (expect == "partial")
    assert time.monotonic() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 512 * 1024
    assert path.read_bytes() == before


def test_the_control_is_read_whole() -> None:
    (run,) = load(shared("samples/hostile/ok.sqlite"))
    assert (run.events.height, run.events["dur"].sum()) == (5000, 25_000)
    assert run.events["name"].n_unique() == 7


def database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


KERNELS = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)"


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ([KERNELS, "CREATE TABLE x (id, value)", "CREATE VIEW StringIds AS SELECT * FROM x"], "is a view"),
        (
            [KERNELS, "CREATE TRIGGER t AFTER INSERT ON CUPTI_ACTIVITY_KIND_KERNEL BEGIN SELECT 1; END"],
            "trigger",
        ),
        ([KERNELS, "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(text)"], "virtual table"),
    ],
)
def test_impostors_are_refused(tmp_path: Path, statements: list[str], why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        load(database(tmp_path / "x.sqlite", *statements))


def test_views_of_other_names_are_never_run(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r"
    path = database(tmp_path / "x.sqlite", KERNELS, f"CREATE VIEW mine AS {endless}")
    (run,) = load(path)
    assert run.events.is_empty()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "ATTACH DATABASE ':memory:' AS other",
        "SELECT load_extension('x')",
        "SELECT randomblob(10)",
        "PRAGMA writable_schema=ON",
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r",
    ],
)
def test_nothing_but_plain_reading_is_allowed(tmp_path: Path, statement: str) -> None:
    path = database(tmp_path / "x.sqlite", KERNELS)
    with opened(Source.of(path), frozenset()) as db, pytest.raises(sqlite3.DatabaseError):
        db.connection.execute(statement).fetchall()


def test_a_cell_that_is_too_long_ends_its_table_alone(tmp_path: Path) -> None:
    path = database(
        tmp_path / "x.sqlite",
        KERNELS,
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 4, 1)",
        "CREATE TABLE StringIds (id, value)",
        "INSERT INTO StringIds VALUES (1, hex(zeroblob(6000000)))",
    )
    (run,) = load(path)
    assert run.events["dur"].to_list() == [3]
    assert any(n.id == "broken_table" and n.severity == "data_loss" for n in run.log.notices)


def test_reading_stops_when_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "x.sqlite", KERNELS)
    monkeypatch.setattr("capture.loaders._nsys_db._PATIENCE_S", -1e9)
    monkeypatch.setattr("capture.loaders._nsys_db._TICK_OPCODES", 1)
    with pytest.raises(UnreadableError, match="took too long"):
        load(path)


def test_a_quoted_table_name_is_left_alone(tmp_path: Path) -> None:
    path = database(tmp_path / "x.sqlite", KERNELS, 'CREATE TABLE "a""; DROP TABLE b" (c)')
    with opened(Source.of(path), frozenset()) as db:
        assert list(db.tables) == ["CUPTI_ACTIVITY_KIND_KERNEL"]
        assert db.read(Wanted("no_such_table", ("start",))).height == 0
