"""Nsight Compute in CSV (details, summary per kernel, raw page), and the details that it prints as text.

Read: the duration of each launch, and every metric as a table. Not read: `.ncu-rep` itself, sources and
rules.
Nsight Compute: https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

import polars as pl

from capture.dense_lookup import build_constant_columns, evaluate_per_distinct
from capture.import_log import Log
from capture.loaders._delimited import (
    LINE,
    MIN_INEXACT_LENGTH,
    parse_floats,
    parse_scaled_integers,
    split_lines,
    split_with_fallback,
    split_with_scanner,
)
from capture.loaders._nsight_text import RULE, TIME_UNITS, find_spans, split_csv_line, split_row
from capture.loaders._typed_cells import parse_decimal, parse_float, parse_nanoseconds, scale_to_integer
from capture.run import Run, build_run
from capture.source import Head, Source

FORMAT = "ncu"
PRODUCER = "NVIDIA Nsight Compute"
HOWTO = "ncu --csv --page details CMD > run.csv (or: ncu --import run.ncu-rep --csv)"

_IDENTITY: Final = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Invocations",
)  # fmt: skip
# name (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.6; until 2022 a date follows the name
_LAUNCH_LINE: Final = re.compile(
    r"^\s*(?P<name>\S.*?)"
    r"(?: \((?P<grid>[\d, ]+)\)x\((?P<block>[\d, ]+)\)|, (?P<time>\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d))"
    r", Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+))?(?:, CC (?P<compute>[\d.]+))?\s*$"
)
_PROCESS_LINE: Final = re.compile(r"^\s*\[(?P<id>\d+)\] (?P<name>[^@]+)@\S+\s*$")
_METRIC_HEADINGS: Final = ("Metric Name", "Metric Unit", "Metric Value", "Average", "Minimum", "Maximum")
_DURATION_METRICS: Final = (
    "Duration", "gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max",
)  # fmt: skip
_ROW_COLUMN: Final = "\0line"  # our own columns: no header contains a NUL
_LAUNCH_COLUMN: Final = "\0launch"
_TABLE_COLUMN: Final = "\0table"
_NAME_COLUMN: Final = "\0name"
_VALUE_COLUMN: Final = "\0value"
_METRIC_COLUMNS: Final = ("launch", "name", "unit", "value", "least", "most")
_NO_METRICS: Final = pl.DataFrame(schema=dict.fromkeys(_METRIC_COLUMNS, pl.String))


@dataclass(frozen=True)
class NcuPage:
    """Launches by id, in file order, and every metric of each launch, as text.

    A launch has the columns of `_IDENTITY` that its own table has, null otherwise.
    """

    launches: pl.DataFrame
    metrics: pl.DataFrame


class _HeaderLine(NamedTuple):
    """The line that names the columns: its cells, where it begins, and where the lines below it begin."""

    cells: list[str]
    start: int
    next_line: int
    is_quoted: bool  # then all records below it are quoted, too


def sniff(head: Head) -> bool:
    if any(", Context " in line and _LAUNCH_LINE.match(line) for line in head.lines):
        return True
    return any("Kernel Name" in line and _is_header(split_csv_line(line, ",")) for line in head.lines)


def load(source: Source) -> list[Run]:
    text = source.read_utf8()
    page = _read_page(text, source.log)
    durations = _select_durations(page)
    if missing_count := page.launches.height - durations.height:
        message = "launches without a Duration metric (capture with --section SpeedOfLight)"
        source.log.note("no_duration", message, count=missing_count)
    events = _build_events(page.launches, durations)
    launches = page.launches.drop("Section Name", "launch", strict=False)
    tables = {"ncu": _build_metric_table(page), "launches": launches}
    first = next(page.launches.head(1).iter_rows(named=True), {})
    meta = {"producer": PRODUCER, "process": first.get("Process Name"), "compute": first.get("CC")}
    meta = {key: value for key, value in meta.items() if value} | {"profiled": True}
    return [build_run("ncu", meta, events, source.log, tables)]


def _is_header(cells: Sequence[str] | None) -> bool:
    cell_set = set(cells or ())
    is_page = "Process ID" in cell_set and bool(cell_set & {"ID", "Metric Name"})
    return "Kernel Name" in cell_set and (is_page or cell_set >= set(_METRIC_HEADINGS[:3]))


def _read_page(text: bytes, log: Log) -> NcuPage:
    """Read all records below their headers, else the tables of a printed page; other text is ignored."""
    headers, lines_above, offset = _find_headers(text), 0, 0
    if not headers:
        return _read_printed_page(text, log)
    launches, metrics = [], [_NO_METRICS]
    for header, end in zip(headers, [*(header.start for header in headers[1:]), len(text)], strict=True):
        lines_above, offset = lines_above + text.count(b"\n", offset, header.next_line), header.next_line
        for units, table in _iter_tables(text, header, end, lines_above, log):
            launches.append(_select_launches(table))
            is_details = "Metric Name" in header.cells
            metrics.append(_read_details(table) if is_details else _read_raw_page(table, units))
    return NcuPage(_merge_launches(launches), pl.concat(metrics))


def _read_printed_page(text: bytes, log: Log) -> NcuPage:
    """Read the launches and the tables below them from what is printed without `--csv`."""
    launches: list[dict[str, str]] = []
    metrics: list[tuple[str, ...]] = []
    process: Mapping[str, str] = {}
    spans: list[tuple[int, int]] = []
    for at, line in enumerate(text.decode().split("\n")):
        if launch := _LAUNCH_LINE.match(line):
            launches.append(_describe_launch(str(len(launches)), process, launch.groupdict(default="")))
        elif owner := _PROCESS_LINE.match(line):
            process = owner.groupdict()
        elif RULE.match(line):
            spans = find_spans(line)
            continue
        elif spans and launches and line.strip():
            cells = split_row(line, spans)
            if cells is None or len(cells) != len(_METRIC_HEADINGS[:3]):
                log.drop("bad_row", "rows that do not fit the header above them", at=at + 1)
            elif cells[0] != _METRIC_HEADINGS[0]:
                metrics.append((launches[-1]["launch"], *cells, "", ""))
            continue
        spans = []
    log.read += len(launches)
    rows = pl.DataFrame(metrics, schema=dict.fromkeys(_METRIC_COLUMNS, pl.String), orient="row")
    return NcuPage(pl.DataFrame(launches, schema=None if launches else {"launch": pl.String}), rows)


def _describe_launch(number: str, process: Mapping[str, str], printed: Mapping[str, str]) -> dict[str, str]:
    """Return the identity of a printed launch, under the names of the CSV pages."""
    return {
        "launch": number, "ID": number,
        "Process ID": process.get("id", ""), "Process Name": process.get("name", ""),
        "Kernel Name": printed["name"], "Kernel Time": printed["time"],
        "Context": printed["context"], "Stream": printed["stream"], "Device": printed["device"],
        "CC": printed["compute"], "Grid Size": f"({printed['grid']})", "Block Size": f"({printed['block']})",
    }  # fmt: skip


def _find_headers(text: bytes) -> list[_HeaderLine]:
    """Find the header lines of a text; backwards, because Python's rfind is faster here."""
    headers: list[_HeaderLine] = []
    offset = len(text)
    while (offset := text.rfind(b"Kernel Name", 0, offset)) >= 0:
        offset = text.rfind(b"\n", 0, offset) + 1
        next_line = text.find(b"\n", offset) + 1 or len(text)
        cells = split_csv_line(text[offset:next_line].decode().removesuffix("\n"), ",") or []
        if _is_header(cells):
            headers.append(_HeaderLine(cells, offset, next_line, is_quoted=text.startswith(b'"', offset)))
    return headers[::-1]


