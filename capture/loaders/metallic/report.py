"""The report that metallic's analyzer prints: sections of statistics, most cut to their first rows.

Read: every section, as a table; kernels, waits and GPU times as aggregates. Lists that were cut at their
limit are named.
metallic: https://github.com/cchance27/test-burn
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders.metallic.names import Meaning, collapsed, internal_meaning, op_meaning
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "metallic report"
PRODUCER: Final = "tools/analyze_jsonl.py of metallic (test-burn)"
HOWTO: Final = "python tools/analyze_jsonl.py prof.jsonl > report.txt"

SCHEMA: Final = {
    "label": pl.String, "under": pl.String, "count": pl.Int64, "total_ns": pl.Int64, "mean_ns": pl.Int64,
    "min_ns": pl.Int64, "max_ns": pl.Int64, "p95_ns": pl.Int64, "p99_ns": pl.Int64,
}  # fmt: skip
LIMITS: Final = {
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
_KEYS: Final = {
    "total": "total_ns", "avg": "mean_ns", "min": "min_ns", "max": "max_ns", "p95_ms": "p95_ns",
    "p99_ms": "p99_ns",
}  # fmt: skip
_FIGURE: Final = re.compile(r"^(\w+)=(\d{1,15}(?:\.\d{1,9})?)ms$")
_DURATIONS: Final = {"total_ns": "dur", "min_ns": "min", "max_ns": "max", "p95_ns": "p95", "p99_ns": "p99"}

Row = dict[str, Any]


@dataclass
class _Report:
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
    reports = list(_reports(source.text().split("\n"), source.log))
    if not any(r.sections for r in reports):
        raise UnreadableError("holds no section of a metallic report", where=source.label)
    runs = [_run(report, source.log) for report in reports if report.sections]
    return [with_log(run, source.log) for run in runs]


def _reports(lines: list[str], log: Log) -> Iterator[_Report]:
    """Yield each report: what stands from its title to the next one."""
    texts = [line.rstrip() for line in lines]
    titles = [(at, title["path"]) for at, text in enumerate(texts) if (title := _TITLE.match(text))]
    ends = [*(at for at, _ in titles[1:]), len(texts)]
    for (at, path), end in zip(titles, ends, strict=True):
        report = _Report(path)
        _read_sections(report, [text for text in texts[at + 1 : end] if text], log)
        yield report


def _read_sections(report: _Report, texts: list[str], log: Log) -> None:
    """Fill a report from its lines: headings end in a colon and stand at the margin, groups further in."""
    rows, under = None, None
    for text in texts:
        if total := _TOTAL.match(text):
            report.events = int(total["events"])
        elif not text.startswith(" "):
            rows = report.sections.setdefault(text.removesuffix(":"), []) if text.endswith(":") else None
        elif rows is not None and text.endswith(":"):
            under = text.strip().removesuffix(":")
        elif rows is not None:
            _add(rows, text, under if text.startswith("    ") else None, log)


def _add(rows: list[Row], text: str, under: str | None, log: Log) -> None:
    log.read += 1
    row = statistics(text.strip())
    if row is None:
        log.drop("bad_line", "lines of a section that hold no statistics")
    else:
        rows.append({**row, "under": under})


def statistics(text: str) -> Row | None:
    """`label: count=N | total=…ms | …` by its parts; the label itself may hold colons and bars."""
    if text.endswith(": no samples"):
        return {"label": text.removesuffix(": no samples")}
    label, separator, figures = text.rpartition(": count=")
    count, *values = re.split(r" \| |, ", figures)
    if not separator or not re.fullmatch(r"\d{1,15}", count):
        return None
    row: Row = {"label": label, "count": int(count)}
    for value in values:
        figure = _FIGURE.match(value)
        if figure is None or figure[1] not in _KEYS:
            return None
        row[_KEYS[figure[1]]] = int(Decimal(figure[2]) * 1_000_000)
    return row


def _run(report: _Report, log: Log) -> Run:
    tables = {_word(title): pl.DataFrame(rows, schema=SCHEMA) for title, rows in report.sections.items()}
    for title, rows in report.sections.items():
        if len({row["under"] or row["label"] for row in rows}) >= LIMITS.get(title, 1 << 30):
            log.note(
                f"truncated_{_word(title).replace(' ', '_')}",
                f"'{title}' is a printed list that was cut at its limit; its rows are not the whole",
            )
    events = pl.DataFrame(list(_events(report.sections)), schema=_EVENTS)
    return build(report.path.rsplit("/", 1)[-1] or "report", _meta(report), events, log, tables)


def _word(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", title.lower()).strip()


_EVENTS: Final = {
    **dict.fromkeys(Meaning._fields, pl.String), "layer": pl.Int32, "count": pl.Int64,
    **dict.fromkeys(_DURATIONS.values(), pl.Int64),
}  # fmt: skip


def _events(sections: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield aggregate rows: kernels from the list by kernel type, the other stopwatches under their own
    lenses.
    """
    for row in sections.get("GPU kernel aggregate (by kernel type)", ()):
        yield _event(op_meaning(row["label"])._replace(name=row["label"]), row)
    for title in ("GPU wait breakdown", "Command buffer GPU timing"):
        for row in sections.get(title, ()):
            yield _event(op_meaning(collapsed(row["label"])), row)
    leaves = {row["label"]: row for row in sections.get("Kernel aggregate (all parents)", ())}
    for row in sections.get("Internal kernel by parent/op", ()):
        parent, _, name = row["label"].partition(" :: ")
        yield _event(internal_meaning(parent, name), leaves.pop(name, row))
    for name, row in leaves.items():
        yield _event(internal_meaning("", name), row)


def _event(meaning: Meaning, row: Row) -> Row:
    figures = {column: row.get(key) for key, column in _DURATIONS.items()}
    return {
        **meaning._asdict(),
        "path": meaning.path.removeprefix(" / "),
        "count": row.get("count"),
        **figures,
    }


def _meta(report: _Report) -> dict[str, Any]:
    counts = {
        row["label"]: row.get("count") for row in report.sections.get("Internal kernel by parent/op", ())
    }
    steps = counts.get("generation_loop :: iteration_total")
    blocks = counts.get("generation_loop :: block_0_total")
    forwards = counts.get("generation_loop :: forward_step_total")
    kernels = report.sections.get("GPU kernel aggregate (by kernel type)", ())
    profiled = any("::" in row["label"] for row in kernels)
    meta = {
        "producer": "metallic",
        "recording": report.path,
        "lens": "wall" if profiled else "gpu",
        "profiled": profiled,
        "event_count": report.events,
        "tokens": steps,
        "prompt_tokens": blocks - forwards if blocks and forwards and blocks > forwards else None,
    }
    if meta["prompt_tokens"] is not None:
        meta["guess"] = ["prompt tokens: passes through the first block less decode steps"]
    return {k: v for k, v in meta.items() if v is not None}
