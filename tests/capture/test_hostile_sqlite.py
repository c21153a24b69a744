"""SQLite files that lie, loop, swell or are broken."""

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.loaders._sqlite import DatabaseFormat, TableQuery, open_database
from capture.source import Source
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders.test_nsys_sqlite_export import two_processes
from tests.capture.peak import peak_kib
from tests.hostile import Hostile
from tests.hostile_sqlite import DATABASES


@pytest.mark.parametrize("case", DATABASES, ids=lambda c: c.file)
def test_each_does_what_is_expected(case: Hostile, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    before, start = path.read_bytes(), time.process_time()
    if case.expect == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path)
        assert path.name in str(refused.value)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path)
        touched = run.log.dropped + run.log.repaired
        assert (touched > 0) == (case.expect == "partial")
    assert time.process_time() - start < 2
    assert path.read_bytes() == before


SWELLING = ("infinite_view.sqlite", "zeroblob_view.sqlite", "flips.sqlite")


@pytest.mark.corpus
@pytest.mark.parametrize("case", [c for c in DATABASES if c.file in SWELLING], ids=lambda c: c.file)
def test_memory_stays_bounded(case: Hostile, tmp_path: Path) -> None:
    assert peak_kib(case.write(tmp_path)) < 512 * 1024


def test_the_control_is_read_whole(tmp_path: Path) -> None:
    (run,) = load(DATABASES[0].write(tmp_path))
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
    with (
        open_database(Source.from_path(path), DatabaseFormat("test", frozenset(), "")) as db,
        pytest.raises(sqlite3.DatabaseError),
    ):
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
    monkeypatch.setattr("capture.loaders._sqlite._PATIENCE_S", -1e9)
    monkeypatch.setattr("capture.loaders._sqlite._TICK_OPCODES", 1)
    with pytest.raises(UnreadableError, match="timed out"):
        load(path)


def test_a_quoted_table_name_is_left_alone(tmp_path: Path) -> None:
    path = database(tmp_path / "x.sqlite", KERNELS, 'CREATE TABLE "a""; DROP TABLE b" (c)')
    with open_database(Source.from_path(path), DatabaseFormat("test", frozenset(), "")) as db:
        assert list(db.tables) == ["CUPTI_ACTIVITY_KIND_KERNEL"]
        assert db.read(TableQuery("no_such_table", ("start",))).height == 0


@pytest.mark.slow
def test_flipped_bytes_give_runs_or_one_error(tmp_path: Path) -> None:
    """A flip inside a value cannot be seen: the file has no checksum. It must not end in a traceback."""
    draw = random.Random(14)
    whole = two_processes(tmp_path).read_bytes()
    path, refused = tmp_path / "flipped.sqlite", 0
    for _ in range(25):
        bad = bytearray(whole)
        for _ in range(5):
            bad[draw.randrange(100, len(bad))] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            load(path)
        except UnreadableError:
            refused += 1
    assert 0 < refused < 25


def test_a_message_that_is_no_text_is_still_one_sentence(tmp_path: Path) -> None:
    """SQLite quotes the damaged definition of a table in its error, and those bytes need not be UTF-8."""
    path = database(tmp_path / "x.sqlite", KERNELS)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE CUPTI", b"CREATE T\xe4BLE CUPTI"))
    with pytest.raises(UnreadableError, match="damaged SQLite"):
        load(path)


@pytest.mark.corpus
@pytest.mark.parametrize("table", [*nsys.EVENTS, "StringIds"])
@pytest.mark.parametrize("spared", [(), ("start", "end", "id")], ids=["all", "figures"])
def test_a_cell_may_be_of_any_type(tmp_path: Path, table: str, spared: tuple[str, ...]) -> None:
    """SQLite keeps no column's type: cells may hold text, bytes, reals, nothing, or the ends of the range."""
    strange = ("'x'", "x'00'", "1.5", "NULL", "9223372036854775807", "-9223372036854775808")
    path = two_processes(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        for at, column in enumerate(nsys.LAYOUT[table].split(", ")):
            for row in range(1, 9 * (column not in spared)):
                value = strange[(at + row) % len(strange)]
                db.execute(f"UPDATE {table} SET {column} = {value} WHERE rowid = {row}")
        db.commit()
    (run,) = load(path)
    assert 0 <= run.log.dropped <= run.log.read
