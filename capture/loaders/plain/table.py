"""Any table with a name and a duration: CSV, TSV, semicolons, or one JSON object a line.

Read: columns that are understood by their headings, with units; every guess is said. Not read: columns of
other headings, tables without a header.
"""

from typing import Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders import claimed_by_others
from capture.loaders._separated import LINE, begin_of, split
from capture.loaders.plain import alike_objects, flat_objects, rows
from capture.loaders.plain.columns import guesses
from capture.loaders.plain.layout import FIRST, Layout, layout_of
from capture.loaders.plain.values import values_at_once, values_by_row
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "plain table"
PRODUCER: Final = "any program that writes a name and a duration a row"
HOWTO: Final = "print a header such as name,duration_us,step,layer and a row for each launch"


def sniff(head: Head) -> bool:
    """Return whether a name and a duration stand among the headings, and no other loader claims the input."""
    return layout_of(_lines(head.text)) is not None and not claimed_by_others(head, "plain.table")


def load(source: Source) -> list[Run]:
    layout = layout_of(_lines(source.head.text))
    if layout is None:
        raise UnreadableError("has no header with a name and a duration", where=source.label)
    text, log = source.utf8().replace(b"\r", b"\n"), source.log
    _note_nul(text, log)
    events = _events(text, layout, log)
    if events.is_empty():
        raise UnreadableError("has a header but no row that could be read", where=source.label)
    sentences = guesses(layout.columns)
    log.note("guessed_columns", "columns were guessed by their headings: " + "; ".join(sentences))
    return [build("table", {"guess": sentences}, events, log)]


def _lines(text: str) -> list[str]:
    """Return the first lines of a text, among which the headings stand."""
    return text.replace("\r", "\n").split("\n", FIRST)[:FIRST]


def _note_nul(text: bytes, log: Log) -> None:
    holes = sum(b"\0" in line for line in text.split(b"\n")) if b"\0" in text else 0
    if holes:
        log.note("nul_bytes", "lines hold NUL bytes", count=holes, severity="data_loss")


def _events(text: bytes, layout: Layout, log: Log) -> pl.DataFrame:
    """Return the rows that have a name or a duration, in the order of the file."""
    if layout.separator is None:
        frame = objects(text, layout, log)
    else:
        frame = separated(text, layout.separator, layout, log, layout.header + 1)
    frame = frame.drop(LINE)
    return frame.with_columns(pl.col("t") - pl.col("t").min()) if "t" in frame.columns else frame


def separated(text: bytes, separator: str, layout: Layout, log: Log, skip: int = 0) -> pl.DataFrame:
    """Return the rows of separated values: those of regular lines at once, the others one by one.

    As many lines as `skip` says stand above them.
    """
    cells, others = split(text, separator, [str(at) for at in range(len(layout.headings))], skip)
    last = cells.height + len(others) - 1
    if any(line.count('"') % 2 and at < last for at, line in others):  # it may go on in the next line
        return one_by_one(text[begin_of(text, skip) :], separator, layout, log)
    log.read += cells.height
    regular = values_at_once(cells, layout, log)
    if not others:
        return regular
    single = (row for at, line in others for row in rows.records([line], separator, log, at))
    return pl.concat([regular, values_by_row(single, layout, log)], how="diagonal").sort(LINE)


def objects(text: bytes, layout: Layout, log: Log) -> pl.DataFrame:
    """Return the rows of JSON lines: those laid out as the first one at once, the others one by one."""
    alike = alike_objects.cut(text, layout)
    if alike is not None:
        log.read += alike.height
        return values_at_once(alike, layout, log)
    lines = pl.Series([text.decode()]).str.split("\n").explode()[layout.header :]
    cells, others = flat_objects.split(lines, layout)
    log.read += cells.height
    regular = -1 if cells.is_empty() else cells[LINE][-1]
    last = max(regular, *(at for at, line in others if line.strip()), -1)
    single = values_by_row(rows.objects(others, layout.headings, log, last), layout, log)
    if cells.is_empty():
        return single
    return pl.concat([values_at_once(cells, layout, log), single], how="diagonal").sort(LINE)


def one_by_one(text: bytes, separator: str, layout: Layout, log: Log) -> pl.DataFrame:
    """Return the same rows without any haste: the way that says what is right."""
    return values_by_row(rows.records(text.decode().split("\n"), separator, log), layout, log)
