"""Nsight Compute in CSV: the details page, its summary per kernel, and the raw page.

Read: the duration of each launch, and every metric as a table. Not read: `.ncu-rep` itself, sources and
rules.
Nsight Compute: https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._nsight_text import TIME_UNITS, csv_cells
from capture.loaders._numbers import exact, number, real
from capture.loaders._separated import LINE, reals, records
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
_NAME: Final = "\0name"
_VALUE: Final = "\0value"
_METRIC: Final = ("launch", "name", "unit", "value", "least", "most")
_NO_METRICS: Final = pl.DataFrame(schema=dict.fromkeys(_METRIC, pl.String))
_SCHEMA: Final = {
    "kind": pl.String, "lens": pl.String, "name": pl.String, "track": pl.String,
    "dur": pl.Int64, "count": pl.Int64, "min": pl.Int64, "max": pl.Int64,
}  # fmt: skip


@dataclass
class Page:
    """The launches by their ids, in the order of the file; and every metric of each, as text."""

    launches: dict[str, dict[str, str]]
    metrics: pl.DataFrame


def sniff(head: Head) -> bool:
    return any("Kernel Name" in line and _is_header(csv_cells(line, ",")) for line in head.lines)


def load(source: Source) -> list[Run]:
    page = _read(source.text().split("\n"), source.log)
    durations = _durations(page)
    missing = len(page.launches) - len(durations)
    if missing:
        source.log.note(
            "no_duration",
            "launches without a Duration metric (capture it: --section SpeedOfLight)",
            count=missing,
        )
    events = pl.DataFrame(_events(page, durations), schema=_SCHEMA)
    return [
        build("ncu", _meta(page), events, source.log, {"ncu": _metrics(page), "launches": _launches(page)})
    ]


def _is_header(cells: Sequence[str] | None) -> bool:
    words = set(cells or ())
    return {"Kernel Name", "Process ID"} <= words and bool(words & {"ID", "Metric Name"})


def _read(lines: Sequence[str], log: Log) -> Page:
    """Read every record after a header; what was printed around them is passed over."""
    page = Page({}, _NO_METRICS)
    named = pl.Series(lines, dtype=pl.String).str.contains("Kernel Name", literal=True).arg_true()
    headers = [(at, cells) for at in named if _is_header(cells := csv_cells(lines[at], ",") or [])]
    metrics = [page.metrics]
    for (at, header), end in zip(headers, [*(at for at, _ in headers[1:]), len(lines)], strict=True):
        rows = lines[at + 1 : end]
        if lines[at].startswith('"'):
            rows = [line if line.startswith('"') or "Kernel Name" in line else "" for line in rows]
        for units, table in _tables(rows, header, at + 1, log):
            _keep_launches(page, table)
            metrics.append(_long(table) if "Metric Name" in header else _wide(table, units))
    page.metrics = pl.concat(metrics)
    return page


def _tables(
    lines: Sequence[str], header: Sequence[str], first: int, log: Log
) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """Yield the rows under a header, by the columns' names, with the units that are stated above them."""
    places = [str(at) for at in range(len(header))]

    def cells(line: str) -> list[str] | None:
        found = csv_cells(line, ",")
        fits = found is not None and _needed(header) <= len(found) <= len(header)
        return [*found, *[""] * (len(header) - len(found))] if found is not None and fits else None

    rows, bad = records("\n".join(lines).encode(), ",", places, cells)
    of_units = rows.select(pl.all_horizontal(pl.col(places[:5]) == "")).to_series().arg_true().to_list()
    log.read += rows.height - len(of_units) + len(bad)
    for at in bad:
        log.drop("bad_row", "rows that do not fit the header above them", at=first + at)
    by_name = dict(zip((name.replace("\0", "") for name in header), places, strict=True))  # of two the last
    table = rows.select(
        pl.col(LINE).alias(_ROW), *(pl.col(place).alias(name) for name, place in by_name.items())
    )
    for begin, end in zip([-1, *of_units], [*of_units, rows.height], strict=True):
        units = table.drop(_ROW).row(begin, named=True) if begin >= 0 else {}
        yield units, _with_launch(table[begin + 1 : end])


