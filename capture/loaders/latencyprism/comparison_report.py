"""LatencyPrism's comparison of a normal and an abnormal run: the Markdown report, or the CSV next to it.

Read: strict, cross and exploratory reports, as one run per side. Not read: the prose of the findings. Times
are derived from shares of a cycle, and marked as guesses.
LatencyPrism: https://github.com/kunluninsight/LatencyPrism
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._typed_cells import MICROSECOND, parse_decimal, parse_float, parse_nanoseconds
from capture.loaders.latencyprism import metric_names as metrics
from capture.run import Run, build_run, with_log
from capture.source import Head, Source

FORMAT: Final = "latencyprism"
PRODUCER: Final = "LatencyPrism DeepDive, compare_perf_data.py"
HOWTO: Final = "python compare_perf_data.py of LatencyPrism's DeepDive; it writes a .md and a .csv"
_TITLE: Final = re.compile(
    r"^# (?P<form>Cross|Strict|Exploratory) Performance Comparison(?: Report|:)(?P<subject>.*)$", re.MULTILINE
)
_HEADER: Final = ["function name", "metric name", "device", "suspicion score"]
_PID: Final = re.compile(r"pid[:_ ]*(\d{1,18})", re.IGNORECASE)
_INCOMPARABLE_FACTOR: Final = 5  # between cycle counts: larger than any change of speed
TIMES_GUESS: Final = "times: printed share of a cycle × mean cycle, so the time within one cycle, not a total"
# heading without the names of the runs → our column
_COLUMN_BY_HEADING: Final = {
    "function name": "function", "metric name": "metric", "device": "device", "suspicion score": "suspicion",
    "Δβ(%)": "d_beta", "z-score(β)": "z_beta", "p-value(β)": "p_beta", "u-test p(β)": "u_beta",
    "Δμ": "d_mu", "z-score(μ)": "z_mu", "z-score(log_μ)": "z_log_mu", "p-value(μ)": "p_mu",
    "u-test p(μ)": "u_mu",
}  # fmt: skip
_SIDED_HEADING: Final = re.compile(r"([βμ])_(.+?)(?:\(%\))?$")
_GREEK: Final = {"β": "beta", "μ": "mu"}
_SAME_LETTERS: Final = str.maketrans({"µ": "μ", "∆": "Δ", "ß": "β"})
KEY_COLUMNS: Final = ("function", "metric", "device")
METRIC_COLUMNS: Final = (
    "suspicion", "beta_a", "beta_b", "d_beta", "z_beta", "p_beta", "u_beta",
    "mu_a", "mu_b", "d_mu", "z_mu", "z_log_mu", "p_mu", "u_mu",
)  # fmt: skip
_KEY_TYPES: Final = dict.fromkeys(KEY_COLUMNS, pl.String)
_COMPARISON_SCHEMA: Final = {**_KEY_TYPES, **dict.fromkeys(METRIC_COLUMNS, pl.Float64)}
_MISSING_CELLS: Final = ("", "-", "nan", "n/a")
_RULE: Final = re.compile(r"\|[\s:|-]+\|?\s*$")
_FINDING_HEADINGS: Final = ("overview", "key findings")


@dataclass
class ComparedPair:
    """Two runs compared."""

    names: tuple[str, str] = ("a", "b")
    cycles: tuple[int | None, int | None] = (None, None)
    mean_ns: tuple[int | None, int | None] = (None, None)
    ranks: list[dict[str, int | None]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    headings: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


@dataclass
class MarkdownTable:
    """A Markdown table under its heading."""

    heading: str
    cells: list[str]
    rows: list[tuple[int, list[str]]]


def sniff(head: Head) -> bool:
    return bool(_TITLE.match(head.stripped_text)) or metrics.parse_header(head.stripped_text)[:4] == _HEADER


def load(source: Source) -> list[Run]:
    text, log = source.read_text().lstrip(), source.log
    title = _TITLE.match(text)
    if title is None:
        log.note("no_cycles", "the CSV reports neither the number nor the length of the cycles")
        return _build_runs(parse_csv(text, log), {}, {}, log)
    meta: dict[str, Any] = {"report": title["form"].lower(), "subject": title["subject"].strip(" :")}
    if title["form"] != "Exploratory" and not re.search(r"^#+ .*Legend", text, re.MULTILINE):
        log.note("no_legend", "the report is cut: its legend is missing", severity="data_loss")
        meta["truncated"] = True
    pairs, other_tables = parse_markdown(text, log)
    names = (re.sub(r"^[\d.\s]+", "", table.heading).lower() or "table" for table in other_tables)
    tables = dict(zip(names, map(_build_text_frame, other_tables), strict=True))
    return _build_runs(pairs, meta, tables, log)


def _build_runs(
    pairs: list[ComparedPair], meta: dict[str, Any], other_tables: dict[str, pl.DataFrame], log: Log
) -> list[Run]:
    runs = [_build_run(pair, side, meta, other_tables, log) for pair in pairs for side in (0, 1)]
    return [with_log(run, log) for run in runs]


def _build_run(
    pair: ComparedPair, side: int, shared: dict[str, Any], other_tables: dict[str, pl.DataFrame], log: Log
) -> Run:
    name, letter = pair.names[side], "ab"[side]
    meta = {**shared, "side": letter, "sides": list(pair.names), "headings": pair.headings}
    meta |= {"cycles": pair.cycles[side], "mean_cycle_ns": pair.mean_ns[side]}
    meta["pid"] = _find_pid(name, str(shared.get("subject", "")))
    if reasons := _list_obstacles(pair):
        meta["comparable"] = {"ok": False, "reasons": reasons}
        if side == 0:
            log.note("not_comparable", f"the two runs are not comparable: {'; '.join(reasons)}")
    comparison = pl.DataFrame(pair.rows, _COMPARISON_SCHEMA)
    present = comparison.filter(~_is_absent(letter))
    parts = [_build_cycle_row(pair, letter), _build_counter_rows(present, letter)]
    if (mean_ns := pair.mean_ns[side]) is not None:
        meta["guess"] = [TIMES_GUESS]
        parts.insert(1, _build_function_rows(present, letter, mean_ns))
    if pair.findings:
        parts.append(pl.DataFrame({"kind": "mark", "name": pair.findings, "path": "note"}))
    events = pl.concat(parts, how="diagonal_relaxed")
    tables = {**other_tables, "comparison": comparison}
    if pair.ranks:
        tables["cycles"] = pl.DataFrame(pair.ranks, dict.fromkeys(("rank", "dur_a_ns", "dur_b_ns"), pl.Int64))
    return build_run(name, {k: v for k, v in meta.items() if v is not None}, events, log, tables)


def _find_pid(name: str, subject: str) -> int | None:
    """Find the process id in the run's name, else in a title with a single one."""
    pids = _PID.findall(name)[:1] or list(set(_PID.findall(subject)))
    return int(pids[0]) if len(pids) == 1 else None


