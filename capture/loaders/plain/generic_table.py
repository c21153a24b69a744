"""Any table with a name and a duration: CSV, TSV, semicolons, or one JSON object per line.

Read: columns whose heading is known, with units; every guess is reported. Not read: columns with other
headings, tables without a header.
"""

import re
from itertools import chain
from typing import Final

import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders import GENERIC_FORMAT, is_accepted_by_others
from capture.loaders._delimited import LINE, DelimitedTable, find_line_start, split_delimited
from capture.loaders.plain import line_records
from capture.loaders.plain.cell_values import convert_columns, convert_rows
from capture.loaders.plain.table_layout import (
    HEADER_LINES,
    TIME_COLUMNS,
    TableLayout,
    describe_guesses,
    detect_layout,
)
from capture.run import Run, build_run
from capture.source import Head, Source

FORMAT: Final = GENERIC_FORMAT
PRODUCER: Final = "any program that writes a name and a duration per row"
HOWTO: Final = "print a header such as name,duration_us,step,layer and one row per launch"
_PLAIN_KEY: Final = re.compile(r"[\w .:()\[\]%/µ-]{1,100}")
_JSON_TEXT: Final = r'"[^"\\\x00-\x1f]*"'
_INTEGER: Final = r"0|-?[1-9][0-9]{0,17}"
_POSITIVE: Final = r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,6})?"
_NEGATIVE: Final = r"-(?:0\.[0-9]{1,6}|[1-9][0-9]{0,17}(?:\.[0-9]{1,6})?)"
EXACT_DIGITS: Final = 15  # of a decimal number that a float holds exactly
_DECIMAL_COLUMNS: Final = (
    *TIME_COLUMNS,
    "count",
    "step",
    "layer",
    "bytes",
    "flops",
)  # columns in which 1.50 is 1.5


def sniff(head: Head) -> bool:
    """Accept a header with a name and a duration that no other loader accepts."""
    layout = detect_layout(_split_head_lines(head.text))
    return layout is not None and not is_accepted_by_others(head, "plain.generic_table")


def load(source: Source) -> list[Run]:
    layout = detect_layout(_split_head_lines(source.head.text))
    if layout is None:
        raise UnreadableError("has no header with a name and a duration", where=source.label)
    text, log = source.read_utf8().replace(b"\r", b"\n"), source.log
    _note_nul(text, log)
    events = _build_events(text, layout, log)
    if events.is_empty():
        raise UnreadableError("has a header but no readable row", where=source.label)
    guesses = describe_guesses(layout.columns)
    log.note("guessed_columns", "columns were guessed from their headings: " + "; ".join(guesses))
    return [build_run("table", {"guess": guesses}, events, log)]


def _split_head_lines(text: str) -> list[str]:
    """Return the first lines of a text, which contain the headings."""
    return text.replace("\r", "\n").split("\n", HEADER_LINES)[:HEADER_LINES]


def _note_nul(text: bytes, log: Log) -> None:
    line_count = sum(b"\0" in line for line in text.split(b"\n")) if b"\0" in text else 0
    if line_count:
        log.note("nul_bytes", "lines contain NUL bytes", count=line_count, severity="data_loss")


def _build_events(text: bytes, layout: TableLayout, log: Log) -> pl.DataFrame:
    """Convert the rows that have a name or a duration, in file order."""
    if layout.separator is None:
        frame = read_json_lines(text, layout, log)
    else:
        frame = read_delimited(text, layout.separator, layout, log, layout.header_line + 1)
    frame = frame.drop(LINE)
    return frame.with_columns(pl.col("t") - pl.col("t").min()) if "t" in frame.columns else frame


def read_delimited(text: bytes, separator: str, layout: TableLayout, log: Log, skip: int = 0) -> pl.DataFrame:
    """Read delimited text: regular lines in bulk, the others one by one.

    The first `skip` lines are ignored.
    """
    positions = [str(position) for position in range(len(layout.headings))]
    cells, others = split_delimited(text, separator, positions, skip)
    last = cells.height + len(others) - 1
    if any(
        line.count('"') % 2 and line_number < last for line_number, line in others
    ):  # it may go on in the next line
        return read_row_by_row(text[find_line_start(text, skip) :], separator, layout, log)
    log.read += cells.height
    regular = convert_columns(cells, layout, log)
    if not others:
        return regular
    lines = (line_records.iter_delimited([line], separator, log, number) for number, line in others)
    slow_rows = chain.from_iterable(lines)
    return pl.concat([regular, convert_rows(slow_rows, layout, log)], how="diagonal").sort(LINE)


