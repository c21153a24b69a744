"""Any table with a name and a duration: CSV, TSV, semicolons, JSON objects in a list or one per line.

Read: columns whose heading is known, with units; every guess is reported. Not read: columns with other
headings, tables without a header.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.classify.name_rules import infer_op_and_category
from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders import GENERIC_FORMAT, is_accepted_by_others
from capture.loaders._delimited import LINE, DelimitedTable, find_line_start, split_delimited
from capture.loaders._json_document import parse_object
from capture.loaders.plain import line_records
from capture.loaders.plain.cell_values import convert_columns, convert_rows
from capture.loaders.plain.table_layout import (
    HEADER_LINES,
    OPERATOR,
    SIDES,
    TIME_COLUMNS,
    TableLayout,
    describe_guesses,
    detect_layout,
)
from capture.run import Run, build_run
from capture.source import Head, Source

FORMAT: Final = GENERIC_FORMAT
PRODUCER: Final = "OpenVINO, TensorRT, TraceLens, any table of names and durations"
HOWTO: Final = "print a header such as name,duration_us,step,layer and one row per launch"
_PLAIN_KEY: Final = re.compile(r"[\w .:()\[\]%/µ-]{1,100}")
_JSON_TEXT: Final = r'"[^"\\\x00-\x1f]*"'
_INTEGER: Final = r"0|-?[1-9][0-9]{0,17}"
_POSITIVE: Final = r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,6})?"
_NEGATIVE: Final = r"-(?:0\.[0-9]{1,6}|[1-9][0-9]{0,17}(?:\.[0-9]{1,6})?)"
_SORTED_TOTALS: Final = re.compile(rb"(?m)^Total (?:CPU )?time: [\d.]+ milliseconds\n+")
_PRECISIONS: Final = {"f32": "fp32", "f16": "fp16"}  # of OpenVINO, as rows call them
_MAX_REPORT_LETTERS: Final = 1 << 16
_TOTAL_NAMES: Final = ("total", "sum")
_MAX_ROUNDING: Final = 0.02  # of a total, as the rows are rounded
_EXACT_DIGITS: Final = 15  # of a decimal number that a float holds exactly
_DECIMAL_COLUMNS: Final = (*TIME_COLUMNS, "count", "step", "layer", "bytes", "flops")  # numbers: 1.50 is 1.5


def sniff(head: Head) -> bool:
    """Accept a header with a name and a duration that no other loader accepts."""
    layout = detect_layout(_split_head_lines(head.text))
    return layout is not None and not is_accepted_by_others(head, "plain.generic_table")


def load(source: Source) -> list[Run]:
    layout = detect_layout(_split_head_lines(source.head.text))
    if layout is None:
        raise UnreadableError("has no header with a name and a duration", where=source.label)
    text, log = _mend_sorted_counters(source.read_utf8().replace(b"\r", b"\n")), source.log
    if line_records.is_list(source.head.text):
        text = "\n".join(line_records.split_list(text.decode(), log)).encode()
    if nul_count := sum(b"\0" in line for line in text.split(b"\n")) if b"\0" in text else 0:
        log.note("nul_bytes", "lines contain NUL bytes", count=nul_count, severity="data_loss")
    events = _build_events(text, layout, log)
    if events.is_empty():
        raise UnreadableError("has a header but no readable row", where=source.label)
    guesses = describe_guesses(layout.columns)
    log.note("guessed_columns", "columns were guessed from their headings: " + "; ".join(guesses))
    meta = {"guess": guesses, **read_openvino_report(source)}
    if "track" not in events.columns or set(events["track"].unique()) != set(SIDES):
        return [build_run("table", meta, events, log)]
    sides = [(side.split()[1], events.filter(pl.col("track") == side).drop("track")) for side in SIDES]
    return [build_run(side, meta, rows, log) for side, rows in sides]


def read_openvino_report(source: Source) -> dict[str, Any]:
    """Read how benchmark_app ran from its report next to the counters: options, batch, threads, input sizes.

    The folders of the report and of the model are none of the run.
    """
    if not source.reports:
        return {}
    try:
        with source.reports[0].open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_REPORT_LETTERS)
    except OSError as e:
        source.log.note("unread_report", f"the report next to the counters is not read: {e.strerror}")
        return {}
    return _build_openvino_meta(
        _list_json_members(text) if text.startswith("{") else re.findall(r"(?m)^([-\w ]+);(.*)$", text)
    )


def _build_openvino_meta(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Build the metadata of a run from the members of its report."""
    options = {key: value for key, value in pairs if key[0] == "-" and key != "-report_folder"}
    options |= {"-m": PurePath(options["-m"]).name} if "-m" in options else {}
    precision = options.get("-infer_precision", "")
    meta: dict[str, Any] = {
        "producer": "OpenVINO",
        **({"dtype": _PRECISIONS.get(precision, precision)} if precision else {}),
        "argv": ["benchmark_app", *map(clean, chain(*options.items()))],
    }
    if shapes := re.findall(r"\[([\d,]{1,99})\]", options.get("-shape", "")):
        meta["program inputs"] = Counter(shape.replace(",", "x") for shape in shapes)
    numbers = {"batch": dict(pairs).get("batch size", ""), "threads": options.get("-nthreads", "")}
    return meta | {key: int(text) for key, text in numbers.items() if re.fullmatch(r"[1-9]\d{0,8}", text)}


