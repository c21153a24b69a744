"""Writes runs as native lines that read back as the same runs."""

from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import msgspec
import polars as pl

from capture.frames import type_name
from capture.importlog import ImportLog
from capture.native.schema import SCHEMA, sealed
from capture.run import DTYPES, Run

_OPS_A_LINE: Final = 1000
_ROWS_A_LINE: Final = 8192
_PLANNED: Final = (*(n for n, t in DTYPES.items() if t == pl.Categorical), "layer")


def write_native(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write one run after the other; return a note of each thing that could not be written as it is."""
    notes: list[str] = []
    for number, run in enumerate(runs):
        file.writelines(_line(record) for record in _records(run, number, notes))
    return notes


def event_lines(events: pl.DataFrame, first_op: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines that add events to a run, each with how many it holds; the ops of the run up to
    `first_op` have their numbers already, and no more than one number an event is taken.
    """
    for record in _events(events, first_op):
        yield _line(record), len(record.get("op", ()))


def log_line(log: ImportLog) -> bytes:
    """Return the line that keeps the log of an import."""
    return _line({"kind": "log", "log": log.as_dict()})


def _line(record: dict[str, Any]) -> bytes:
    return sealed(msgspec.json.encode(record, enc_hook=str))


def _records(run: Run, number: int, notes: list[str]) -> Iterator[dict[str, Any]]:
    yield {"kind": "run", "schema": SCHEMA, "id": number, "name": run.name, "meta": run.meta}
    yield {"kind": "log", "log": run.log.as_dict()}
    yield from _events(run.events, 0)
    for name, table in run.tables.items():
        record, note = table_record(name, table)
        yield {"kind": "table", **record}
        notes.extend([note] if note else [])
    yield {"kind": "end", "events": run.events.height}


def _events(events: pl.DataFrame, first_op: int) -> Iterator[dict[str, Any]]:
    planned = [c for c in _PLANNED if c in events.columns]
    ops = events.select(planned).unique(maintain_order=True).with_row_index("id", first_op)
    for part in ops.iter_slices(_OPS_A_LINE):
        yield {"kind": "plan", "ops": [_without_nulls(op) for op in part.iter_rows(named=True)]}
    yield from _rows(events, ops, planned)


def _without_nulls(op: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in op.items() if value is not None}


def _rows(events: pl.DataFrame, ops: pl.DataFrame, planned: list[str]) -> Iterator[dict[str, Any]]:
    numbers = [c for c in events.columns if c not in planned]
    for part in events.iter_slices(_ROWS_A_LINE):
        rows = part.join(ops, on=planned, how="left", nulls_equal=True, maintain_order="left")
        yield {
            "kind": "rows",
            "op": rows["id"].to_list(),
            "columns": {c: rows[c].to_list() for c in numbers if rows[c].null_count() < rows.height},
        }


def table_record(name: str, table: pl.DataFrame) -> tuple[dict[str, Any], str]:
    """Return a table as JSON columns with their types, and a note where a type became text, else empty."""
    odd = [c for c, type in table.schema.items() if type_name(type) is None]
    table = table.with_columns(pl.col(c).map_elements(str, return_dtype=pl.String) for c in odd)
    types = {c: type_name(type) for c, type in table.schema.items()}
    note = f"the table {name} has columns that became text: {', '.join(odd)}" if odd else ""
    return {"name": name, "types": types, "columns": table.to_dict(as_series=False)}, note