def _read_rows(text: bytes, header: _HeaderLine, end: int) -> tuple[pl.DataFrame, list[int]]:
    """Read the rows between a header and an offset; also return the numbers of bad lines."""
    positions = [str(position) for position in range(len(header.cells))]
    scanned = split_with_scanner(text, ",", positions, header.next_line, end, quoted=header.is_quoted)
    if scanned is not None:
        return scanned.with_row_index(LINE), []

    def pad_cells(line: str) -> list[str] | None:
        cells = split_csv_line(line, ",")
        fits = cells is not None and _count_required_cells(header.cells) <= len(cells) <= len(positions)
        return [*cells, *[""] * (len(positions) - len(cells))] if cells is not None and fits else None

    rows = text[header.next_line : end]
    return split_with_fallback(_clear_noise(rows) if header.is_quoted else rows, ",", positions, pad_cells)


def _clear_noise(text: bytes) -> bytes:
    """Blank the lines that a program printed between quoted records."""
    lines = split_lines(text)
    is_record = lines.str.starts_with('"') | lines.str.contains("Kernel Name", literal=True)
    if is_record.all():
        return text
    return "\n".join(lines.zip_with(is_record, pl.Series([""]).new_from_index(0, lines.len()))).encode()


def _iter_tables(
    text: bytes, header: _HeaderLine, end: int, lines_above: int, log: Log
) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """Yield rows by column name, with the units printed above them, and count those that do not fit."""
    rows, bad_lines = _read_rows(text, header, end)
    positions = [str(position) for position in range(len(header.cells))]
    unit_rows = rows.select(pl.all_horizontal(pl.col(positions[:5]) == "")).to_series().arg_true().to_list()
    log.read += rows.height - len(unit_rows) + len(bad_lines)
    for position in bad_lines:
        log.drop("bad_row", "rows that do not fit the header above them", at=lines_above + position)
    names = (name.replace("\0", "") for name in header.cells)
    position_by_name = dict(zip(names, positions, strict=True))  # the last of two columns with one name
    columns = (pl.col(position).alias(name) for name, position in position_by_name.items())
    table = rows.select(pl.col(LINE).alias(_ROW_COLUMN), *columns)
    for unit_row, next_unit_row in zip([-1, *unit_rows], [*unit_rows, rows.height], strict=True):
        units = table.drop(_ROW_COLUMN).row(unit_row, named=True) if unit_row >= 0 else {}
        yield units, _with_launch(table[unit_row + 1 : next_unit_row])