def _list_json_members(text: str) -> list[tuple[str, str]]:
    """List the texts of the parts of a report in JSON."""
    parts = parse_object(text).values()
    members = chain.from_iterable(part.items() for part in parts if isinstance(part, dict))
    return [(key, value) for key, value in members if key and isinstance(value, str)]


def _mend_sorted_counters(text: bytes) -> bytes:
    """Mend the table of OpenVINO's -pcsort: its last heading has a line end, and two sums follow it."""
    heading, newline, rest = text.partition(b'"proportion (%)\n"\n')
    return heading + b"proportion (%)\n" + _SORTED_TOTALS.sub(b"", rest) if newline else text


def _split_head_lines(text: str) -> list[str]:
    if line_records.is_list(text):
        return line_records.split_list(text, Log(), HEADER_LINES)
    return text.replace("\r", "\n").split("\n", HEADER_LINES)[:HEADER_LINES]


def _build_events(text: bytes, layout: TableLayout, log: Log) -> pl.DataFrame:
    """Convert the rows that have a name or a duration, in file order."""
    if layout.separator is None:
        frame = _drop_total(read_json_lines(text, layout, log).drop(LINE), log)
    else:
        text, starts = _blank_repeated_headings(text, layout.header_line)
        frame = read_delimited(text, layout.separator, layout, log, layout.header_line + 1)
        frame = _join_tables(frame, starts, log).drop(LINE)
    frame = name_operators(frame)
    return frame.with_columns(pl.col("t") - pl.col("t").min()) if "t" in frame.columns else frame


def _blank_repeated_headings(text: bytes, header_line: int) -> tuple[bytes, list[int]]:
    """Blank the lines that repeat the headings, as begins of further tables; also return their numbers.

    These count from the line after the headings.
    """
    begin, end = (find_line_start(text, line) for line in (header_line, header_line + 1))
    heading = b"\n" + text[begin:end]
    if not heading.endswith(b"\n") or text.find(heading, end - 1) < 0:
        return text, []
    starts, line = list[int](), -header_line - 1
    for table in text.split(heading)[:-1]:
        starts.append(line + table.count(b"\n") + 1)
        line = starts[-1] + 1
    return text.replace(heading, b"\n\n"), [start for start in starts if start >= 0]


def _join_tables(frame: pl.DataFrame, starts: Sequence[int], log: Log) -> pl.DataFrame:
    """Drop the total of each table; of those of OpenVINO, which writes one per request, each is a step."""
    if not starts:
        return _drop_total(frame, log)
    number = pl.lit(pl.Series(starts, dtype=pl.Int64)).search_sorted(pl.col(LINE).cast(pl.Int64)) + 1
    frame = frame.with_columns(table=number.cast(pl.Int64))
    tables = pl.concat(_drop_total(table, log) for table in frame.partition_by("table", maintain_order=True))
    if "step" in tables.columns or OPERATOR not in tables.columns:
        return tables.drop("table")
    note_requests(len(starts) + 1, log)
    return tables.rename({"table": "step"})


