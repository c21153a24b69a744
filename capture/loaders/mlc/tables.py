"""The kernel tables of log_analyzer.py: Markdown pipes or plain text, one run for every titled section."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._numbers import MILLISECOND, nanoseconds, number, real
from capture.loaders.mlc.roles import EXPLANATION, Kernel, Role, lost_calls, roles
from capture.run import Run, build, with_log

_TITLE: Final = re.compile(r"^## Profiling Analysis: (?P<title>.+?)\s*$")
_SUBJECT: Final = re.compile(r"(?P<model>.+?) (?P<quant>q\d+f\d+(?:_\d+)?)(?: on (?P<device>.+))?$")
_RULE: Final = re.compile(r"[\s|:=─-]*$")
_COMPLETE_ENDS: Final = ("|", "%")

LOWER_BOUND: Final = (
    "iterations are the records that reached the console, and some are lost on the way: "
    "counts and totals are lower bounds, so compare means rather than totals"
)


@dataclass
class Section:
    """The tables under one title."""

    title: str = ""
    statistics: list[dict[str, Any]] = field(default_factory=list)
    peaks: list[dict[str, Any]] = field(default_factory=list)


def runs(text: str, log: Log) -> list[Run]:
    sections = [s for s in _sections(text, log) if s.statistics or s.peaks]
    if sections:
        log.note("lower_bound", LOWER_BOUND)
    built = [_run(section, log) for section in sections]
    return [with_log(run, log) for run in built]


def _sections(text: str, log: Log) -> Iterator[Section]:
    section, header, at = Section(), [""], 0
    for line in text.split("\n"):
        if title := _TITLE.match(line):
            yield section
            section, header = Section(title["title"]), [""]
        elif "|" in line and not _RULE.match(line):
            cells = _cells(line)
            if cells[0] == "Kernel Name":
                header = [_column(c) for c in cells]
            elif "total" in header or "peak" in header:
                torn = at + len(line) == len(text) and not line.rstrip().endswith(_COMPLETE_ENDS)
                _keep(section, header, cells, log, at, torn)
        at += len(line) + 1
    yield section


def _cells(line: str) -> list[str]:
    return [c.strip() for c in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _column(heading: str) -> str:
    """`Total Time (ms)` and `Total_Time_ms` are one column: total."""
    word = heading.lower().replace("_", " ").split(" ")[0]
    return {"kernel": "name", "%": "percent", "avg": "mean"}.get(word, word)


def _keep(section: Section, header: list[str], cells: list[str], log: Log, at: int, torn: bool) -> None:
    log.read += 1
    row = _row(dict(zip(header, cells, strict=False)))
    if torn or len(cells) != len(header) or not row["name"] or row["max"] is None:
        log.drop("bad_row", "table rows that are cut or hold no number", at=at)
    elif "total" not in header:
        section.peaks.append({"name": row["name"], "peak_ns": row["max"]})
    elif row["dur"] is None or row["count"] is None:
        log.drop("bad_row", "table rows that are cut or hold no number", at=at)
    else:
        section.statistics.append(row)


def _row(cells: dict[str, str]) -> dict[str, Any]:
    calls = number(cells.get("iterations", ""))
    return {
        "name": cells["name"],
        "dur": nanoseconds(cells.get("total", ""), MILLISECOND),
        "count": int(calls) if calls is not None and 0 <= calls < 1 << 62 else None,
        "mean": nanoseconds(cells.get("mean", ""), MILLISECOND),
        "max": nanoseconds(cells.get("peak", ""), MILLISECOND),
        "percent": real(cells.get("percent", "")),
        "cumulative": real(cells.get("cumulative", "")),
    }


def _run(section: Section, log: Log) -> Run:
    kernels = [Kernel(r["name"], r["count"], r["dur"]) for r in section.statistics]
    by_name = roles(kernels)
    meta = _meta(section.title) | {"profiled": True}
    if by_name:
        meta["guess"] = [EXPLANATION]
    _check(section, kernels, by_name, meta, log)
    name = " ".join(meta[k] for k in ("model", "quant") if k in meta) or "kernels"
    return build(name, meta, _events(section, by_name), log, _tables(section))


def _meta(title: str) -> dict[str, Any]:
    if not (subject := _SUBJECT.match(title)):
        return {"model": title} if title else {}
    compute = re.search(r"f\d+", subject["quant"])
    meta = {**subject.groupdict(), "dtype": compute and compute[0]}
    return {k: v for k, v in meta.items() if v}


def _check(
    section: Section, kernels: list[Kernel], by_name: dict[str, Role], meta: dict[str, Any], log: Log
) -> None:
    """Note what the table itself shows to be missing."""
    if lost := lost_calls(kernels, by_name):
        meta["lost_records"] = {phase: list(span) for phase, span in lost.items()}
        log.note("uneven_calls", "kernels that run once a layer do not count alike: records were lost")
    shares = [r["percent"] for r in section.statistics if r["percent"] is not None]
    if shares and abs(sum(shares) - 100) > 0.5:
        log.note("rows_missing", "the printed shares do not add up to 100 %", severity="data_loss")
        meta["truncated"] = True


def _events(section: Section, by_name: dict[str, Role]) -> pl.DataFrame:
    nobody = Role()
    rows = [
        {
            "kind": "kernel",
            "lens": "gpu",
            **{k: r[k] for k in ("name", "dur", "count", "max")},
            "op": by_name.get(r["name"], nobody).op,
            "phase": by_name.get(r["name"], nobody).phase,
        }
        for r in section.statistics
    ]
    schema = {"kind": pl.String, "lens": pl.String, "name": pl.String, "dur": pl.Int64, "count": pl.Int64}
    return pl.DataFrame(rows, {**schema, "max": pl.Int64, "op": pl.String, "phase": pl.String})


def _tables(section: Section) -> dict[str, pl.DataFrame]:
    tables = {}
    if section.statistics:
        renamed = {"dur": "total_ns", "mean": "mean_ns", "max": "peak_ns"}
        renamed |= {"percent": "printed_pct", "cumulative": "cumulative_pct"}
        tables["statistics"] = pl.DataFrame(section.statistics, infer_schema_length=None).rename(renamed)
    if section.peaks:
        tables["peaks"] = pl.DataFrame(section.peaks)
    return tables
