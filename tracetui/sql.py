"""SQL over a run: its events and the answers of its views are tables, and a query reads nothing else."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.native.schema import COLUMNS
from capture.run import Run
from capture.text import clean
from capture.unheard import unheard
from tracetui.look import Look
from tracetui.report import run_entry
from tracetui.views import MANY, View, ask, views

EVENTS: Final = "events"
RUNS: Final = "runs"
_READS_FILES: Final = re.compile(r"read_\w+", re.IGNORECASE)  # functions of the dialect that open any file
_TABLES_ONLY: Final = "a query reads the tables of this profile, and no file"
_ASKS: Final = re.compile(r"\s*\(*\s*(select|with|from|values)\b", re.IGNORECASE)


def query(runs: Sequence[Run], chosen: int, text: str) -> pl.DataFrame:
    """Return what a SELECT answers on the tables of a run.

    Only tables that the text names are made. Raise UsageError for what is no such query.
    """
    if not _ASKS.match(text):
        raise UsageError(f"{clean(text, 60)!r} is no SELECT", todo="a query reads, and changes nothing")
    if found := _READS_FILES.search(text):
        raise UsageError(f"{found.group()} would open a file", todo=_TABLES_ONLY)
    frames = {name: make() for name, make in tables(runs, chosen).items() if _names(text, name)}
    try:
        with unheard():
            return pl.SQLContext(frames).execute(text, eager=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as e:
        raise UsageError("the query has no answer", why=_why(e), todo=_known(frames)) from None


def tables(runs: Sequence[Run], chosen: int) -> dict[str, Callable[[], pl.LazyFrame]]:
    """Return how each table is made, by name."""

    def answer(asked: View) -> Callable[[], pl.LazyFrame]:
        spoken_of = runs[chosen : chosen + 1] if asked.runs == 1 else runs
        return lambda: _plain(ask(asked, spoken_of, Look(full_names=True)).rows.lazy())

    fed = [v for v in views() if v.runs == 1 or len(runs) == v.runs or (v.runs == MANY and len(runs) > 1)]
    return {
        EVENTS: lambda: _plain(runs[chosen].events.lazy()),
        RUNS: lambda: pl.LazyFrame([run_entry(r, selected=i == chosen) for i, r in enumerate(runs)]),
        **{v.name: answer(v) for v in fed},
    }


def schema(runs: Sequence[Run], chosen: int) -> pl.DataFrame:
    """Return every table with its columns: `table`, `column`, `type`, `meaning`."""
    meanings = {c.name: c.meaning for c in COLUMNS}
    rows = []
    for name, make in tables(runs, chosen).items():
        for column, kind in make().collect_schema().items():
            meaning = meanings.get(column, "") if name == EVENTS else ""
            rows.append({"table": name, "column": column, "type": str(kind), "meaning": meaning})
    return pl.DataFrame(rows, schema=dict.fromkeys(("table", "column", "type", "meaning"), pl.String))


def _plain(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a frame whose categories are text, as LIKE and comparisons want them."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def _names(text: str, table: str) -> bool:
    return re.search(rf"(?<!\w){table}(?!\w)", text, re.IGNORECASE) is not None


def _why(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return clean(first.partition("; valid columns")[0].strip(), 200)


def _known(frames: dict[str, pl.LazyFrame]) -> str:
    """Return what to look at when a query fails: the columns of the tables that it names, or the tables."""
    if not frames:
        return "`tracetui query FILE` lists the tables and their columns"
    parts = (f"{name} has {', '.join(f.collect_schema().names())}" for name, f in frames.items())
    return clean("; ".join(parts), 600)