def note_requests(count: int, log: Log) -> None:
    """Note that the steps are those of several requests of OpenVINO."""
    log.note("requests", f"{count:,} requests: each step is the last inference of one of them")


def name_operators(frame: pl.DataFrame) -> pl.DataFrame:
    """Append what a node is to its name, in parentheses, if that leaves its category open."""
    if OPERATOR not in frame.columns:
        return frame
    names = frame["name"].fill_null("")
    is_open = pl.Series([infer_op_and_category(name)[1] == "other" for name in names], dtype=pl.Boolean)
    is_named = is_open & frame[OPERATOR].is_not_null()
    name = pl.when(is_named).then(pl.format("{} ({})", "name", OPERATOR)).otherwise("name")
    return frame.with_columns(name=name).drop(OPERATOR)


def _drop_total(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Drop a last row that is named total and is the sum of the others."""
    if frame.height < 3 or str(frame["name"][-1] or "").strip().lower() not in _TOTAL_NAMES:
        return frame
    total, others = frame["dur"][-1], int(frame["dur"][:-1].sum())
    if total is None or abs(total - others) > _MAX_ROUNDING * others:
        return frame
    log.read -= 1
    log.note("total_row", "a last row that is the sum of the others is left out")
    return frame[:-1]


def read_delimited(text: bytes, separator: str, layout: TableLayout, log: Log, skip: int = 0) -> pl.DataFrame:
    """Read delimited text behind `skip` lines: regular lines in bulk, the others one by one."""
    positions = [str(position) for position in range(len(layout.headings))]
    cells, others = split_delimited(text, separator, positions, skip)
    last = cells.height + len(others) - 1
    # a record with an odd number of quotes may go on in the next line
    if any(line.count('"') % 2 and line_number < last for line_number, line in others):
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
    last_regular = -1 if cells.is_empty() else cells[LINE][-1]
    last_line = max(last_regular, *(line_number for line_number, line in others if line.strip()), -1)
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
    numbered = lines.alias("text").to_frame().with_row_index(LINE)
    if pattern is None:
        return DelimitedTable(numbered.clear().select(LINE), numbered.rows())
    groups = [f"at{heading.position}" for heading in layout.columns.values()]
    cells = numbered.lazy().select(LINE, cells=pl.col("text").str.extract_groups(pattern)).unnest("cells")
    text = pl.col(groups)
    is_short = text.str.len_bytes() <= _EXACT_DIGITS + 1
    is_exact = ~text.str.contains(".", literal=True) | text.str.starts_with('"') | is_short
    values = (
        pl.when(text != "null")
        .then(text.str.strip_chars('"'))
        .name.map(lambda group: group.removeprefix("at"))
    )
    rows = cells.select(LINE, pl.all_horizontal(is_exact).alias("fits"), values).collect(engine="streaming")
    is_regular = rows["fits"].fill_null(value=False)
    return DelimitedTable(rows.filter(is_regular).drop("fits"), numbered.filter(~is_regular).rows())


def _build_object_pattern(layout: TableLayout) -> str | None:
    """Build a pattern with a group per known column; None if a key is unusual."""
    if not all(_PLAIN_KEY.fullmatch(key) for key in layout.headings):
        return None
    columns = {heading.position: column for column, heading in layout.columns.items()}
    members = []
    for at, key in enumerate(layout.headings):
        is_decimal = columns.get(at, "t") in _DECIMAL_COLUMNS
        number = f"{_POSITIVE}|{_NEGATIVE}" if is_decimal else _INTEGER
        group = f"(?P<at{at}>" if at in columns else "(?:"
        members.append(rf'"{re.escape(key)}" *: *{group}{_JSON_TEXT}|{number}|null)')
    return r"^[ \t]*\{ *" + " *, *".join(members) + r" *\}[ \t]*$"