def read_json_lines(text: bytes, layout: TableLayout, log: Log) -> pl.DataFrame:
    """Read JSON lines: those laid out like the first in bulk, the others one by one."""
    lines = pl.Series([text.decode()]).str.split("\n").explode()[layout.header_line :]
    cells, others = split_regular_objects(lines, layout)
    log.read += cells.height
    regular = -1 if cells.is_empty() else cells[LINE][-1]
    last_line = max(regular, *(line_number for line_number, line in others if line.strip()), -1)
    records = line_records.iter_json_lines(others, layout.headings, log, last_line)
    slow_rows = convert_rows(records, layout, log)
    if cells.is_empty():
        return slow_rows
    return pl.concat([convert_columns(cells, layout, log), slow_rows], how="diagonal").sort(LINE)


def read_row_by_row(text: bytes, separator: str, layout: TableLayout, log: Log) -> pl.DataFrame:
    """Read delimited text one record at a time: slow, but the reference for what is right."""
    return convert_rows(line_records.iter_delimited(text.decode().split("\n"), separator, log), layout, log)


def split_regular_objects(lines: pl.Series, layout: TableLayout) -> DelimitedTable:
    """Split the lines that match the layout of the first; return the others by number.

    A line matches if it has the same keys in the same order and simple values: texts without escapes, numbers
    that a float holds exactly, null.
    """
    pattern = _build_object_pattern(layout)
    text = lines.alias("text").to_frame().with_row_index(LINE)
    if pattern is None:
        return DelimitedTable(text.clear().select(LINE), text.rows())
    groups = [f"at{heading.position}" for heading in layout.columns.values()]
    cells = text.lazy().select(LINE, cells=pl.col("text").str.extract_groups(pattern)).unnest("cells")
    is_exact = [~pl.col(group).str.contains(".", literal=True) | _is_exact(pl.col(group)) for group in groups]
    values = (_unquoted(pl.col(group)).alias(group[2:]) for group in groups)
    rows = cells.select(LINE, pl.all_horizontal(is_exact).alias("fits"), *values).collect(engine="streaming")
    is_regular = rows["fits"].fill_null(value=False)
    return DelimitedTable(rows.filter(is_regular).drop("fits"), text.filter(~is_regular).rows())


def _is_exact(text: pl.Expr) -> pl.Expr:
    """Mark texts, and numbers that a float holds exactly."""
    return text.str.starts_with('"') | (text.str.len_bytes() <= EXACT_DIGITS + 1)


def _unquoted(text: pl.Expr) -> pl.Expr:
    """Text of a JSON value; null for null."""
    return pl.when(text != "null").then(text.str.strip_chars('"'))


def build_number_pattern(layout: TableLayout, at: int) -> str:
    """Build a pattern of the simple numbers of a key's column."""
    column = next((column for column, heading in layout.columns.items() if heading.position == at), "t")
    return f"{_POSITIVE}|{_NEGATIVE}" if column in _DECIMAL_COLUMNS else _INTEGER


def _build_object_pattern(layout: TableLayout) -> str | None:
    """Build a pattern with a group per known column; None if a key is unusual."""
    if not all(_PLAIN_KEY.fullmatch(key) for key in layout.headings):
        return None
    known_positions = {heading.position for heading in layout.columns.values()}
    members = []
    for at, key in enumerate(layout.headings):
        number = build_number_pattern(layout, at)
        group = f"(?P<at{at}>" if at in known_positions else "(?:"
        members.append(rf'"{re.escape(key)}" *: *{group}{_JSON_TEXT}|{number}|null)')
    return r"^[ \t]*\{ *" + " *, *".join(members) + r" *\}[ \t]*$"
