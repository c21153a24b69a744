"""Changes of SQLite databases, made by SQL in memory: cells of other types, tables gone, views instead."""

import sqlite3
from contextlib import closing, suppress
from random import Random
from typing import Any, Final

from tests.fuzz.hostile_values import cell, word

ENDLESS: Final = (
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i AS start, i AS end FROM r"
)
EDGES: Final = (
    0, -1, 1, 1.5, 2**63 - 1, -(2**63), 2**53, 1e300, float("inf"), float("nan"), None, b"", b"\xff\0",
    b"x" * 5000,
)  # fmt: skip


def changed_database(content: bytes, draw: Random) -> bytes:
    """Return a database with one change; one that SQLite cannot open comes back with a byte flipped."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        try:
            db.execute("PRAGMA journal_mode=MEMORY")
            tables = [
                name
                for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
            ]
            if tables:
                _change(db, draw.choice(tables), draw)
            db.commit()
            return db.serialize()
        except (sqlite3.Error, OverflowError, UnicodeError):
            at = draw.randrange(len(content))
            return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def _change(db: sqlite3.Connection, table: str, draw: Random) -> None:
    quoted = f'"{table}"'
    columns = [f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({quoted})")]
    column = draw.choice(columns)
    match draw.randrange(12):
        case 0 | 1 | 2:
            db.execute(
                f"UPDATE {quoted} SET {column} = ? WHERE rowid IN ({_some(quoted, draw)})", (_value(draw),)
            )
        case 3:
            db.execute(f"UPDATE {quoted} SET {column} = ?", (_value(draw),))
        case 4:
            other = draw.choice(columns)
            db.execute(f"UPDATE {quoted} SET {column} = {other} WHERE rowid % 2")
        case 5:
            db.execute(f"DELETE FROM {quoted}" + draw.choice(("", " WHERE rowid % 2", " WHERE rowid > 1")))
        case 6:
            db.execute(f"INSERT INTO {quoted} SELECT * FROM {quoted}")
        case 7:
            db.execute(f"DROP TABLE {quoted}")
        case 8:
            db.execute(f"ALTER TABLE {quoted} DROP COLUMN {column}")
        case 9:
            db.execute(
                f'ALTER TABLE {quoted} RENAME COLUMN {column} TO "{draw.choice(("start", "x", "id", "END"))}"'
            )
        case 10:
            _impostor(db, table, draw)
        case _:
            db.execute(
                f'ALTER TABLE {quoted} ADD COLUMN "{draw.choice(("deviceId", "globalTid", "nodeId", "x y"))}"'
            )


def _value(draw: Random) -> Any:
    if draw.random() < 0.5:
        return draw.choice(EDGES)
    return (cell(draw) if draw.random() < 0.5 else word(draw)).encode("utf-8", "replace").decode()


def _some(quoted: str, draw: Random) -> str:
    """Return a query of some rows: the first, every other, or one."""
    return draw.choice(
        (
            f"SELECT min(rowid) FROM {quoted}",
            f"SELECT max(rowid) FROM {quoted}",
            f"SELECT rowid FROM {quoted} WHERE rowid % 2",
        )
    )


def _impostor(db: sqlite3.Connection, table: str, draw: Random) -> None:
    """Put a view, a trigger or a table of another layout in the place of a table."""
    quoted = f'"{table}"'
    with suppress(sqlite3.Error):
        match draw.randrange(5):
            case 0:
                db.execute(f'ALTER TABLE {quoted} RENAME TO "kept"')
                db.execute(f'CREATE VIEW {quoted} AS SELECT * FROM "kept"')
            case 1:
                db.execute(f"DROP TABLE {quoted}")
                db.execute(f"CREATE VIEW {quoted} AS {ENDLESS}")
            case 2:
                db.execute(f"CREATE TRIGGER t AFTER INSERT ON {quoted} BEGIN SELECT 1; END")
            case 3:
                db.execute(f"DROP TABLE {quoted}")
                db.execute(f"CREATE TABLE {quoted} (start, end, name, value)")
                db.execute(f"INSERT INTO {quoted} VALUES (1, 2, 'k', zeroblob(100))")
            case _:
                db.execute(f"CREATE VIEW other AS {ENDLESS}")
