"""Nsight Compute in CSV: the details page, its summary per kernel, and the raw page.

Read: the duration of each launch, and every metric as a table. Not read: `.ncu-rep` itself, sources and
rules.
Nsight Compute: https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import polars as pl

from capture.importlog import Log
from capture.loaders._distinct import fixed, of_distinct
from capture.loaders._nsight_text import TIME_UNITS, csv_cells
from capture.loaders._numbers import exact, nanoseconds, number, real
from capture.loaders._separated import LINE, LONGEST, cut_at_once, lines_of, reals, records, whole_numbers
from capture.run import Run, build
from capture.source import Head, Source

FORMAT = "ncu"
PRODUCER = "NVIDIA Nsight Compute"
HOWTO = "ncu --csv --page details CMD > run.csv (or: ncu --import run.ncu-rep --csv)"

_IDENTITY: Final = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Invocations",
)  # fmt: skip
_FIGURES: Final = ("Metric Name", "Metric Unit", "Metric Value", "Average", "Minimum", "Maximum")
_DURATIONS: Final = ("Duration", "gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")


_ROW: Final = "\0line"  # our own columns beside those of the file: no header has these names
_LAUNCH: Final = "\0launch"
_TABLE: Final = "\0table"
_NAME: Final = "\0name"
_VALUE: Final = "\0value"
_METRIC: Final = ("launch", "name", "unit", "value", "least", "most")
_NO_METRICS: Final = pl.DataFrame(schema=dict.fromkeys(_METRIC, pl.String))


@dataclass(frozen=True)
class Page:
    """The launches by their ids, in the order of the file; and every metric of each, as text.

    A launch has the columns of `_IDENTITY` that its own table has, null where that has none.
    """

    launches: pl.DataFrame
    metrics: pl.DataFrame


class _Header(NamedTuple):
    """The line that names the columns: its cells, where it begins and where the lines below it do."""

    cells: list[str]
    begin: int
    below: int
    quoted: bool  # so are all records below it, then


def sniff(head: Head) -> bool:
    return any("Kernel Name" in line and _is_header(csv_cells(line, ",")) for line in head.lines)


def load(source: Source) -> list[Run]:
    page = _read(source.utf8(), source.log)
    durations = _durations(page)
    missing = page.launches.height - durations.height
    if missing:
        source.log.note(
            "no_duration",
            "launches without a Duration metric (capture it: --section SpeedOfLight)",
            count=missing,
        )
    events = _events(page.launches, durations)
    launches = page.launches.drop("Section Name", "launch", strict=False)
    return [build("ncu", _meta(page), events, source.log, {"ncu": _metrics(page), "launches": launches})]


def _is_header(cells: Sequence[str] | None) -> bool:
    words = set(cells or ())
    return {"Kernel Name", "Process ID"} <= words and bool(words & {"ID", "Metric Name"})


def _read(text: bytes, log: Log) -> Page:
    """Read every record after a header; what was printed around them is passed over."""
    headers, above, at = _headers(text), 0, 0
    launches, metrics = [], [_NO_METRICS]
    for header, end in zip(headers, [*(h.begin for h in headers[1:]), len(text)], strict=True):
        above, at = above + text.count(b"\n", at, header.below), header.below
        for units, table in _tables(text, header, end, above, log):
            launches.append(_identified(table))
            metrics.append(_long(table) if "Metric Name" in header.cells else _wide(table, units))
    return Page(_first_of_each(launches), pl.concat(metrics))


def _headers(text: bytes) -> list[_Header]:
    """Return the headers of a text in their order; Python finds a word sooner from behind."""
    found: list[_Header] = []
    at = len(text)
    while (at := text.rfind(b"Kernel Name", 0, at)) >= 0:
        at = text.rfind(b"\n", 0, at) + 1
        below = text.find(b"\n", at) + 1 or len(text)
        cells = csv_cells(text[at:below].decode().removesuffix("\n"), ",") or []
        if _is_header(cells):
            found.append(_Header(cells, at, below, quoted=text.startswith(b'"', at)))
    return found[::-1]


def _rows(text: bytes, header: _Header, end: int) -> tuple[pl.DataFrame, list[int]]:
    """Return the rows between a header and some place, and which lines there are none."""
    places = [str(at) for at in range(len(header.cells))]
    cut = cut_at_once(text, ",", places, header.below, end, quoted=header.quoted)
    if cut is not None:
        return cut.with_row_index(LINE), []

    def cells(line: str) -> list[str] | None:
        found = csv_cells(line, ",")
        fits = found is not None and _needed(header.cells) <= len(found) <= len(places)
        return [*found, *[""] * (len(places) - len(found))] if found is not None and fits else None

    rows = text[header.below : end]
    return records(_without_noise(rows) if header.quoted else rows, ",", places, cells)


def _without_noise(text: bytes) -> bytes:
    """Return the text of lines with blank ones for those that a program printed between quoted records."""
    lines = lines_of(text)
    kept = lines.str.starts_with('"') | lines.str.contains("Kernel Name", literal=True)
    if kept.all():
        return text
    return "\n".join(lines.zip_with(kept, pl.Series([""]).new_from_index(0, lines.len()))).encode()


def _tables(
    text: bytes, header: _Header, end: int, above: int, log: Log
) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """Yield the rows under a header, by the columns' names, with the units that are stated above them.

    `above` are the lines before the first row.
    """
    rows, bad = _rows(text, header, end)
    places = [str(at) for at in range(len(header.cells))]
    of_units = rows.select(pl.all_horizontal(pl.col(places[:5]) == "")).to_series().arg_true().to_list()
    log.read += rows.height - len(of_units) + len(bad)
    for at in bad:
        log.drop("bad_row", "rows that do not fit the header above them", at=above + at)
    named = (name.replace("\0", "") for name in header.cells)
    by_name = dict(zip(named, places, strict=True))  # of two the last
    table = rows.select(
        pl.col(LINE).alias(_ROW), *(pl.col(place).alias(name) for name, place in by_name.items())
    )
    for begin, last in zip([-1, *of_units], [*of_units, rows.height], strict=True):
        units = table.drop(_ROW).row(begin, named=True) if begin >= 0 else {}
        yield units, _with_launch(table[begin + 1 : last])


def _with_launch(table: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the id of their launch; without one, process and kernel tell it."""
    if "ID" in table.columns and (table["ID"] != "").all():
        return table.with_columns(pl.col("ID").alias(_LAUNCH))
    told = pl.concat_str("Process ID", "Kernel Name", separator=" ")
    stated = pl.when(pl.col("ID") != "").then("ID") if "ID" in table.columns else None
    return table.with_columns((told if stated is None else pl.coalesce(stated, told)).alias(_LAUNCH))


