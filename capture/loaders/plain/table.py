"""Any table with a name and a duration: CSV, TSV, semicolons, or one JSON object a line.

Read: columns that are understood by their headings, with units; every guess is said. Not read: columns of
other headings, tables without a header.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders._numbers import exact, number
from capture.loaders.plain import rows as plain_rows
from capture.loaders.plain.columns import MICROSECOND, TIMES, TRACKS, Found, guesses, understood
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "plain table"
PRODUCER: Final = "any program that writes a name and a duration a row"
HOWTO: Final = "print a header such as name,duration_us,step,layer and a row for each launch"

_FOREIGN: Final = frozenset({"kind", "ph", "cat", "event"})  # keys of other formats of JSON lines
_REAL: Final = ("bytes", "flops")
_TEXT: Final = ("name", "phase", "op", "shape")
_LARGEST: Final = 1 << 62
_LARGEST_LAYER: Final = 1 << 31


@dataclass(frozen=True)
class _Layout:
    """How a table is written and what its columns are."""

    separator: str | None  # none: JSON lines
    header: int  # the line on which the headings stand
    headings: tuple[str, ...]
    columns: dict[str, Found]


def sniff(head: Head) -> bool:
    """Return whether a name and a duration stand among the headings, and no other loader claims the input."""
    return _layout(plain_rows.lines_of(head.text)) is not None and not _claimed(head)


def _claimed(head: Head) -> bool:
    from capture.loaders import loaders

    return any(loader.sniff(head) for loader in loaders() if loader.FORMAT != FORMAT)


def _layout(lines: Sequence[str]) -> _Layout | None:
    first = next((i for i, ln in enumerate(lines[:50]) if ln.strip() and not ln.startswith("#")), None)
    if first is None or len(lines[first]) > 100_000:
        return None
    if lines[first].lstrip().startswith("{"):
        return _of_objects(lines[first], first)
    for separator in plain_rows.SEPARATORS:
        headings = tuple(plain_rows.cells(lines[first], separator))
        if len(headings) > 1 and (columns := understood(headings)) is not None:
            return _Layout(separator, first, headings, columns)
    return None


def _of_objects(line: str, first: int) -> _Layout | None:
    record = plain_rows.object_in(line)
    if record is None or _FOREIGN & record.keys():
        return None
    columns = understood(tuple(record))
    return _Layout(None, first, tuple(record), columns) if columns else None


def load(source: Source) -> list[Run]:
    lines = plain_rows.lines_of(source.text())
    layout = _layout(lines)
    if layout is None:
        raise UnreadableError("has no header with a name and a duration", where=source.label)
    log = source.log
    _note_nul(lines, log)
    if layout.separator is None:
        rows = plain_rows.objects(lines[layout.header :], layout.headings, log)
    else:
        rows = plain_rows.records(lines[layout.header + 1 :], layout.separator, log)
    events = _events(rows, layout, log)
    if events.is_empty():
        raise UnreadableError("has a header but no row that could be read", where=source.label)
    sentences = guesses(layout.columns)
    log.note("guessed_columns", "columns were guessed by their headings: " + "; ".join(sentences))
    return [build("table", {"guess": sentences}, events, log)]


def _note_nul(lines: Iterable[str], log: Log) -> None:
    holes = sum("\0" in line for line in lines)
    if holes:
        log.note("nul_bytes", "lines hold NUL bytes", count=holes, severity="data_loss")


def _events(rows: Iterable[plain_rows.Cells], layout: _Layout, log: Log) -> pl.DataFrame:
    """Return the rows that have a name, column by column."""
    comma = layout.separator not in (",", None)
    out: dict[str, list[Any]] = {c: [] for c in layout.columns if c not in TRACKS}
    tracks: list[str | None] = []
    for cells in rows:
        texts = _texts(cells, layout, log)
        if not (texts["name"] or "").strip() and not (texts["dur"] or "").strip():
            log.drop("empty_row", "rows with neither a name nor a duration")
            continue
        for column in out:
            out[column].append(_value(column, texts[column], layout.columns, comma, log))
        tracks.append(_track(texts))
    return _frame(out, tracks)


def _texts(cells: plain_rows.Cells, layout: _Layout, log: Log) -> dict[str, str | None]:
    """Return the text of each column that is understood; cells that a row lacks are None."""
    lacking = len(layout.headings) - len(cells)
    if lacking:
        log.note("ragged", "rows with more or fewer cells than the header", severity="data_loss")
        cells = cells + [None] * lacking
    return {column: plain_rows.as_text(cells[f.at]) for column, f in layout.columns.items()}


def _track(texts: dict[str, str | None]) -> str | None:
    """Return the track that a row's device, stream and thread name together, None where it has none."""
    return " ".join(f"{column} {texts[column]}" for column in TRACKS if texts.get(column)) or None


def _frame(out: dict[str, list[Any]], tracks: list[str | None]) -> pl.DataFrame:
    text = {c: pl.Series(v, dtype=pl.String) for c, v in out.items() if c in _TEXT}
    real = {c: pl.Series(v, dtype=pl.Float64) for c, v in out.items() if c in _REAL}
    whole = {c: pl.Series(v, dtype=pl.Int64) for c, v in out.items() if c not in text and c not in real}
    frame = pl.DataFrame({**text, **whole, **real, "track": pl.Series(tracks, dtype=pl.String)})
    return frame.with_columns(pl.col("t") - pl.col("t").min()) if "t" in whole else frame


def _value(column: str, text: str | None, columns: dict[str, Found], comma: bool, log: Log) -> Any:
    """Return a cell as the event column wants it.

    What is no number is None, and of a duration that is noted.
    """
    if column == "name":
        return text
    if column in _TEXT:
        return text or None
    value = number(_dotted(text, comma)) if text is not None and text.isascii() else None
    if column in _REAL:
        return None if value is None else float(value)
    whole = exact(value, _scale(column, columns))
    if column == "dur" and whole is None:
        log.note("bad_duration", "durations that are no number stand as unknown", severity="data_loss")
    return _bounded(whole, _LARGEST_LAYER if column == "layer" else _LARGEST)


def _bounded(value: int | None, most: int) -> int | None:
    """Return a value, None where it is as large as nothing can be."""
    return value if value is not None and abs(value) < most else None


def _scale(column: str, columns: dict[str, Found]) -> int:
    """Return the ns of one unit of a column of times, by its own heading or that of the durations; else 1."""
    if column not in TIMES:
        return 1
    return columns[column].unit or columns["dur"].unit or MICROSECOND


def _dotted(text: str, comma: bool) -> str:
    """Return a number with a decimal point, where tables without commas between cells may write a comma."""
    if comma and text.count(",") == 1 and text.rfind(",") > text.rfind("."):
        return text.replace(".", "").replace(",", ".")
    return text