def _with_launch(table: pl.DataFrame) -> pl.DataFrame:
    """Add the id of each launch; without an ID column, process and kernel identify it."""
    owner = [pl.col("Process ID")] if "Process ID" in table.columns else []
    launch = pl.concat_str(*owner, "Kernel Name", separator=" ")
    if "ID" in table.columns:
        has_all_ids = (table["ID"] != "").all()
        launch = pl.col("ID") if has_all_ids else pl.coalesce(pl.when(pl.col("ID") != "").then("ID"), launch)
    return table.with_columns(launch.alias(_LAUNCH_COLUMN))


def _count_required_cells(header: Sequence[str]) -> int:
    """Count the cells that a row must have: those of rules, at its end, may be missing."""
    if "Metric Name" not in header:
        return len(header)
    required = ("Kernel Name", *_METRIC_HEADINGS)
    return 1 + max(position for position, cell in enumerate(header) if cell in required)


def _select_launches(table: pl.DataFrame) -> pl.DataFrame:
    """Select the first row of each launch of a table, with only its identity columns."""
    identity = [c for c in _IDENTITY if c in table.columns]
    is_first_row = (table[_LAUNCH_COLUMN] != table[_LAUNCH_COLUMN].shift(1)).fill_null(value=True)
    rows = table.select(pl.col(_LAUNCH_COLUMN).alias("launch"), *identity).filter(is_first_row)
    return rows.unique("launch", keep="first", maintain_order=True)


