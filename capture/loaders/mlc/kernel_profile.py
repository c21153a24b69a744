"""WebLLM and MLC-LLM kernel profiles: printed tables, or records in a browser console.

Read: tables in Markdown or plain text, one run per section; console records with start and end, or with a
duration only. Not read: other console messages.
WebLLM: https://github.com/mlc-ai/web-llm
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._typed_cells import MILLISECOND, parse_decimal, parse_float, parse_nanoseconds
from capture.loaders.mlc import console_records
from capture.loaders.mlc.console_records import LOWER_BOUND
from capture.loaders.mlc.guess_roles import (
    ROLE_GUESS,
    GuessedRole,
    UnlabelledKernel,
    find_uneven_calls,
    guess_roles,
)
from capture.run import Run, build_run, list_column_types, with_log
from capture.source import Head, Source

FORMAT: Final = "mlc"
PRODUCER: Final = "a timestamp-query hook on WebLLM / MLC-LLM, its console log or log_analyzer.py's tables"
HOWTO: Final = "paste the hook before WebLLM loads, save the browser console to a file"
_TABLE: Final = re.compile(
    r"^## Profiling Analysis:|Kernel Execution Statistics \(Sorted by Total Time\)|"
    r"^\|? *Kernel Name *\|(?=.*\bPeak[ _]Time)",
    re.MULTILINE,
)
_TITLE: Final = re.compile(r"^## Profiling Analysis: (?P<title>.+?)\s*$")
_SUBJECT: Final = re.compile(r"(?P<model>.+?) (?P<quant>q\d+f\d+(?:_\d+)?)(?: on (?P<device>.+))?$")
_RULED_LINE: Final = re.compile(r"[\s|:=─-]*$")
_ROW_ENDS: Final = ("|", "%")


@dataclass
class TitledTables:
    """The tables under one title."""

    title: str = ""
    statistics: list[dict[str, Any]] = field(default_factory=list)
    peaks: list[dict[str, Any]] = field(default_factory=list)


def sniff(head: Head) -> bool:
    return bool(_TABLE.search(head.text)) or console_records.has_records(head.text)


def load(source: Source) -> list[Run]:
    text, log = source.read_text(), source.log
    if not _TABLE.search(text):
        return console_records.build_console_runs(text, log)
    sections = [section for section in _iter_sections(text, log) if section.statistics or section.peaks]
    if sections:
        log.note("lower_bound", LOWER_BOUND)
    runs = [_build_run(section, log) for section in sections]
    return [with_log(run, log) for run in runs]


def _iter_sections(text: str, log: Log) -> Iterator[TitledTables]:
    section, header, offset = TitledTables(), [""], 0
    for line in text.split("\n"):
        if title := _TITLE.match(line):
            yield section
            section, header = TitledTables(title["title"]), [""]
        elif "|" in line and not _RULED_LINE.match(line):
            cells = [c.strip() for c in line.strip().removeprefix("|").removesuffix("|").split("|")]
            if cells[0] == "Kernel Name":
                header = [_rename_heading(cell) for cell in cells]
            elif "total" in header or "peak" in header:
                is_cut = offset + len(line) == len(text) and not line.rstrip().endswith(_ROW_ENDS)
                _add_row(section, header, cells, log, offset, is_cut)
        offset += len(line) + 1
    yield section


def _rename_heading(heading: str) -> str:
    """Map `Total Time (ms)` and `Total_Time_ms` to one column: total."""
    word = heading.lower().replace("_", " ").split(" ")[0]
    return {"kernel": "name", "%": "percent", "avg": "mean"}.get(word, word)


def _add_row(
    section: TitledTables, header: list[str], cells: list[str], log: Log, offset: int, is_cut: bool
) -> None:
    log.read += 1
    row = _parse_row(dict(zip(header, cells, strict=False)))
    needs = ("max", "dur", "count") if "total" in header else ("max",)
    has_numbers = all(row[column] is not None for column in needs)
    if is_cut or len(cells) != len(header) or not row["name"] or not has_numbers:
        log.drop("bad_row", "table rows that are cut or lack a number", at=offset)
    elif "total" in header:
        section.statistics.append(row)
    else:
        section.peaks.append({"name": row["name"], "peak_ns": row["max"]})


def _parse_row(cells: dict[str, str]) -> dict[str, Any]:
    calls = parse_decimal(cells.get("iterations", ""))
    return {
        "name": cells["name"],
        "dur": parse_nanoseconds(cells.get("total", ""), MILLISECOND),
        "count": int(calls) if calls is not None and 0 <= calls < 1 << 62 else None,
        "mean": parse_nanoseconds(cells.get("mean", ""), MILLISECOND),
        "max": parse_nanoseconds(cells.get("peak", ""), MILLISECOND),
        "percent": parse_float(cells.get("percent", "")),
        "cumulative": parse_float(cells.get("cumulative", "")),
    }


def _build_run(section: TitledTables, log: Log) -> Run:
    kernels = [UnlabelledKernel(row["name"], row["count"], row["dur"]) for row in section.statistics]
    role_by_name = guess_roles(kernels)
    meta = _parse_title(section.title) | {"profiled": True}
    if role_by_name:
        meta["guess"] = [ROLE_GUESS]
    if call_ranges := find_uneven_calls(kernels, role_by_name):
        meta["lost_records"] = {phase: list(span) for phase, span in call_ranges.items()}
        log.note("uneven_calls", "kernels that run once per layer have different counts: records were lost")
    shares = [row["percent"] for row in section.statistics if row["percent"] is not None]
    if shares and abs(sum(shares) - 100) > 0.5:
        log.note("rows_missing", "the printed shares do not add up to 100 %", severity="data_loss")
        meta["truncated"] = True
    name = " ".join(meta[key] for key in ("model", "quant") if key in meta) or "kernels"
    return build_run(name, meta, _build_events(section, role_by_name), log, _build_tables(section))


def _parse_title(title: str) -> dict[str, Any]:
    if not (subject := _SUBJECT.match(title)):
        return {"model": title} if title else {}
    compute = re.search(r"f\d+", subject["quant"])
    meta = {**subject.groupdict(), "dtype": compute and compute[0]}
    return {key: value for key, value in meta.items() if value}


def _build_events(section: TitledTables, role_by_name: dict[str, GuessedRole]) -> pl.DataFrame:
    roles = [role_by_name.get(row["name"], GuessedRole()) for row in section.statistics]
    rows = [
        ("kernel", "gpu", row["name"], row["dur"], row["count"], row["max"], role.op, role.phase)
        for row, role in zip(section.statistics, roles, strict=True)
    ]
    schema = list_column_types("kind", "lens", "name", "dur", "count", "max", "op", "phase")
    return pl.DataFrame(rows, schema, orient="row")


def _build_tables(section: TitledTables) -> dict[str, pl.DataFrame]:
    tables = {}
    if section.statistics:
        renamed = {"dur": "total_ns", "mean": "mean_ns", "max": "peak_ns"}
        renamed |= {"percent": "printed_pct", "cumulative": "cumulative_pct"}
        tables["statistics"] = pl.DataFrame(section.statistics, infer_schema_length=None).rename(renamed)
    if section.peaks:
        tables["peaks"] = pl.DataFrame(section.peaks)
    return tables
