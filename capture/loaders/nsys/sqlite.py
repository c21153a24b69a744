"""Nsight Systems reports exported as SQLite, in the schemas of 2022 to 2026.

Read: kernels, copies, memsets, graphs, API calls, synchronisation, NVTX ranges and marks, of any number of
processes and GPUs; a table or column that lacks is no error. Not read: `.nsys-rep` itself, samples of the
CPU, GPU metrics.
The schema: https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.inference import with_inferred
from capture.loaders._database import MAGIC, ROCPD, Database, Kind, opened
from capture.loaders.nsys import tables as nsys
from capture.loaders.nsys.rows import events
from capture.run import Run, build
from capture.source import Head, Source
from capture.text import clean

FORMAT = "nsys-sqlite"
PRODUCER = "NVIDIA Nsight Systems"
HOWTO = "nsys profile -t cuda,nvtx -o run CMD; nsys export --type sqlite run.nsys-rep"

_OTHERS: Final = (
    "StringIds", "ThreadNames", "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT",
    "EXPORT_META_DATA", "META_DATA_CAPTURE", "DIAGNOSTIC_EVENT",
    nsys.MEMORY_KINDS,
)  # fmt: skip
_KIND: Final = Kind(
    "export of Nsight Systems",
    frozenset(w.table for w in nsys.EVENTS) | frozenset(_OTHERS),
    "copy it again, or export it again: nsys export --type sqlite FILE.nsys-rep",
)
_MISSING: Final = {
    nsys.KERNELS.table: "no kernels: capture with -t cuda",
    nsys.CALLS.table: "no API calls, so no kernel can be placed in an NVTX range: capture with -t cuda",
    nsys.RANGES.table: "no NVTX ranges, so no phases, layers or steps: capture with -t cuda,nvtx",
    nsys.COPIES.table: "no memory copies",
    nsys.FILLS.table: "no memory fills",
    nsys.WAITS.table: "no synchronisations",
    "StringIds": "no names",
}
_WARNING: Final = ("2", "3")


def sniff(head: Head) -> bool:
    return head.raw.startswith(MAGIC) and not ROCPD.search(head.raw)


def load(source: Source) -> list[Run]:
    """Read a file as one run: processes and devices are its tracks."""
    with opened(source, _KIND) as db:
        _refuse_strangers(db)
        contents = _contents(db)
    return [_run(contents, source.log, "nsys")]


def run_of(store: nsys.Store, log: Log, name: str) -> Run:
    """Return the run in the tables of a store; it is called `name` where they do not name a report."""
    return _run(_contents(store), log, name)


def _contents(db: nsys.Store) -> tuple[nsys.Tables, dict[str, Any], pl.DataFrame]:
    """Return the rows, the metadata and the list of tables."""
    tables = nsys.read_tables(db)
    _note_gaps(db, tables)
    return tables, _meta(db), _inventory(db)


def _run(contents: tuple[nsys.Tables, dict[str, Any], pl.DataFrame], log: Log, name: str) -> Run:
    tables, meta, inventory = contents
    more = {"launches": nsys.launches(tables), "copies": nsys.copy_table(tables), "tables": inventory}
    name = PurePath(meta.get("report", name)).stem
    return with_inferred(build(name, meta, events(tables, log), log, more), log)


def _refuse_strangers(db: Database) -> None:
    """Refuse a SQLite file without one table of events: it is somebody else's."""
    if any(w.table in db.tables for w in nsys.EVENTS):
        return
    listed = ", ".join(clean(name, 60) for name in list(db.tables)[:12]) or "none"
    raise UnreadableError(
        "is a SQLite file without the CUDA and NVTX tables of Nsight Systems",
        where=db.label,
        why=f"its tables: {listed}{' …' if len(db.tables) > 12 else ''}",
        todo="export a report with: nsys export --type sqlite FILE.nsys-rep",
    )


def _note_gaps(db: nsys.Store, tables: nsys.Tables) -> None:
    """Note what the file cannot answer, by the names of the tables that it lacks."""
    for table, effect in _MISSING.items():
        if table not in db.tables:
            db.log.note(f"missing_{table.lower()}", f"the file has no table {table}: {effect}")
    if tables.graphs.height:
        message = "CUDA graphs traced whole: their kernels are not in the file (--cuda-graph-trace=node)"
        db.log.note("graphs_whole", message, count=tables.graphs.height)
    _note_diagnostics(db.pairs("DIAGNOSTIC_EVENT", "text", "severity"), db.log)


def _note_diagnostics(messages: list[tuple[str, str]], log: Log) -> None:
    """Note the profiler's own warnings, of lost buffers among others."""
    grave = [text for text, severity in messages if severity in _WARNING]
    if grave:
        shown = "; ".join(clean(text, 200) for text in dict.fromkeys(grave[:5]))
        log.note("profiler_warnings", f"the profiler warned: {shown}", count=len(grave))


def _meta(db: nsys.Store) -> dict[str, Any]:
    export = dict(
        db.pairs("META_DATA_EXPORT", "name", "value") or db.pairs("EXPORT_META_DATA", "name", "value")
    )
    system = dict(db.pairs("TARGET_INFO_SYSTEM_ENV", "name", "value"))
    devices = list(dict.fromkeys(name for name, _ in db.pairs("TARGET_INFO_GPU", "name", "id")))
    product = export.get("EXPORT_PRODUCT_NAME", "Nsight Systems").removeprefix("NVIDIA ")
    meta = {
        "producer": f"{product} {export.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        "schema": export.get("EXPORT_SCHEMA_VERSION"),
        "report": export.get("EXPORT_PARAM_INPUT_FILE") or export.get("EXPORT_INPUT_FILE"),
        "device": ", ".join(devices),
        "driver": system.get("NvDriverVersion"),
        "argv": _argv(db.pairs("META_DATA_CAPTURE", "name", "value")),
        "profiled": True,
    }
    return {key: value for key, value in meta.items() if value}


def _argv(capture: list[tuple[str, str]]) -> list[str]:
    """Return the command that was profiled; its environment, which may hold secrets, is left where it is."""
    of_first = {name.removeprefix("PROCESS_0:"): v for name, v in capture if name.startswith("PROCESS_0:")}
    command = of_first.get("COMMAND")
    if not command:
        return []
    arguments = [v for name, v in of_first.items() if name.startswith("ARGUMENT_")]
    return [command, *arguments]


def _inventory(db: nsys.Store) -> pl.DataFrame:
    """Return every table of the file, and how many of its rows were used."""
    rows = [(clean(name, 200), db.rows.get(name)) for name in db.tables]
    return pl.DataFrame(rows, schema={"table": pl.String, "rows_read": pl.Int64}, orient="row")
