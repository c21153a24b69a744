"""The report that metallic's analyzer prints: sections of statistics, most limited to their first rows.

Read: every section, as a table; kernels, waits and GPU times as aggregates. Lists cut at their limit are
noted in the log.
metallic: https://github.com/cchance27/test-burn
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders.metallic.op_names import (
    OpMeaning,
    collapse_repeated_scopes,
    describe_internal_kernel,
    parse_op_name,
)
from capture.run import Run, build_run, list_column_types, with_log
from capture.source import Head, Source

FORMAT: Final = "metallic report"
PRODUCER: Final = "tools/analyze_jsonl.py of metallic (test-burn)"
HOWTO: Final = "python tools/analyze_jsonl.py prof.jsonl > report.txt"

SECTION_SCHEMA: Final = {
    "label": pl.String, "under": pl.String, "count": pl.Int64, "total_ns": pl.Int64, "mean_ns": pl.Int64,
    "min_ns": pl.Int64, "max_ns": pl.Int64, "p95_ns": pl.Int64, "p99_ns": pl.Int64,
}  # fmt: skip
PRINTED_ROWS: Final = {  # section → rows, or groups, that it prints at most
    "Backend selection by op/backend": 20,
    "Internal kernel by parent/op": 20,
    "Kernel aggregate (all parents)": 50,
    "GPU kernel durations (excluding waits)": 20,
    "GPU kernel aggregate (by kernel type)": 20,
    "Matmul shape backend summary": 20,
    "GPU wait breakdown": 20,
    "Command buffer GPU timing": 20,
}

_TITLE: Final = re.compile(r"^=== Analyzing (?P<path>.*) ===$")
_TOTAL: Final = re.compile(r"^Total events: (?P<events>\d{1,15})$")
_COLUMNS: Final = {  # printed name → our column
    "total": "total_ns", "avg": "mean_ns", "min": "min_ns", "max": "max_ns", "p95_ms": "p95_ns",
    "p99_ms": "p99_ns",
}  # fmt: skip
_FIGURE: Final = re.compile(r"^(\w+)=(\d{1,15}(?:\.\d{1,9})?)ms$")
_DURATIONS: Final = {"total_ns": "dur", "min_ns": "min", "max_ns": "max", "p95_ns": "p95", "p99_ns": "p99"}
_EVENTS: Final = list_column_types(*OpMeaning._fields, "count", *_DURATIONS.values())

Row = dict[str, Any]


@dataclass
class _ReportDraft:
    """One printed report while it is read."""

    path: str
    events: int | None = None
    sections: dict[str, list[Row]] = field(default_factory=dict)


def sniff(head: Head) -> bool:
    lines = [text.rstrip() for text in head.lines[:4000]]
    for number, text in enumerate(lines):
        if _TITLE.match(text):
            return any(_TOTAL.match(after) for after in lines[number + 1 : number + 4])
    return False


def load(source: Source) -> list[Run]:
    reports = list(_iter_reports(source.read_text().split("\n"), source.log))
    if not any(r.sections for r in reports):
        raise UnreadableError("contains no section of a metallic report", where=source.label)
    runs = [_build_run(report, source.log) for report in reports if report.sections]
    return [with_log(run, source.log) for run in runs]


def _iter_reports(lines: list[str], log: Log) -> Iterator[_ReportDraft]:
    """Yield each report: all lines from its title to the next one."""
    texts = [line.rstrip() for line in lines]
    titles = [(at, title["path"]) for at, text in enumerate(texts) if (title := _TITLE.match(text))]
    end_lines = [*(at for at, _ in titles[1:]), len(texts)]
    for (at, path), end in zip(titles, end_lines, strict=True):
        report = _ReportDraft(path)
        _read_sections(report, [text for text in texts[at + 1 : end] if text], log)
        yield report


def _read_sections(report: _ReportDraft, texts: list[str], log: Log) -> None:
    """Fill a report. Headings end in a colon: of a section not indented, of a group indented; rows follow."""
    rows, group = None, None
    for text in texts:
        if total := _TOTAL.match(text):
            report.events = int(total["events"])
        elif not text.startswith(" "):
            rows = report.sections.setdefault(text.removesuffix(":"), []) if text.endswith(":") else None
        elif rows is not None and text.endswith(":"):
            group = text.strip().removesuffix(":")
        elif rows is not None:
            _add_row(rows, text, group if text.startswith("    ") else None, log)


def _add_row(rows: list[Row], text: str, group: str | None, log: Log) -> None:
    log.read += 1
    row = parse_statistics(text.strip())
    if row is None:
        log.drop("bad_line", "section lines without statistics")
    else:
        rows.append({**row, "under": group})


def parse_statistics(text: str) -> Row | None:
    """Parse `label: count=N | total=…ms | …`; the label itself may contain colons and bars."""
    if text.endswith(": no samples"):
        return {"label": text.removesuffix(": no samples")}
    label, separator, values_text = text.rpartition(": count=")
    count, *values = re.split(r" \| |, ", values_text)
    if not separator or not re.fullmatch(r"\d{1,15}", count):
        return None
    row: Row = {"label": label, "count": int(count)}
    for value in values:
        match = _FIGURE.match(value)
        if match is None or match[1] not in _COLUMNS:
            return None
        row[_COLUMNS[match[1]]] = int(Decimal(match[2]) * 1_000_000)
    return row


def _build_run(report: _ReportDraft, log: Log) -> Run:
    sections = report.sections
    tables = {_normalise_title(title): pl.DataFrame(rows, SECTION_SCHEMA) for title, rows in sections.items()}
    for title, rows in sections.items():
        if len({row["under"] or row["label"] for row in rows}) >= PRINTED_ROWS.get(title, 1 << 30):
            message = f"'{title}' was printed up to its limit; its rows are incomplete"
            log.note(f"truncated_{_normalise_title(title).replace(' ', '_')}", message)
    events = pl.DataFrame(list(_iter_events(sections)), schema=_EVENTS)
    return build_run(report.path.rsplit("/", 1)[-1] or "report", _build_meta(report), events, log, tables)


def _normalise_title(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", title.lower()).strip()


def _iter_events(sections: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield aggregate rows: kernels by kernel type, and the other timers under their own lenses."""
    for row in sections.get("GPU kernel aggregate (by kernel type)", ()):
        yield _build_event(parse_op_name(row["label"])._replace(name=row["label"]), row)
    for title in ("GPU wait breakdown", "Command buffer GPU timing"):
        for row in sections.get(title, ()):
            yield _build_event(parse_op_name(collapse_repeated_scopes(row["label"])), row)
    leaves = {row["label"]: row for row in sections.get("Kernel aggregate (all parents)", ())}
    for row in sections.get("Internal kernel by parent/op", ()):
        parent, _, name = row["label"].partition(" :: ")
        yield _build_event(describe_internal_kernel(parent, name), leaves.pop(name, row))
    for name, row in leaves.items():
        yield _build_event(describe_internal_kernel("", name), row)


