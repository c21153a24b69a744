"""The browser console's own records: one brace group for every compute pass, between other messages."""

import re
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._numbers import MILLISECOND, exact, number
from capture.loaders.mlc.roles import EXPLANATION, Kernel, Role, roles
from capture.loaders.mlc.tables import LOWER_BOUND
from capture.run import LONGEST_NS, Run, build, with_log

_GROUP: Final = re.compile(r"\{[^{}]*\}")
_NAMES: Final = re.compile(r"""["']?entry_?[pP]oints?["']?\s*:\s*(\[[^\]]*\]|"[^"]*"|'[^']*'|[\w.$-]+)""")
_ITEM: Final = re.compile(r"""[^\s,"'\[\]]+""")
_FIELD: Final = r"""["']?\b{}["']?\s*:\s*["']?([-+\d.eE]+)n?\b"""
_START: Final = re.compile(_FIELD.format("start"))
_END: Final = re.compile(_FIELD.format("end"))
_TIME: Final = re.compile(_FIELD.format("timeMs"))
_MODEL: Final = re.compile(r"\b([A-Za-z][\w.]*(?:-[\w.]+)*)-(q\d+f\d+(?:_\d+)?)(?:-MLC)?\b")

_BAD: Final = "records without an entry point or without a time"


def speaks(text: str) -> bool:
    """Return whether a console log holds at least one record."""
    return "entry" in text and any(_record(group) is not None for _, group in _groups(text))


def runs(text: str, log: Log) -> list[Run]:
    rows = list(_rows(text, log))
    if not rows:
        return []
    log.note("lower_bound", LOWER_BOUND)
    meta, by_name = _meta(text), _roles(rows)
    if by_name:
        meta["guess"] = [EXPLANATION]
    name = " ".join(meta[k] for k in ("model", "quant") if k in meta) or "console"
    return [with_log(build(name, meta, _events(rows, by_name), log), log)]


def _groups(text: str) -> Iterator[tuple[int, str]]:
    """Yield brace groups that speak of an entry point. No record nests, so one without inner braces is
    whole.
    """
    for group in _GROUP.finditer(text):
        if _NAMES.search(group[0]):
            yield group.start(), group[0]


def _rows(text: str, log: Log) -> Iterator[dict[str, Any]]:
    whole = 0
    for at, group in _groups(text):
        log.read += 1
        whole += 1
        record = _record(group)
        if record is None:
            log.drop("bad_record", _BAD, at=at)
            continue
        if record.pop("passes") > 1:
            log.note("several_entry_points", "passes with several entry points: charged to the first", at=at)
        yield record
    torn = len(_NAMES.findall(text)) - whole
    if torn > 0:
        log.read += torn
        log.drop("torn_record", "records that are cut or broken", count=torn)


def _record(group: str) -> dict[str, Any] | None:
    named = _NAMES.search(group)
    names = _ITEM.findall(named[1]) if named else []
    start, dur = _times(group)
    if not names or dur is None or abs(dur) > LONGEST_NS:
        return None
    return {"name": names[0], "t": start, "dur": dur, "passes": len(names)}


def _times(group: str) -> tuple[int | None, int | None]:
    """Return start and duration in ns; the older records tell a duration in ms only."""
    if (start := _START.search(group)) and (end := _END.search(group)):
        begin, finish = exact(number(start[1]), 1), exact(number(end[1]), 1)
        return begin, None if begin is None or finish is None else finish - begin
    if time := _TIME.search(group):
        return None, exact(number(time[1]), MILLISECOND)
    return None, None


def _meta(text: str) -> dict[str, Any]:
    """Return the model, where the console's other messages name exactly one."""
    named = set(_MODEL.findall(text))
    if len(named) != 1:
        return {"profiled": True}
    model, quant = named.pop()
    return {"profiled": True, "model": model, "quant": quant}


def _roles(rows: list[dict[str, Any]]) -> dict[str, Role]:
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        calls, total = sums.get(row["name"], (0, 0))
        sums[row["name"]] = (calls + 1, total + row["dur"])
    return roles([Kernel(name, calls, total) for name, (calls, total) in sums.items()])


def _events(rows: list[dict[str, Any]], by_name: dict[str, Role]) -> pl.DataFrame:
    first = min((r["t"] for r in rows if r["t"] is not None), default=0)
    nobody = Role()
    return pl.DataFrame(
        {
            "kind": "kernel",
            "lens": "gpu",
            "name": [r["name"] for r in rows],
            "t": pl.Series([None if r["t"] is None else r["t"] - first for r in rows], dtype=pl.Int64),
            "dur": pl.Series([r["dur"] for r in rows], dtype=pl.Int64),
            "op": pl.Series([by_name.get(r["name"], nobody).op for r in rows], dtype=pl.String),
            "phase": pl.Series([by_name.get(r["name"], nobody).phase for r in rows], dtype=pl.String),
        }
    )