def _with_launch(table: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the id of their launch; without one, process and kernel tell it."""
    told = pl.concat_str("Process ID", "Kernel Name", separator=" ")
    stated = pl.when(pl.col("ID") != "").then("ID") if "ID" in table.columns else None
    return table.with_columns((told if stated is None else pl.coalesce(stated, told)).alias(_LAUNCH))


def _needed(header: Sequence[str]) -> int:
    """Return how many cells a row has at least: the cells of rules, at its end, may be left out."""
    if "Metric Name" not in header:
        return len(header)
    return 1 + max(i for i, c in enumerate(header) if c == "Kernel Name" or c in _FIGURES)


def _keep_launches(page: Page, table: pl.DataFrame) -> None:
    identity = [c for c in _IDENTITY if c in table.columns]
    for row in table.unique(_LAUNCH, keep="first", maintain_order=True).iter_rows(named=True):
        page.launches.setdefault(row[_LAUNCH], {c: row[c] for c in identity})


def _long(table: pl.DataFrame) -> pl.DataFrame:
    """Return the metrics of a details page; a row without one speaks of a rule."""
    value = "Metric Value" if "Metric Value" in table.columns else "Average"
    columns = dict(zip(_METRIC[1:], ("Metric Name", "Metric Unit", value, "Minimum", "Maximum"), strict=True))
    stated = [pl.col(c) if c in table.columns else pl.lit("") for c in columns.values()]
    named = table.filter(pl.col("Metric Name") != "")
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


def _durations(page: Page) -> dict[str, dict[str, str]]:
    """Return the metric that times each launch, the plainest one where there are several."""
    ranks = {name: rank for rank, name in enumerate(_DURATIONS)}
    timed = page.metrics.filter(pl.col("name").is_in(_DURATIONS), pl.col("unit").is_in(list(TIME_UNITS)))
    numbers = timed.filter(reals(timed["value"], real).is_not_null())
    plainest = numbers.sort(pl.col("name").replace_strict(ranks, return_dtype=pl.Int8), maintain_order=True)
    first = plainest.unique("launch", keep="first", maintain_order=True)
    return {metric["launch"]: metric for metric in first.iter_rows(named=True)}


def _events(page: Page, durations: Mapping[str, dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each launch; launches are replayed one by one, so there is no timeline."""
    for launch, identity in page.launches.items():
        count = exact(number(identity.get("Invocations", "1")), 1) or 1
        yield {
            "kind": "kernel",
            "lens": "gpu",
            "name": identity["Kernel Name"],
            "track": f"gpu{identity.get('Device') or 0}/stream{identity.get('Stream', '')}",
            "count": count,
            **(_times(durations[launch], count) if launch in durations else {}),
        }


def _times(duration: Mapping[str, str], count: int) -> dict[str, int | None]:
    unit = TIME_UNITS[duration["unit"]]
    mean = number(duration["value"]) or Decimal(0)
    spread = {"min": exact(number(duration["least"]), unit), "max": exact(number(duration["most"]), unit)}
    return {"dur": exact(mean * count, unit), **{k: v for k, v in spread.items() if v is not None}}


def _meta(page: Page) -> dict[str, Any]:
    first = next(iter(page.launches.values()), {})
    meta = {"producer": PRODUCER, "process": first.get("Process Name"), "compute": first.get("CC")}
    return {k: v for k, v in meta.items() if v} | {"profiled": True}


def _metrics(page: Page) -> pl.DataFrame:
    """Return every metric of every launch, as number where it is one."""
    kernels = {launch: identity["Kernel Name"] for launch, identity in page.launches.items()}
    rows = page.metrics
    kernel = rows["launch"].replace_strict(kernels, return_dtype=pl.String) if kernels else rows["launch"]
    return rows.select(
        pl.col("launch").alias("id"), kernel.alias("kernel"), pl.col("name").alias("metric"), "unit",
        reals(rows["value"], real).alias("value"), pl.col("value").alias("text"),
    )  # fmt: skip


def _launches(page: Page) -> pl.DataFrame:
    columns = [c for c in _IDENTITY if any(c in launch for launch in page.launches.values())]
    kept = [c for c in columns if c != "Section Name"]
    return pl.DataFrame(
        [[launch.get(c) for c in kept] for launch in page.launches.values()],
        schema=dict.fromkeys(kept, pl.String),
        orient="row",
    )