def _build_event(meaning: OpMeaning, row: Row) -> Row:
    durations = {column: row.get(key) for key, column in _DURATIONS.items()}
    path = meaning.path.removeprefix(" / ")
    return {**meaning._asdict(), "path": path, "count": row.get("count"), **durations}


def _build_meta(report: _ReportDraft) -> dict[str, Any]:
    timers = report.sections.get("Internal kernel by parent/op", ())
    counts = {row["label"]: row.get("count") for row in timers}
    first_block_passes = counts.get("generation_loop :: block_0_total") or 0
    decode_passes = counts.get("generation_loop :: forward_step_total") or 0
    kernels = report.sections.get("GPU kernel aggregate (by kernel type)", ())
    is_profiled = any("::" in row["label"] for row in kernels)
    meta = {
        "producer": "metallic",
        "recording": report.path,
        "lens": "wall" if is_profiled else "gpu",
        "profiled": is_profiled,
        "event_count": report.events,
        "tokens": counts.get("generation_loop :: iteration_total"),
    }
    if first_block_passes > decode_passes > 0:
        meta["prompt_tokens"] = first_block_passes - decode_passes
        meta["guess"] = ["prompt tokens: passes through the first block minus decode steps"]
    return {k: v for k, v in meta.items() if v is not None}
