"""Write runs as native lines that read back as the same runs."""

from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import msgspec
import polars as pl

from capture.import_log import ImportLog
from capture.native.saved_tables import format_type
from capture.native.schema import SCHEMA_VERSION, seal_json
from capture.run import DTYPES, Run

_OPS_PER_LINE: Final = 1000
_ROWS_PER_LINE: Final = 8192
_OP_COLUMNS: Final = (*(n for n, t in DTYPES.items() if t == pl.Categorical), "layer")


def write_native(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write the runs one after the other; return a note for each thing that had to be changed."""
    notes: list[str] = []
    for number, run in enumerate(runs):
        file.writelines(_encode_record(record) for record in _iter_run_records(run, number, notes))
    return notes


def encode_events(events: pl.DataFrame, first_op: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines that add events to a run, each with its number of events.

    Op ids start at `first_op`; at most one id per event is used.
    """
    for record in _iter_event_records(events, first_op):
        yield _encode_record(record), len(record.get("op", ()))


def encode_log(log: ImportLog) -> bytes:
    """Return the line with the log of an import."""
    return _encode_record({"kind": "log", "log": log.as_dict()})


def _encode_record(record: dict[str, Any]) -> bytes:
    return seal_json(msgspec.json.encode(record, enc_hook=str))


def _iter_run_records(run: Run, number: int, notes: list[str]) -> Iterator[dict[str, Any]]:
    yield {"kind": "run", "schema": SCHEMA_VERSION, "id": number, "name": run.name, "meta": run.meta}
    yield {"kind": "log", "log": run.log.as_dict()}
    yield from _iter_event_records(run.events, 0)
    for name, table in run.tables.items():
        record, note = build_table_record(name, table)
        yield {"kind": "table", **record}
        notes.extend([note] if note else [])
    yield {"kind": "end", "events": run.events.height}


def _iter_event_records(events: pl.DataFrame, first_op: int) -> Iterator[dict[str, Any]]:
    op_columns = [c for c in _OP_COLUMNS if c in events.columns]
    ops = events.select(op_columns).unique(maintain_order=True).with_row_index("id", first_op)
    for part in ops.iter_slices(_OPS_PER_LINE):
        fields = part.iter_rows(named=True)
        yield {"kind": "plan", "ops": [{k: v for k, v in op.items() if v is not None} for op in fields]}
    numbers = [c for c in events.columns if c not in op_columns]
    for part in events.iter_slices(_ROWS_PER_LINE):
        rows = part.join(ops, on=op_columns, how="left", nulls_equal=True, maintain_order="left")
        yield {
            "kind": "rows",
            "op": rows["id"].to_list(),
            "columns": {c: rows[c].to_list() for c in numbers if rows[c].null_count() < rows.height},
        }


def build_table_record(name: str, table: pl.DataFrame) -> tuple[dict[str, Any], str]:
    """Return a table as typed JSON columns, and a note (or an empty text) on columns that became text."""
    converted = [c for c, type in table.schema.items() if format_type(type) is None]
    table = table.with_columns(pl.col(c).map_elements(str, return_dtype=pl.String) for c in converted)
    types = {c: format_type(type) for c, type in table.schema.items()}
    note = f"the table {name} has columns that became text: {', '.join(converted)}" if converted else ""
    return {"name": name, "types": types, "columns": table.to_dict(as_series=False)}, note