def _list_obstacles(pair: ComparedPair) -> list[str]:
    """List the reasons why the two sides are not comparable."""
    a, b = pair.cycles
    if not a or not b or max(a, b) < _INCOMPARABLE_FACTOR * min(a, b):
        return []
    reasons = [f"{a} cycles against {b}: {max(a, b) / min(a, b):.0f} times as many"]
    mean_a, mean_b = pair.mean_ns
    if mean_a and mean_b and max(mean_a, mean_b) >= _INCOMPARABLE_FACTOR * min(mean_a, mean_b):
        reasons.append(
            f"a mean cycle of {mean_a / 1e6:,.1f} ms against {mean_b / 1e6:,.1f} ms: "
            "the two sides were probably cut at different anchors, which the report does not print"
        )
    return reasons


def _build_cycle_row(pair: ComparedPair, letter: str) -> pl.DataFrame:
    """Sum all cycles in one aggregate row: the report ranks them but not in time order."""
    durations = [dur for rank in pair.ranks if (dur := rank[f"dur_{letter}_ns"]) is not None]
    if not durations:
        return pl.DataFrame()
    return pl.DataFrame(
        {
            "kind": "step", "lens": "wall", "name": "cycle", "count": len(durations),
            "dur": sum(durations), "min": min(durations), "max": max(durations),
        }
    )  # fmt: skip


