"""The text of a LatencyPrism comparison: its Markdown tables, and the CSV beside it, as plain frames."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._numbers import MICROSECOND, nanoseconds, number, real
from capture.loaders.latencyprism.vocabulary import csv_rows

# heading of the comparison, without the names of the runs → our column
_SINGLE: Final = {
    "function name": "function", "metric name": "metric", "device": "device", "suspicion score": "suspicion",
    "Δβ(%)": "d_beta", "z-score(β)": "z_beta", "p-value(β)": "p_beta", "u-test p(β)": "u_beta",
    "Δμ": "d_mu", "z-score(μ)": "z_mu", "z-score(log_μ)": "z_log_mu", "p-value(μ)": "p_mu",
    "u-test p(μ)": "u_mu",
}  # fmt: skip
_SIDED: Final = re.compile(r"([βμ])_(.+?)(?:\(%\))?$")
_GREEK: Final = {"β": "beta", "μ": "mu"}
_SAME_LETTERS: Final = str.maketrans({"µ": "μ", "∆": "Δ", "ß": "β"})

KEYS: Final = ("function", "metric", "device")
FIGURES: Final = (
    "suspicion", "beta_a", "beta_b", "d_beta", "z_beta", "p_beta", "u_beta",
    "mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu",
)  # fmt: skip
_SCHEMA: Final = {**dict.fromkeys(KEYS, pl.String), **dict.fromkeys(FIGURES, pl.Float64)}
_ABSENT: Final = ("", "-", "nan", "n/a")
_RULE: Final = re.compile(r"\|[\s:|-]+\|?\s*$")
_TOLD: Final = ("overview", "key findings")


@dataclass
class Pair:
    """Two runs compared."""

    names: tuple[str, str] = ("a", "b")
    cycles: tuple[int | None, int | None] = (None, None)
    mean_ns: tuple[int | None, int | None] = (None, None)
    ranks: list[dict[str, int | None]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    headings: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def comparison(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, _SCHEMA)


@dataclass
class Table:
    """A Markdown table under its heading."""

    heading: str
    cells: list[str]
    rows: list[tuple[int, list[str]]]


def markdown_pairs(text: str, log: Log) -> tuple[list[Pair], list[Table]]:
    """Return the compared pairs, and the tables that belong to none."""
    pairs, others = [Pair()], []
    for part in _parts(text, log):
        if isinstance(part, str):
            pairs[-1].findings.append(part)
            continue
        log.read += len(part.rows)
        if part.cells[0] == "Metric" and len(part.cells) > 2:
            pairs.append(_summary(part, log))
        elif part.cells[0] == "Time Rank":
            _durations(pairs[-1], part, log)
        elif "suspicion score" in [c.lower() for c in part.cells]:
            _compare(pairs[-1], part.cells, part.rows, log)
        else:
            others.append(part)
    return [p for p in pairs if p.rows or p.ranks or p.cycles != (None, None)], others


def csv_pairs(text: str, log: Log) -> list[Pair]:
    rows = list(csv_rows(text, log))
    pair = Pair()
    _compare(pair, rows[0][1] if rows else [], rows[1:], log)
    return [pair] if pair.rows else []


def _parts(text: str, log: Log) -> Iterator[Table | str]:
    """Yield tables whole, and the sentences of the findings."""
    heading, table, at = "", None, 0
    for line in text.split("\n"):
        if line.startswith("|") and table is None:
            table = Table(heading, _cells(line), [])
        elif line.startswith("|") and table is not None:
            _add_row(table, line, at, log, last=at + len(line) == len(text))
        elif table is not None:
            yield table
            table = None
        if line.startswith("#"):
            heading = line.lstrip("#").strip(" :")
        elif line.strip() and not line.startswith("|") and heading.lower() in _TOLD:
            yield line.strip()
        at += len(line) + 1
    if table is not None:
        yield table


def _add_row(table: Table, line: str, at: int, log: Log, *, last: bool) -> None:
    """Add a line to a table; the rule below its head is none, and the text's last line may be cut."""
    if last and not line.rstrip().endswith("|"):
        log.read += 1
        log.drop("torn_row", "a last row that is cut", at=at)
    elif not _RULE.match(line):
        table.rows.append((at, _cells(line)))


def _cells(line: str) -> list[str]:
    return [c.strip() for c in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _summary(table: Table, log: Log) -> Pair:
    pair = Pair((table.cells[1], table.cells[2]))
    for _, cells in table.rows:
        if len(cells) < 3:
            log.drop("bad_row", "table rows with too few cells")
        elif "total cycles" in cells[0].lower():
            pair.cycles = (_count(cells[1]), _count(cells[2]))
        elif "cycle time" in cells[0].lower():
            pair.mean_ns = (nanoseconds(cells[1], MICROSECOND), nanoseconds(cells[2], MICROSECOND))
    return pair


def _count(cell: str) -> int | None:
    value = number(cell)
    return int(value) if value is not None and 0 <= value < 1 << 62 else None


def _durations(pair: Pair, table: Table, log: Log) -> None:
    for at, cells in table.rows:
        rank = _count(cells[0])
        if rank is None or len(cells) < 3:
            log.drop("bad_row", "table rows with too few cells", at=at)
            continue
        a, b = (nanoseconds(c, MICROSECOND) for c in cells[1:3])
        pair.ranks.append({"rank": rank, "dur_a_ns": a, "dur_b_ns": b})


def _compare(pair: Pair, cells: list[str], rows: list[tuple[int, list[str]]], log: Log) -> None:
    columns, names = _columns(cells)
    pair.headings = {c: h for c, h in zip(columns, cells, strict=True) if c}
    if len(names) == 2:
        pair.names = (names[0], names[1])
    for at, row in rows:
        if len(row) > len(cells):
            extra = len(row) - len(cells)
            row = ["|".join(row[: extra + 1]), *row[extra + 1 :]]
            log.repair("pipe_in_name", "names that hold a pipe, joined again", at=at)
        if len(row) < len(cells) or not row[0]:
            log.drop("bad_row", "table rows with too few cells", at=at)
        else:
            pair.rows.append(_row(dict(zip(columns, row, strict=True)), log, at))


def _columns(headings: list[str]) -> tuple[list[str], list[str]]:
    """Return our column for every heading, blank for one we do not know; and the names of the two runs."""
    columns: list[str] = []
    names: list[str] = []
    for heading in headings:
        heading = heading.translate(_SAME_LETTERS)
        column = _SINGLE.get(heading) or _SINGLE.get(heading.lower(), "")
        if not column and (sided := _SIDED.match(heading)):
            if sided[2] not in names:
                names.append(sided[2])
            column = f"{_GREEK[sided[1]]}_{'ab'[min(names.index(sided[2]), 1)]}"
        columns.append(column)
    return columns, names


def _row(cells: dict[str, str], log: Log, at: int) -> dict[str, Any]:
    """Return figures as numbers; a printed nan stays open."""
    row: dict[str, Any] = {k: cells.get(k, "") for k in KEYS}
    for column in FIGURES:
        text = cells.get(column, "").removesuffix("us").strip()
        row[column] = real(text)
        if row[column] is None and text.lower() not in _ABSENT:
            log.note("bad_cell", "cells that hold no number", at=at, severity="data_loss")
    return row
