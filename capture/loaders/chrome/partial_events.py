"""Convert events other than complete ones: begin/end pairs, counters, instants, memory."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import parse_object, to_float
from capture.loaders._typed_rows import list_column_types
from capture.loaders.chrome.trace_model import TraceEvent, convert_us_to_ns, decode_raw, encode_us

_MEMORY: Final = "[memory]"
_MAX_DEVICES: Final = 1 << 20  # larger device ids are invalid
_INSTANT_PHASES: Final = ("i", "I", "R", "n")
_MEMORY_TOTALS: Final = {"Total Allocated": "allocated", "Total Reserved": "reserved"}
_END_PHASES: Final = {"B": "E", "b": "e"}  # by phase of the begin
_ROW_SCHEMA: Final = list_column_types("kind", "name", "lens", "track", "path", "value", "unit", "bytes")


def join_begin_end(events: Sequence[TraceEvent], log: Log) -> list[TraceEvent]:
    """Join begin and end events to complete ones; drop and count those without their other half."""
    joined: list[TraceEvent] = []
    open_events: dict[tuple[str, ...], list[tuple[TraceEvent, int]]] = {}
    unpaired = 0
    halves = [e for e in events if e.ph in "BEbe"]
    texts = [bytes(e.ts).decode("ascii", "replace").strip('" ') for e in halves]
    starts = pl.DataFrame({"ts": texts}, schema={"ts": pl.String}).select(convert_us_to_ns(pl.col("ts")))
    for event, t in zip(halves, starts["ts"], strict=True):
        if t is None:
            unpaired += 1
        elif event.ph in _END_PHASES:
            key = (*_build_pair_key(event), _END_PHASES[event.ph])
            open_events.setdefault(key, []).append((event, t))
        elif stack := open_events.get((*_build_pair_key(event), event.ph)):
            begin, start = stack.pop()
            begin.ph, begin.dur = "X", encode_us(t - start)
            joined.append(begin)
        else:
            unpaired += 1
    unpaired += sum(len(stack) for stack in open_events.values())
    log.drop("unbalanced", "begin or end events without their other half", count=unpaired)
    log.read -= len(joined)  # two events became one
    return joined


def _build_pair_key(event: TraceEvent) -> tuple[str, ...]:
    """Build the key that both halves of an event share."""
    if event.ph in "be":
        return event.cat or "", decode_raw(bytes(event.id)), event.title
    return (event.thread,)


def build_other_rows(events: Sequence[TraceEvent], log: Log) -> pl.DataFrame:
    """Build rows of the event schema from counters, memory changes and instants."""
    rows: list[dict[str, Any]] = []
    untimed = 0
    for event in events:
        if event.ph == "C":
            rows += _iter_counter_rows(event)
        elif event.ph in _INSTANT_PHASES and event.name == _MEMORY:
            rows += _iter_memory_rows(event)
        elif event.ph in _INSTANT_PHASES:
            rows.append(_build_row(event, "mark") | {"path": "note"})
        elif event.ph not in "MBEbeX":
            untimed += 1
    log.drop("other_phase", "events of a phase without times (samples, objects, dumps)", count=untimed)
    frame = pl.DataFrame(rows, schema={**_ROW_SCHEMA, "t": pl.String})
    return frame.with_columns(t=convert_us_to_ns(pl.col("t").str.strip_chars(' "')))


def _parse_numbers(event: TraceEvent) -> dict[str, float]:
    return {k: to_float(v) for k, v in parse_object(bytes(event.args)).items() if type(v) in (int, float)}


def _build_row(event: TraceEvent, kind: str) -> dict[str, Any]:
    return {"kind": kind, "name": event.title, "t": bytes(event.ts).decode("ascii", "replace")}


def _iter_counter_rows(event: TraceEvent) -> Iterator[dict[str, Any]]:
    series = _parse_numbers(event)
    for key, value in series.items():
        name = event.title if len(series) == 1 else f"{event.title}.{key}"
        yield _build_row(event, "counter") | {"name": name, "value": value, "unit": None}


def _iter_memory_rows(event: TraceEvent) -> Iterator[dict[str, Any]]:
    """Yield the allocator's totals after a change; the change itself only if there is no total."""
    numbers = _parse_numbers(event)
    device = numbers.get("Device Id", -1.0)
    is_gpu = 0 <= device < _MAX_DEVICES
    row = _build_row(event, "memory") | {"track": f"gpu{device:.0f}" if is_gpu else "cpu"}
    totals = {name: numbers[key] for key, name in _MEMORY_TOTALS.items() if key in numbers}
    for name, size in totals.items() or [("allocation change", numbers.get("Bytes", 0))]:
        yield row | {"name": name, "bytes": size}