def _is_absent(letter: str) -> pl.Expr:
    """Mark the rows that one side never measured.

    The report prints zeros for them, as it does for shares that round to zero. They differ in this: without
    samples of a side no test was made (p = 1), and z is 0 if side a has fewer than two samples.
    """
    beta, mu = pl.col(f"beta_{letter}"), pl.col(f"mu_{letter}")
    other_mu = pl.col(f"mu_{'ba'['ab'.index(letter)]}")
    key = ("function", "device")
    share_is_printed = (beta != 0).any().over(key)
    has_no_metric = ~(mu != 0).any().over(key)
    is_untested = (pl.col("p_beta") == 1) & (pl.col("u_beta") == 1)
    if letter == "a":
        is_untested &= pl.col("z_beta") == 0
    return (beta == 0) & (mu == 0) & is_untested & (share_is_printed | has_no_metric | (other_mu != 0))


def _build_function_rows(present: pl.DataFrame, letter: str, mean_ns: int) -> pl.DataFrame:
    """Build one row per function, with the median of its shares, which differ slightly by metric."""
    share = pl.col(f"beta_{letter}")
    shares = present.group_by("function", "device", maintain_order=True).agg(share.median())
    types = [metrics.infer_func_type(*key) for key in shares.select("function", "device").rows()]
    roles = [metrics.find_role(func_type) for func_type in types]
    dur = pl.when(share != 0).then((share / 100 * mean_ns).round().cast(pl.Int64, strict=False))
    return shares.select(*metrics.build_role_columns(roles), name="function", dur=dur, track="device")


def _build_counter_rows(present: pl.DataFrame, letter: str) -> pl.DataFrame:
    measured = present.filter(pl.col(f"mu_{letter}").is_not_null())
    return measured.select(
        *metrics.build_value_columns(measured["metric"], pl.col(f"mu_{letter}")),
        kind=pl.lit("counter"), name="metric", track="device", path="function",
    )  # fmt: skip


def _build_text_frame(table: MarkdownTable) -> pl.DataFrame:
    """Keep a table as printed."""
    width = len(table.cells)
    names = [f"{cell} {at}" if cell in table.cells[:at] else cell for at, cell in enumerate(table.cells)]
    rows = [(row + [""] * width)[:width] for _, row in table.rows]
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")


def parse_markdown(text: str, log: Log) -> tuple[list[ComparedPair], list[MarkdownTable]]:
    """Parse the compared pairs, and the tables that belong to none."""
    pairs, other_tables = [ComparedPair()], []
    for part in _iter_parts(text, log):
        if isinstance(part, str):
            pairs[-1].findings.append(part)
            continue
        log.read += len(part.rows)
        if part.cells[0] == "Metric" and len(part.cells) > 2:
            pairs.append(_parse_summary(part, log))
        elif part.cells[0] == "Time Rank":
            _parse_durations(pairs[-1], part, log)
        elif "suspicion score" in [c.lower() for c in part.cells]:
            _parse_comparison(pairs[-1], part.cells, part.rows, log)
        else:
            other_tables.append(part)
    return [pair for pair in pairs if pair.rows or pair.ranks or pair.cycles != (None, None)], other_tables


def parse_csv(text: str, log: Log) -> list[ComparedPair]:
    """Parse the compared pair of a CSV; an empty list if it has no rows."""
    rows = list(metrics.iter_csv_records(text, log))
    pair = ComparedPair()
    _parse_comparison(pair, rows[0][1] if rows else [], rows[1:], log)
    return [pair] if pair.rows else []


def _iter_parts(text: str, log: Log) -> Iterator[MarkdownTable | str]:
    """Yield complete tables, and the sentences of the findings."""
    heading, table, offset = "", None, 0
    for line in text.split("\n"):
        if line.startswith("|") and table is None:
            table = MarkdownTable(heading, _split_row(line), [])
        elif line.startswith("|") and table is not None:
            _add_row(table, line, offset, log, last=offset + len(line) == len(text))
        elif table is not None:
            yield table
            table = None
        if line.startswith("#"):
            heading = line.lstrip("#").strip(" :")
        elif line.strip() and not line.startswith("|") and heading.lower() in _FINDING_HEADINGS:
            yield line.strip()
        offset += len(line) + 1
    if table is not None:
        yield table


