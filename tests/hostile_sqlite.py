"""Hostile SQLite files in the layout of Nsight Systems: broken, lying, endless."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.hostile import Hostile

KERNELS: Final = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)"
VIEW: Final = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
ENDLESS: Final = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i AS start, i AS end"
STRANGE: Final = [("abc", None, b"\0"), (1.5, "2", "k"), (2**63 - 1, -(2**63), "")]


def database(fill: Callable[[sqlite3.Connection], object]) -> bytes:
    """Return the bytes of a database that a function has filled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        with closing(sqlite3.connect(path)) as db:
            fill(db)
            db.commit()
        return path.read_bytes()


def good(db: sqlite3.Connection) -> None:
    """Fill a database with 5,000 kernels of 5 ns and seven names."""
    db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT)")
    db.execute("CREATE TABLE StringIds (id INT, value TEXT)")
    rows = [(i * 10, i * 10 + 5, i % 7) for i in range(5000)]
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", rows)
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, f"k{i}") for i in range(7)])


def strange(db: sqlite3.Connection) -> None:
    db.execute(KERNELS)
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", STRANGE)


def no_text(db: sqlite3.Connection) -> None:
    db.execute(KERNELS)
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, CAST(x'ff41' AS TEXT))")


def flipped(whole: bytes) -> bytes:
    """Return a database with a byte in a thousand changed behind its first page."""
    out = bytearray(whole)
    for i in range(4096, len(out), 997):
        out[i] ^= 0x55
    return bytes(out)


def databases() -> Iterator[Hostile]:
    whole = database(good)
    yield Hostile("ok.sqlite", whole, "full", "control")
    yield Hostile("trunc_half.sqlite", whole[: len(whole) // 2], "refuse", "cut in half")
    yield Hostile("trunc_hdr.sqlite", whole[:50], "refuse", "50 bytes")
    yield Hostile(
        "zero_pages.sqlite", whole[:100] + bytes(len(whole) - 100), "refuse", "a header, then zeros"
    )
    yield Hostile("notadb.sqlite", b"x" * 5000, "refuse", "no database")
    yield Hostile("flips.sqlite", flipped(whole), "refuse", "flipped bytes give silently wrong sums")
    yield Hostile(
        "no_tables.sqlite", database(lambda db: db.execute("CREATE TABLE x (a)")), "refuse", "another"
    )
    endless = database(lambda db: db.execute(f"{VIEW}{ENDLESS}, 1 AS shortName FROM r"))
    yield Hostile("infinite_view.sqlite", endless, "refuse", "a view that never ends")
    wide = f"{VIEW}SELECT 1 AS start, 2 AS end, zeroblob(900000000) AS shortName"
    yield Hostile("zeroblob_view.sqlite", database(lambda db: db.execute(wide)), "refuse", "a cell of 900 MB")
    yield Hostile("badutf8.sqlite", database(no_text), "partial", "a text that is no UTF-8")
    yield Hostile("dyntypes.sqlite", database(strange), "partial", "cells of any type")
    yield Hostile("empty_table.sqlite", database(lambda db: db.execute(KERNELS)), "full", "no row", 0)


DATABASES: Final = tuple(databases())
