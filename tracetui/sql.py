"""Run SQL over a run: its events and the answers of its views are the only tables."""

import re
import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UsageError
from capture.native.schema import COLUMNS
from capture.run import Run
from capture.stderr_mute import mute_stderr
from tracetui.look import Look
from tracetui.report_formats import describe_run
from tracetui.views import MANY, View, ask, load_views

EVENTS: Final = "events"
RUNS: Final = "runs"
_FILE_READERS: Final = re.compile(r"read_\w+", re.IGNORECASE)  # SQL functions that open files
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_HIDES_LITERALS: Final = re.compile(r"--|/\*|#|\\|\$")
_CONTROL: Final = r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]"
MAX_QUERY_SECONDS: Final = 60
MAX_QUERY_BYTES: Final = 8 << 30
_POLL_SECONDS: Final = 0.1
_LESS: Final = "ask for less: a WHERE, a join with a condition"
_TABLES_ONLY: Final = "a query reads the tables of this profile, not files"
_QUERY_START: Final = re.compile(r"\s*\(*\s*(select|with|from|values)\b", re.IGNORECASE)


def execute_query(runs: Sequence[Run], chosen: int, text: str) -> pl.DataFrame:
    """Run a SELECT on the tables of a run; only tables named in the text are computed.

    Raise UsageError for anything else than a SELECT, and for one that fails.
    """
    if not _QUERY_START.match(text):
        raise UsageError(f"{clean(text, 60)!r} is not a SELECT", todo="queries are read-only")
    if match := _FILE_READERS.search(_drop_literals(text)):
        raise UsageError(f"{match.group()} would open a file", todo=_TABLES_ONLY)
    frames = {name: make() for name, make in build_tables(runs, chosen).items() if _is_mentioned(text, name)}
    try:
        with mute_stderr():
            rows = _run_limited(lambda: pl.SQLContext(frames).execute(text, eager=True))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as e:
        raise UsageError("the query failed", why=_describe_cause(e), todo=_describe_columns(frames)) from None
    return _clean_texts(rows)


def _drop_literals(text: str) -> str:
    """Return a query without its literals, so that a kernel may be called read_…; with comments unchanged.

    What may hide the end of a literal (comments, escapes) is not interpreted here.
    """
    if _HIDES_LITERALS.search(text):
        return text
    return _QUOTED.sub(lambda quoted: "''" if quoted[0].startswith("'") else quoted[0], text)


def _run_limited(compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """Return the result of a query; raise UsageError if it takes too long or too much memory.

    It goes on in its thread then, which ends with the process: nothing stops polars.
    """
    outcome: list[pl.DataFrame | BaseException] = []

    def run() -> None:
        try:
            outcome.append(compute())
        except BaseException as e:
            outcome.append(e)

    thread = threading.Thread(target=run, daemon=True)
    deadline, memory_limit = time.monotonic() + MAX_QUERY_SECONDS, _read_memory_bytes() + MAX_QUERY_BYTES
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
        if time.monotonic() > deadline:
            raise UsageError(f"the query takes more than {MAX_QUERY_SECONDS} s", todo=_LESS)
        if _read_memory_bytes() > memory_limit:
            raise UsageError(f"the query takes more than {MAX_QUERY_BYTES >> 30} GB of memory", todo=_LESS)
    [result] = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def _read_memory_bytes() -> int:
    """Read the resident memory of this process; 0 where /proc is missing."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _clean_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """Clean the names and texts that a query itself wrote; those of the profile are clean."""
    names = [clean(name, 1000) for name in rows.columns]
    if len({*names}) == len(names):
        rows.columns = names
    raw = [c for c in rows.select(pl.col(pl.String)).columns if rows[c].str.contains(_CONTROL).any()]
    return rows.with_columns(
        pl.col(c).map_elements(lambda text: clean(text, 1 << 20), return_dtype=pl.String) for c in raw
    )


def build_tables(runs: Sequence[Run], chosen: int) -> dict[str, Callable[[], pl.LazyFrame]]:
    """Return a function per table that computes it, by table name."""

    def answer(view: View) -> Callable[[], pl.LazyFrame]:
        view_runs = runs[chosen : chosen + 1] if view.run_count == 1 else runs
        return lambda: _cast_categories_to_text(ask(view, view_runs, Look(full_names=True)).rows.lazy())

    counts = {1, len(runs), *([MANY] if len(runs) > 1 else [])}
    return {
        EVENTS: lambda: _cast_categories_to_text(runs[chosen].events.lazy()),
        RUNS: lambda: pl.LazyFrame([describe_run(r, selected=i == chosen) for i, r in enumerate(runs)]),
        **{view.name: answer(view) for view in load_views() if view.run_count in counts},
    }


def describe_tables(runs: Sequence[Run], chosen: int) -> pl.DataFrame:
    """Return every table with its columns: `table`, `column`, `type`, `meaning`."""
    meanings = {(EVENTS, c.name): c.meaning for c in COLUMNS}
    rows = [
        (name, column, str(kind), meanings.get((name, column), ""))
        for name, make in build_tables(runs, chosen).items()
        for column, kind in make().collect_schema().items()
    ]
    schema = dict.fromkeys(("table", "column", "type", "meaning"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _cast_categories_to_text(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Cast categories to text, as LIKE and comparisons need it."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def _is_mentioned(text: str, table: str) -> bool:
    return re.search(rf"(?<!\w){table}(?!\w)", text, re.IGNORECASE) is not None


def _describe_cause(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return clean(first.partition("; valid columns")[0].strip(), 200)


def _describe_columns(frames: dict[str, pl.LazyFrame]) -> str:
    """Return a hint for a failed query: the columns of the named tables, or how to list the tables."""
    if not frames:
        return "`tracetui query FILE` lists the tables and their columns"
    parts = (f"{name} has {', '.join(f.collect_schema().names())}" for name, f in frames.items())
    return clean("; ".join(parts), 600)