def _add_row(table: MarkdownTable, line: str, offset: int, log: Log, *, last: bool) -> None:
    """Add a line to a table, unless it is the rule below its head; the last line of a text may be cut."""
    if last and not line.rstrip().endswith("|"):
        log.read += 1
        log.drop("torn_row", "a last row that is cut", at=offset)
    elif not _RULE.match(line):
        table.rows.append((offset, _split_row(line)))


def _split_row(line: str) -> list[str]:
    return [c.strip() for c in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _parse_summary(table: MarkdownTable, log: Log) -> ComparedPair:
    pair = ComparedPair((table.cells[1], table.cells[2]))
    for _, cells in table.rows:
        if len(cells) < 3:
            log.drop("bad_row", "table rows with too few cells")
        elif "total cycles" in cells[0].lower():
            pair.cycles = (_parse_count(cells[1]), _parse_count(cells[2]))
        elif "cycle time" in cells[0].lower():
            a, b = (parse_nanoseconds(cell, MICROSECOND) for cell in cells[1:3])
            pair.mean_ns = (a, b)
    return pair


def _parse_count(cell: str) -> int | None:
    value = parse_decimal(cell)
    return int(value) if value is not None and 0 <= value < 1 << 62 else None


def _parse_durations(pair: ComparedPair, table: MarkdownTable, log: Log) -> None:
    for offset, cells in table.rows:
        rank = _parse_count(cells[0])
        if rank is None or len(cells) < 3:
            log.drop("bad_row", "table rows with too few cells", at=offset)
            continue
        a, b = (parse_nanoseconds(c, MICROSECOND) for c in cells[1:3])
        pair.ranks.append({"rank": rank, "dur_a_ns": a, "dur_b_ns": b})


def _parse_comparison(
    pair: ComparedPair, cells: list[str], rows: list[tuple[int, list[str]]], log: Log
) -> None:
    columns, names = _match_headings(cells)
    pair.headings = {column: heading for column, heading in zip(columns, cells, strict=True) if column}
    if len(names) == 2:
        pair.names = (names[0], names[1])
    for offset, row in rows:
        if len(row) > len(cells):
            extra_cells = len(row) - len(cells)
            row = ["|".join(row[: extra_cells + 1]), *row[extra_cells + 1 :]]
            log.repair("pipe_in_name", "names with a pipe, joined again", at=offset)
        if len(row) < len(cells) or not row[0]:
            log.drop("bad_row", "table rows with too few cells", at=offset)
        else:
            pair.rows.append(_parse_row(dict(zip(columns, row, strict=True)), log, offset))


def _match_headings(headings: list[str]) -> tuple[list[str], list[str]]:
    """Map each heading to our column, empty if it is unknown; also return the names of the two runs."""
    columns: list[str] = []
    names: list[str] = []
    for heading in headings:
        heading = heading.translate(_SAME_LETTERS)
        column = _COLUMN_BY_HEADING.get(heading) or _COLUMN_BY_HEADING.get(heading.lower(), "")
        if not column and (sided := _SIDED_HEADING.match(heading)):
            if sided[2] not in names:
                names.append(sided[2])
            column = f"{_GREEK[sided[1]]}_{'ab'[min(names.index(sided[2]), 1)]}"
        columns.append(column)
    return columns, names


def _parse_row(cells: dict[str, str], log: Log, offset: int) -> dict[str, Any]:
    """Parse the metrics of a row; a printed nan stays null."""
    row: dict[str, Any] = {k: cells.get(k, "") for k in KEY_COLUMNS}
    for column in METRIC_COLUMNS:
        text = cells.get(column, "").removesuffix("us").strip()
        row[column] = parse_float(text)
        if row[column] is None and text.lower() not in _MISSING_CELLS:
            log.note("bad_cell", "cells without a number", at=offset, severity="data_loss")
    return row
