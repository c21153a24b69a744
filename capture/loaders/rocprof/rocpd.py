"""rocpd databases, which rocprofv3 writes by default: one SQLite file, a set of tables for each process.

Read: kernel dispatches, memory copies, API calls, markers (roctx) as scopes, agents as devices; of schemas 3
and 4, with times in the rows or in a table of their own. Not read: counters, allocations, samples of the
program counter, arguments of calls; and none of the file's views, which are code of whoever wrote it.
rocpd: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.loaders._database import MAGIC, ROCPD, Database, Kind, opened
from capture.loaders.chrome.rows import to_run
from capture.loaders.chrome.tables import Complete, Trace
from capture.loaders.rocprof.rocpd_tables import Process, read_process
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "rocpd"
PRODUCER: Final = "AMD rocprofv3, rocprof-sys"
HOWTO: Final = "rocprofv3 --sys-trace --output-format rocpd -- python run.py"

_KIND: Final = Kind("rocpd database", frozenset(), "copy it again, or record it again")
_STEM: Final = re.compile(r"rocpd_kernel_dispatch|rocpd_region|rocpd_memory_copy")
_ROWS: Final = ("t", "dur", "correlation", "args", "bytes", "cat", "name", "place")


def sniff(head: Head) -> bool:
    return head.raw.startswith(MAGIC) and ROCPD.search(head.raw) is not None


def load(source: Source) -> list[Run]:
    """Read a file as a run for each process that it holds."""
    with opened(source, _KIND) as db:
        processes = [read_process(db, suffix) for suffix in _suffixes(db)]
    if not any(part.height for process in processes for part in process.parts):
        raise UnreadableError("is a rocpd database without kernels, copies or calls", where=source.label)
    return [_run(process, len(processes) > 1, source) for process in processes]


def _suffixes(db: Database) -> Iterator[str]:
    """Yield what ends the names of each process's tables: an underscore and its GUID, or nothing."""
    found = {name[match.end() :] for name in db.tables if (match := _STEM.match(name))}
    yield from sorted(found)


def _run(process: Process, several: bool, source: Source) -> Run:
    rows = pl.concat([part.select(_ROWS) for part in process.parts])
    labels = rows.select("cat", "name", "place").unique(maintain_order=True)
    labels = labels.with_row_index("label")
    labelled = rows.join(labels, on=["cat", "name", "place"], how="left", maintain_order="left")
    complete = Complete(
        labelled.select(
            pl.col("label").cast(pl.UInt32), "t", "dur", "correlation",
            pl.lit(None, dtype=pl.Int64).alias("external"),
            pl.col("args").cast(pl.Categorical()), "bytes",
        ),
        labels.select("cat", "name", "place"),
    )  # fmt: skip
    header: dict[str, Any] = {"deviceProperties": process.devices}
    trace = Trace(complete, process.marks, header, lanes=process.lanes, producer="rocprofv3")
    return to_run(trace, source, part=f" pid {process.pid}" if several else "")
