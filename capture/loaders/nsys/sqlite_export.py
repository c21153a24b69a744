"""Nsight Systems reports exported as SQLite, in the schemas of 2022 to 2026.

Read: kernels, copies, memsets, graphs, API calls, synchronisation, NVTX ranges and marks, of any number of
processes and GPUs; missing tables and columns are no error. Not read: `.nsys-rep` itself, CPU samples, GPU
metrics.
The schema: https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.infer_structure import add_inferred_structure
from capture.loaders._sqlite import MAGIC, ROCPD, Database, DatabaseFormat, open_database
from capture.loaders.nsys import export_tables as nsys
from capture.loaders.nsys.export_events import build_events
from capture.run import Run, build_run
from capture.source import Head, Source

FORMAT = "nsys-sqlite"
PRODUCER = "NVIDIA Nsight Systems"
HOWTO = "nsys profile -t cuda,nvtx -o run CMD; nsys export --type sqlite run.nsys-rep"

_OTHER_TABLES: Final = (
    "StringIds", "ThreadNames", "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT",
    "EXPORT_META_DATA", "META_DATA_CAPTURE", "DIAGNOSTIC_EVENT",
    nsys.MEMORY_KINDS_TABLE,
)  # fmt: skip
_DATABASE_FORMAT: Final = DatabaseFormat(
    "an export of Nsight Systems",
    frozenset(w.table for w in nsys.EVENTS) | frozenset(_OTHER_TABLES),
    "copy or export it again: nsys export --type sqlite FILE.nsys-rep",
)
_MISSING_TABLE_EFFECTS: Final = {
    nsys.KERNELS.table: "no kernels: capture with -t cuda",
    nsys.CALLS.table: "no API calls, so no kernel has an NVTX range: capture with -t cuda",
    nsys.RANGES.table: "no NVTX ranges, so no phases, layers or steps: capture with -t cuda,nvtx",
    nsys.COPIES.table: "no memory copies",
    nsys.FILLS.table: "no memory fills",
    nsys.WAITS.table: "no synchronisations",
    "StringIds": "no names",
}
_WARNING_SEVERITIES: Final = ("2", "3")


def sniff(head: Head) -> bool:
    return head.raw.startswith(MAGIC) and not ROCPD.search(head.raw)


def load(source: Source) -> list[Run]:
    """Read a file as one run: processes and devices are its tracks."""
    with open_database(source, _DATABASE_FORMAT) as db:
        _check_is_nsys(db)
        contents = _read_contents(db)
    return [_build_run(contents, source.log, "nsys")]


def build_export_run(store: nsys.ExportStore, log: Log, name: str) -> Run:
    """Build the run of an export's tables; `name` is used if they do not name a report."""
    return _build_run(_read_contents(store), log, name)


def _read_contents(db: nsys.ExportStore) -> tuple[nsys.ExportTables, dict[str, Any], pl.DataFrame]:
    """Read the rows, the metadata, and the list of tables with the number of rows read of each."""
    tables = nsys.read_tables(db)
    _note_missing_tables(db, tables)
    inventory = [(clean(name, 200), db.rows.get(name)) for name in db.tables]
    schema = {"table": pl.String, "rows_read": pl.Int64}
    return tables, _build_meta(db), pl.DataFrame(inventory, schema=schema, orient="row")


def _build_run(contents: tuple[nsys.ExportTables, dict[str, Any], pl.DataFrame], log: Log, name: str) -> Run:
    tables, meta, inventory = contents
    launches, copies = nsys.summarise_launches(tables), nsys.summarise_copies(tables)
    extra_tables = {"launches": launches, "copies": copies, "tables": inventory}
    name = PurePath(meta.get("report", name)).stem
    return add_inferred_structure(build_run(name, meta, build_events(tables, log), log, extra_tables), log)


def _check_is_nsys(db: Database) -> None:
    """Raise if a SQLite file has no table of events: another program wrote it."""
    if any(w.table in db.tables for w in nsys.EVENTS):
        return
    names = ", ".join(clean(name, 60) for name in list(db.tables)[:12]) or "none"
    raise UnreadableError(
        "is a SQLite file without the CUDA and NVTX tables of Nsight Systems",
        where=db.label,
        why=f"its tables: {names}{' …' if len(db.tables) > 12 else ''}",
        todo="export a report with: nsys export --type sqlite FILE.nsys-rep",
    )


def _note_missing_tables(db: nsys.ExportStore, tables: nsys.ExportTables) -> None:
    """Note what the file cannot answer because it lacks a table."""
    for table, effect in _MISSING_TABLE_EFFECTS.items():
        if table not in db.tables:
            db.log.note(f"missing_{table.lower()}", f"the file has no table {table}: {effect}")
    if tables.graphs.height:
        message = "CUDA graphs traced as a whole, without their kernels (use --cuda-graph-trace=node)"
        db.log.note("graphs_whole", message, count=tables.graphs.height)
    messages = db.read_pairs("DIAGNOSTIC_EVENT", "text", "severity")  # of the profiler, such as lost buffers
    warnings = [text for text, severity in messages if severity in _WARNING_SEVERITIES]
    if warnings:
        summary = "; ".join(clean(text, 200) for text in dict.fromkeys(warnings[:5]))
        db.log.note("profiler_warnings", f"the profiler warned: {summary}", count=len(warnings))


def _build_meta(db: nsys.ExportStore) -> dict[str, Any]:
    exports = (db.read_pairs(table, "name", "value") for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"))
    export = dict(next(filter(None, exports), []))
    system = dict(db.read_pairs("TARGET_INFO_SYSTEM_ENV", "name", "value"))
    devices = list(dict.fromkeys(name for name, _ in db.read_pairs("TARGET_INFO_GPU", "name", "id")))
    product = export.get("EXPORT_PRODUCT_NAME", "Nsight Systems").removeprefix("NVIDIA ")
    meta = {
        "producer": f"{product} {export.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        "schema": export.get("EXPORT_SCHEMA_VERSION"),
        "report": export.get("EXPORT_PARAM_INPUT_FILE") or export.get("EXPORT_INPUT_FILE"),
        "device": ", ".join(devices),
        "driver": system.get("NvDriverVersion"),
        "argv": _parse_argv(db.read_pairs("META_DATA_CAPTURE", "name", "value")),
        "profiled": True,
    }
    return {key: value for key, value in meta.items() if value}


def _parse_argv(capture: list[tuple[str, str]]) -> list[str]:
    """Return the profiled command line, without the environment, which may contain secrets."""
    prefix = "PROCESS_0:"
    first_process = {name.removeprefix(prefix): v for name, v in capture if name.startswith(prefix)}
    command = first_process.get("COMMAND")
    if not command:
        return []
    arguments = [v for name, v in first_process.items() if name.startswith("ARGUMENT_")]
    return [command, *arguments]
