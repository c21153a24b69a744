"""Parse the kernel records in a browser console log: one brace group per compute pass."""

import re
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._typed_cells import MILLISECOND, parse_decimal, scale_to_integer
from capture.loaders.mlc.guess_roles import ROLE_GUESS, GuessedRole, UnlabelledKernel, guess_roles
from capture.run import MAX_DURATION_NS, Run, build_run, list_column_types, with_log

LOWER_BOUND: Final = (
    "iterations count the records that reached the console, and some were lost: "
    "counts and totals are lower bounds; compare means instead"
)

_GROUP: Final = re.compile(r"\{[^{}]*\}")
_NAMES: Final = re.compile(r"""["']?entry_?[pP]oints?["']?\s*:\s*(\[[^\]]*\]|"[^"]*"|'[^']*'|[\w.$-]+)""")
_ITEM: Final = re.compile(r"""[^\s,"'\[\]]+""")
_FIELD: Final = r"""["']?\b{}["']?\s*:\s*["']?([-+\d.eE]+)n?\b"""
_START: Final = re.compile(_FIELD.format("start"))
_END: Final = re.compile(_FIELD.format("end"))
_TIME: Final = re.compile(_FIELD.format("timeMs"))
_MODEL: Final = re.compile(r"\b([A-Za-z][\w.]*(?:-[\w.]+)*)-(q\d+f\d+(?:_\d+)?)(?:-MLC)?\b")


def has_records(text: str) -> bool:
    """Return True if a console log contains at least one record."""
    return "entry" in text and any(_parse_record(group) is not None for _, group in _iter_groups(text))


def build_console_runs(text: str, log: Log) -> list[Run]:
    """Build one run from the records of a console log; none if it has no records."""
    rows = list(_iter_rows(text, log))
    if not rows:
        return []
    log.note("lower_bound", LOWER_BOUND)
    meta, role_by_name = _build_meta(text), _guess_roles(rows)
    if role_by_name:
        meta["guess"] = [ROLE_GUESS]
    name = " ".join(meta[k] for k in ("model", "quant") if k in meta) or "console"
    return [with_log(build_run(name, meta, _build_events(rows, role_by_name), log), log)]


def _iter_groups(text: str) -> Iterator[tuple[int, str]]:
    """Yield brace groups with an entry point; records do not nest, so inner braces are excluded."""
    for group in _GROUP.finditer(text):
        if _NAMES.search(group[0]):
            yield group.start(), group[0]


def _iter_rows(text: str, log: Log) -> Iterator[dict[str, Any]]:
    group_count = 0
    for offset, group in _iter_groups(text):
        log.read += 1
        group_count += 1
        record = _parse_record(group)
        if record is None:
            log.drop("bad_record", "records without an entry point or without a time", at=offset)
            continue
        if record.pop("entry_points") > 1:
            message = "passes with several entry points, attributed to the first"
            log.note("several_entry_points", message, at=offset)
        yield record
    cut_count = len(_NAMES.findall(text)) - group_count
    if cut_count > 0:
        log.read += cut_count
        log.drop("torn_record", "records that are cut or broken", count=cut_count)


def _parse_record(group: str) -> dict[str, Any] | None:
    match = _NAMES.search(group)
    names = _ITEM.findall(match[1]) if match else []
    start, dur = _parse_times(group)
    if not names or dur is None or abs(dur) > MAX_DURATION_NS:
        return None
    return {"name": names[0], "t": start, "dur": dur, "entry_points": len(names)}


def _parse_times(group: str) -> tuple[int | None, int | None]:
    """Parse start and duration in ns; older records contain only a duration in ms."""
    if (start := _START.search(group)) and (end := _END.search(group)):
        begin, finish = (scale_to_integer(parse_decimal(match[1]), 1) for match in (start, end))
        return begin, None if begin is None or finish is None else finish - begin
    if time := _TIME.search(group):
        return None, scale_to_integer(parse_decimal(time[1]), MILLISECOND)
    return None, None


def _build_meta(text: str) -> dict[str, Any]:
    """Return the model, if the console's other messages name exactly one."""
    models = set(_MODEL.findall(text))
    if len(models) != 1:
        return {"profiled": True}
    model, quant = models.pop()
    return {"profiled": True, "model": model, "quant": quant}


def _guess_roles(rows: list[dict[str, Any]]) -> dict[str, GuessedRole]:
    durations: dict[str, list[int]] = {}
    for row in rows:
        durations.setdefault(row["name"], []).append(row["dur"])
    return guess_roles([UnlabelledKernel(name, len(durs), sum(durs)) for name, durs in durations.items()])


def _build_events(rows: list[dict[str, Any]], role_by_name: dict[str, GuessedRole]) -> pl.DataFrame:
    first = min((row["t"] for row in rows if row["t"] is not None), default=0)
    roles = [role_by_name.get(row["name"], GuessedRole()) for row in rows]
    events = [
        (row["name"], row["t"], row["dur"], role.op, role.phase)
        for row, role in zip(rows, roles, strict=True)
    ]
    frame = pl.DataFrame(events, list_column_types("name", "t", "dur", "op", "phase"), orient="row")
    return frame.with_columns(pl.col("t") - first, kind=pl.lit("kernel"), lens=pl.lit("gpu"))