def _merge_launches(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Take each launch from the first table that has it, without columns of other tables."""
    if not tables:
        return pl.DataFrame(schema={"launch": pl.String})
    numbered = [table.with_columns(pl.lit(index).alias(_TABLE_COLUMN)) for index, table in enumerate(tables)]
    rows = pl.concat(numbered, how="diagonal").unique("launch", keep="first", maintain_order=True)
    known_columns = {column for index in rows[_TABLE_COLUMN].unique() for column in tables[index].columns}
    return rows.select("launch", *(c for c in _IDENTITY if c in known_columns))


def _read_details(table: pl.DataFrame) -> pl.DataFrame:
    """Read the metrics of a details page; rows without a metric are about rules."""
    value = "Metric Value" if "Metric Value" in table.columns else "Average"
    headings = ("Metric Name", "Metric Unit", value, "Minimum", "Maximum")
    columns = dict(zip(_METRIC_COLUMNS[1:], headings, strict=True))
    cells = [pl.col(c) if c in table.columns else pl.lit("") for c in columns.values()]
    is_named = table["Metric Name"] != ""
    metric_rows = table if is_named.all() else table.filter(is_named)
    named_cells = (cell.alias(name) for name, cell in zip(columns, cells, strict=True))
    return metric_rows.select(pl.col(_LAUNCH_COLUMN).alias("launch"), *named_cells)


def _read_raw_page(table: pl.DataFrame, units: Mapping[str, str]) -> pl.DataFrame:
    """Read the metrics of a raw page, which has one column per metric."""
    names = [c for c in table.columns if c not in (*_IDENTITY, _ROW_COLUMN, _LAUNCH_COLUMN)]
    if not names:
        return _NO_METRICS
    index = [_ROW_COLUMN, _LAUNCH_COLUMN]
    cells = table.unpivot(names, index=index, variable_name=_NAME_COLUMN, value_name=_VALUE_COLUMN)
    unit = pl.col("name").replace_strict(units, default="", return_dtype=pl.String) if units else pl.lit("")
    cells = cells.rename({_NAME_COLUMN: "name", _VALUE_COLUMN: "value", _LAUNCH_COLUMN: "launch"})
    printed = cells.filter(pl.col("value") != "").sort(_ROW_COLUMN, maintain_order=True)
    return printed.with_columns(unit=unit, least=pl.lit(""), most=pl.lit("")).select(_METRIC_COLUMNS)


def _select_durations(page: NcuPage) -> pl.DataFrame:
    """Select the metric that times each launch; the simplest one if there are several."""
    ranks = {name: rank for rank, name in enumerate(_DURATION_METRICS)}
    is_duration = pl.col("name").is_in(_DURATION_METRICS)
    time_metrics = page.metrics.filter(is_duration, pl.col("unit").is_in(list(TIME_UNITS)))
    numbers = time_metrics.filter(parse_floats(time_metrics["value"], parse_float).is_not_null())
    by_rank = numbers.sort(pl.col("name").replace_strict(ranks, return_dtype=pl.Int8), maintain_order=True)
    return by_rank.unique("launch", keep="first", maintain_order=True)


def _build_events(launches: pl.DataFrame, durations: pl.DataFrame) -> pl.DataFrame:
    """Build one row per launch; launches are replayed one by one, so there is no timeline."""
    launch_columns = launches.select(
        "launch",
        *(_column_or(launches, column, "").alias(column) for column in ("Kernel Name", "Device", "Stream")),
        _column_or(launches, "Invocations", "1").alias("Invocations"),
    )
    device = pl.when(pl.col("Device") == "").then(pl.lit("0")).otherwise("Device")
    lane = pl.lit("gpu") + device + pl.lit("/stream") + pl.col("Stream")
    parse = partial(parse_nanoseconds, unit=1)
    counts = parse_scaled_integers(launch_columns["Invocations"], 1, parse)
    times = launch_columns.select("launch").join(durations, on="launch", how="left", maintain_order="left")
    counts = counts.replace(0, 1).fill_null(1)
    return pl.DataFrame(
        {
            "name": launch_columns["Kernel Name"],
            "track": evaluate_per_distinct(launch_columns, ("Device", "Stream"), lane),
            "count": counts,
        }
    ).with_columns(*build_constant_columns(kind="kernel", lens="gpu"), *_parse_times(times, counts))


def _column_or(launches: pl.DataFrame, column: str, default: str) -> pl.Expr:
    """Column of the launches, or a default where it is missing."""
    return pl.col(column).fill_null(default) if column in launches.columns else pl.lit(default)


def _parse_times(times: pl.DataFrame, counts: pl.Series) -> list[pl.Series]:
    """Parse the total of each launch and the spread of its invocations, in ns."""
    columns = {"dur": times["value"], "min": times["least"], "max": times["most"]}
    series = {column: pl.repeat(None, times.height, dtype=pl.Int64, eager=True) for column in columns}
    for unit in times["unit"].drop_nulls().unique():
        has_unit, scale = times["unit"] == unit, TIME_UNITS[unit]
        for column, texts in columns.items():
            printed = pl.select(pl.when(has_unit).then(texts)).to_series()
            parsed = parse_scaled_integers(printed, scale, partial(parse_nanoseconds, unit=scale))
            series[column] = series[column].zip_with(~has_unit.fill_null(value=False), parsed)
    series["dur"] = _multiply_means(series["dur"], times, counts)
    return [values.alias(column) for column, values in series.items()]


def _multiply_means(means: pl.Series, times: pl.DataFrame, counts: pl.Series) -> pl.Series:
    """Multiply means by counts, exactly as printed where there are several invocations."""
    is_long = times["value"].str.len_bytes() >= MIN_INEXACT_LENGTH
    needs_exact = ((counts != 1) | is_long) & times["value"].is_not_null()
    rows = times.select("value", "unit", count=counts).filter(needs_exact).iter_rows()
    means_by_row = [(parse_decimal(value) or Decimal(0), unit, count) for value, unit, count in rows]
    totals = [scale_to_integer(mean * count, TIME_UNITS[unit]) for mean, unit, count in means_by_row]
    return means.scatter(needs_exact.arg_true(), pl.Series(totals, dtype=pl.Int64)) if totals else means


def _build_metric_table(page: NcuPage) -> pl.DataFrame:
    rows = page.metrics
    kernels = page.launches.select("launch", _column_or(page.launches, "Kernel Name", "").alias("kernel"))
    return rows.select(
        pl.col("launch").alias("id"),
        rows.select("launch").join(kernels, on="launch", how="left", maintain_order="left")["kernel"],
        pl.col("name").alias("metric"), "unit", parse_floats(rows["value"], parse_float).alias("value"),
        pl.col("value").alias("text"),
    )  # fmt: skip
