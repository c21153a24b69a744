"""Nsight Compute in CSV: the details page, its summary per kernel, and the raw page.

Read: the duration of each launch, and every metric as a table. Not read: `.ncu-rep` itself, sources and
rules.
Nsight Compute: https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._nsight_text import TIME_UNITS, csv_cells
from capture.loaders._numbers import exact, number, real
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


@dataclass(frozen=True)
class Metric:
    """One printed figure of one launch, or of all launches of a kernel."""

    launch: str
    name: str
    unit: str
    value: str
    least: str = ""
    most: str = ""


@dataclass
class Page:
    """The launches in the order of the file, and their metrics."""

    launches: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)


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


_SCHEMA: Final = {
    "kind": pl.String, "lens": pl.String, "name": pl.String, "track": pl.String,
    "dur": pl.Int64, "count": pl.Int64, "min": pl.Int64, "max": pl.Int64,
}  # fmt: skip


def _is_header(cells: Sequence[str] | None) -> bool:
    words = set(cells or ())
    return {"Kernel Name", "Process ID"} <= words and bool(words & {"ID", "Metric Name"})


def _read(lines: Iterable[str], log: Log) -> Page:
    """Read every record after a header; what was printed around them is passed over."""
    page = Page()
    header: list[str] = []
    units: dict[str, str] = {}
    quoted = True
    for at, line in enumerate(lines):
        telling = line.startswith('"') or "Kernel Name" in line or not quoted
        cells = csv_cells(line, ",") if telling and line.strip() else []
        if _is_header(cells):
            header, units, quoted = cells or [], {}, line.startswith('"')
        elif cells == [] or not header:
            continue
        elif _is_units(cells, header):
            units = dict(zip(header, cells or (), strict=True))
        else:
            _take(page, header, units, cells, at, log)
    return page


def _is_units(cells: list[str] | None, header: list[str]) -> bool:
    """Return whether a row is that of the units, which names no launch."""
    return bool(cells) and len(cells or ()) == len(header) and not any((cells or ())[:5])


def _take(
    page: Page, header: list[str], units: dict[str, str], cells: list[str] | None, at: int, log: Log
) -> None:
    log.read += 1
    if cells is None or not _needed(header) <= len(cells) <= len(header):
        log.drop("bad_row", "rows that do not fit the header above them", at=at)
        return
    row = dict(zip_longest(header, cells, fillvalue=""))
    launch = row.get("ID") or f"{row.get('Process ID')} {row['Kernel Name']}"
    page.launches.setdefault(launch, {c: row[c] for c in _IDENTITY if c in row})
    page.metrics += _long(launch, row) if "Metric Name" in row else _wide(launch, row, units)


def _needed(header: Sequence[str]) -> int:
    """Return how many cells a row has at least: the cells of rules, at its end, may be left out."""
    if "Metric Name" not in header:
        return len(header)
    return 1 + max(i for i, c in enumerate(header) if c == "Kernel Name" or c in _FIGURES)


def _long(launch: str, row: dict[str, str]) -> Iterator[Metric]:
    """Yield a row of the details page; one without a metric speaks of a rule."""
    if row["Metric Name"]:
        value = row.get("Metric Value", row.get("Average", ""))
        unit, least, most = row.get("Metric Unit", ""), row.get("Minimum", ""), row.get("Maximum", "")
        yield Metric(launch, row["Metric Name"], unit, value, least, most)


def _wide(launch: str, row: dict[str, str], units: dict[str, str]) -> Iterator[Metric]:
    for name, value in row.items():
        if name not in _IDENTITY and value:
            yield Metric(launch, name, units.get(name, ""), value)


def _durations(page: Page) -> dict[str, Metric]:
    """Return the metric that times each launch, the plainest one where there are several."""
    durations: dict[str, Metric] = {}
    for name in _DURATIONS:
        for metric in page.metrics:
            if metric.name == name and metric.unit in TIME_UNITS and number(metric.value) is not None:
                durations.setdefault(metric.launch, metric)
    return durations


def _events(page: Page, durations: dict[str, Metric]) -> Iterator[dict[str, Any]]:
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


def _times(duration: Metric, count: int) -> dict[str, int | None]:
    unit = TIME_UNITS[duration.unit]
    mean = number(duration.value) or Decimal(0)
    spread = {"min": exact(number(duration.least), unit), "max": exact(number(duration.most), unit)}
    return {"dur": exact(mean * count, unit), **{k: v for k, v in spread.items() if v is not None}}


def _meta(page: Page) -> dict[str, Any]:
    first = next(iter(page.launches.values()), {})
    meta = {"producer": PRODUCER, "process": first.get("Process Name"), "compute": first.get("CC")}
    return {k: v for k, v in meta.items() if v} | {"profiled": True}


def _metrics(page: Page) -> pl.DataFrame:
    """Return every metric of every launch, as number where it is one."""
    rows = [
        (m.launch, page.launches[m.launch]["Kernel Name"], m.name, m.unit, real(m.value), m.value)
        for m in page.metrics
    ]
    columns = {"id": pl.String, "kernel": pl.String, "metric": pl.String, "unit": pl.String}
    return pl.DataFrame(rows, schema=columns | {"value": pl.Float64, "text": pl.String}, orient="row")


def _launches(page: Page) -> pl.DataFrame:
    columns = [c for c in _IDENTITY if any(c in launch for launch in page.launches.values())]
    kept = [c for c in columns if c != "Section Name"]
    return pl.DataFrame(
        [[launch.get(c) for c in kept] for launch in page.launches.values()],
        schema=dict.fromkeys(kept, pl.String),
        orient="row",
    )