def _needed(header: Sequence[str]) -> int:
    """Return how many cells a row has at least: the cells of rules, at its end, may be left out."""
    if "Metric Name" not in header:
        return len(header)
    return 1 + max(i for i, c in enumerate(header) if c == "Kernel Name" or c in _FIGURES)


def _identified(table: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each launch of a table, what tells of the launch alone."""
    identity = [c for c in _IDENTITY if c in table.columns]
    begins = (table[_LAUNCH] != table[_LAUNCH].shift(1)).fill_null(value=True)
    rows = table.select(pl.col(_LAUNCH).alias("launch"), *identity).filter(begins)
    return rows.unique("launch", keep="first", maintain_order=True)


def _first_of_each(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return each launch as the first table that has it tells of it, without columns of other tables."""
    if not tables:
        return pl.DataFrame(schema={"launch": pl.String})
    numbered = [table.with_columns(pl.lit(at).alias(_TABLE)) for at, table in enumerate(tables)]
    rows = pl.concat(numbered, how="diagonal").unique("launch", keep="first", maintain_order=True)
    told = {column for at in rows[_TABLE].unique() for column in tables[at].columns}
    return rows.select("launch", *(c for c in _IDENTITY if c in told))


def _long(table: pl.DataFrame) -> pl.DataFrame:
    """Return the metrics of a details page; a row without one speaks of a rule."""
    value = "Metric Value" if "Metric Value" in table.columns else "Average"
    columns = dict(zip(_METRIC[1:], ("Metric Name", "Metric Unit", value, "Minimum", "Maximum"), strict=True))
    stated = [pl.col(c) if c in table.columns else pl.lit("") for c in columns.values()]
    is_named = table["Metric Name"] != ""
    named = table if is_named.all() else table.filter(is_named)
    return named.select(
        pl.col(_LAUNCH).alias("launch"),
        *(cell.alias(name) for name, cell in zip(columns, stated, strict=True)),
    )


def _wide(table: pl.DataFrame, units: Mapping[str, str]) -> pl.DataFrame:
    """Return the metrics of a raw page, which has a column for each."""
    names = [c for c in table.columns if c not in (*_IDENTITY, _ROW, _LAUNCH)]
    if not names:
        return _NO_METRICS
    cells = table.unpivot(names, index=[_ROW, _LAUNCH], variable_name=_NAME, value_name=_VALUE)
    cells = cells.rename({_NAME: "name", _VALUE: "value"})
    unit = pl.col("name").replace_strict(units, default="", return_dtype=pl.String) if units else pl.lit("")
    stated = cells.filter(pl.col("value") != "").sort(_ROW, maintain_order=True).rename({_LAUNCH: "launch"})
    return stated.with_columns(unit=unit, least=pl.lit(""), most=pl.lit("")).select(_METRIC)


def _durations(page: Page) -> pl.DataFrame:
    """Return the metric that times each launch, the plainest one where there are several."""
    ranks = {name: rank for rank, name in enumerate(_DURATIONS)}
    timed = page.metrics.filter(pl.col("name").is_in(_DURATIONS), pl.col("unit").is_in(list(TIME_UNITS)))
    numbers = timed.filter(reals(timed["value"], real).is_not_null())
    plainest = numbers.sort(pl.col("name").replace_strict(ranks, return_dtype=pl.Int8), maintain_order=True)
    return plainest.unique("launch", keep="first", maintain_order=True)


def _events(launches: pl.DataFrame, durations: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each launch; launches are replayed one by one, so there is no timeline."""
    stated = launches.select(
        "launch",
        *(_stated(launches, c, "").alias(c) for c in ("Kernel Name", "Device", "Stream")),
        _stated(launches, "Invocations", "1").alias("Invocations"),
    )
    device = pl.when(pl.col("Device") == "").then(pl.lit("0")).otherwise("Device")
    lane = pl.lit("gpu") + device + pl.lit("/stream") + pl.col("Stream")
    counts = whole_numbers(stated["Invocations"], 1, lambda text: exact(number(text), 1))
    times = stated.select("launch").join(durations, on="launch", how="left", maintain_order="left")
    counts = counts.replace(0, 1).fill_null(1)
    return pl.DataFrame(
        {
            "name": stated["Kernel Name"],
            "track": of_distinct(stated, ("Device", "Stream"), lane),
            "count": counts,
        }
    ).with_columns(*fixed(kind="kernel", lens="gpu"), *_times(times, counts))


def _stated(launches: pl.DataFrame, column: str, otherwise: str) -> pl.Expr:
    return pl.col(column).fill_null(otherwise) if column in launches.columns else pl.lit(otherwise)


def _times(times: pl.DataFrame, counts: pl.Series) -> list[pl.Series]:
    """Return the total of each launch and the spread of its invocations, in ns."""
    columns = {"dur": times["value"], "min": times["least"], "max": times["most"]}
    out = {column: pl.repeat(None, times.height, dtype=pl.Int64, eager=True) for column in columns}
    for unit in times["unit"].drop_nulls().unique():
        own, scale = times["unit"] == unit, TIME_UNITS[unit]
        for column, texts in columns.items():
            printed = pl.select(pl.when(own).then(texts)).to_series()
            found = whole_numbers(printed, scale, partial(nanoseconds, unit=scale))
            out[column] = out[column].zip_with(~own.fill_null(value=False), found)
    return [_multiplied(out.pop("dur"), times, counts).alias("dur"), *(s.alias(c) for c, s in out.items())]


def _multiplied(means: pl.Series, times: pl.DataFrame, counts: pl.Series) -> pl.Series:
    """Return totals of means; where there were several invocations, exactly of what was printed."""
    several = ((counts != 1) | (times["value"].str.len_bytes() >= LONGEST)) & times["value"].is_not_null()
    rows = times.select("value", "unit", count=counts).filter(several).iter_rows()
    totals = [exact((number(value) or Decimal(0)) * count, TIME_UNITS[unit]) for value, unit, count in rows]
    return means.scatter(several.arg_true(), pl.Series(totals, dtype=pl.Int64)) if totals else means


def _meta(page: Page) -> dict[str, Any]:
    first = next(page.launches.head(1).iter_rows(named=True), {})
    meta = {"producer": PRODUCER, "process": first.get("Process Name"), "compute": first.get("CC")}
    return {k: v for k, v in meta.items() if v} | {"profiled": True}


def _metrics(page: Page) -> pl.DataFrame:
    """Return every metric of every launch, as number where it is one."""
    rows = page.metrics
    kernels = page.launches.select("launch", _stated(page.launches, "Kernel Name", "").alias("kernel"))
    return rows.select(
        pl.col("launch").alias("id"),
        rows.select("launch").join(kernels, on="launch", how="left", maintain_order="left")["kernel"],
        pl.col("name").alias("metric"), "unit", reals(rows["value"], real).alias("value"),
        pl.col("value").alias("text"),
    )  # fmt: skip
