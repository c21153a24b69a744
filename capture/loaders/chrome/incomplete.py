"""Trace events that are not complete: begin/end pairs, counters, instants, memory, names of threads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.loaders._json_document import as_float, value_of
from capture.loaders.chrome.tables import Event, ns, raw_text

MEMORY: Final = "[memory]"
_DEVICES: Final = 1 << 20  # numbers of devices are smaller
_INSTANTS: Final = ("i", "I", "R", "n")
_TOTALS: Final = {"Total Allocated": "allocated", "Total Reserved": "reserved"}
_OPENING: Final = {"B": "E", "b": "e"}
_ROW: Final = {
    "kind": pl.String, "name": pl.String, "t": pl.Int64, "lens": pl.String, "track": pl.String,
    "path": pl.String, "value": pl.Float64, "unit": pl.String, "bytes": pl.Float64,
}  # fmt: skip


@dataclass
class Names:
    """What the metadata events call processes and threads."""

    processes: dict[str, str] = field(default_factory=dict)
    threads: dict[str, str] = field(default_factory=dict)
    lanes: Mapping[str, str] = field(default_factory=dict)  # place → track of a device, where that is known
    regions: Mapping[str, str | None] = field(default_factory=dict)  # place inside a kernel → the kernel


def names_in(events: Sequence[Event]) -> Names:
    """Return what the events call processes and threads."""
    names = Names()
    for event in events:
        if event.ph == "M" and event.name in ("process_name", "thread_name"):
            given = arguments(event).get("name")
            if not isinstance(given, str):
                continue
            if event.name == "process_name":
                names.processes[raw_text(bytes(event.pid))] = given
            else:
                names.threads[event.place] = given
    return names


def paired(events: Sequence[Event], log: Log) -> list[Event]:
    """Join begin and end events to complete ones; those without their other half are counted."""
    joined: list[Event] = []
    open_: dict[tuple[str, ...], list[tuple[Event, int]]] = {}
    alone = 0
    pairs = [e for e in events if e.ph in "BEbe"]
    starts = pl.DataFrame(
        {"ts": [bytes(e.ts).decode("ascii", "replace").strip('" ') for e in pairs]}, schema={"ts": pl.String}
    )
    for event, t in zip(pairs, starts.select(ns(pl.col("ts")))["ts"], strict=True):
        if t is None:
            alone += 1
        elif event.ph in _OPENING:
            open_.setdefault((*_lane(event), _OPENING[event.ph]), []).append((event, t))
        elif stack := open_.get((*_lane(event), event.ph)):
            begin, since = stack.pop()
            joined.append(_complete(begin, t - since))
        else:
            alone += 1
    alone += sum(len(stack) for stack in open_.values())
    log.drop("unbalanced", "begin or end events without their other half", count=alone)
    log.read -= len(joined)  # two events became one
    return joined


def _lane(event: Event) -> tuple[str, ...]:
    """Return the key under which the two halves of an event meet."""
    if event.ph in "be":
        return event.cat or "", raw_text(bytes(event.id)), event.title
    return (event.place,)


def _complete(begin: Event, dur: int) -> Event:
    text = f"{dur // 1000}.{dur % 1000:03d}" if dur >= 0 else f"-{-dur // 1000}.{-dur % 1000:03d}"
    begin.ph, begin.dur = "X", msgspec.Raw(text.encode())
    return begin


def other_rows(events: Sequence[Event], log: Log) -> pl.DataFrame:
    """Return counters, memory changes and instants as rows of the event schema."""
    rows: list[dict[str, Any]] = []
    unknown = 0
    for event in events:
        if event.ph == "C":
            rows += _counters(event)
        elif event.ph in _INSTANTS:
            rows += _memory(event) if event.name == MEMORY else [_instant(event)]
        elif event.ph not in "MBEbeX":
            unknown += 1
    if unknown:
        log.drop(
            "other_phase", "events of a kind that holds no time (samples, objects, dumps)", count=unknown
        )
    frame = pl.DataFrame(rows, schema={**_ROW, "t": pl.String})
    return frame.with_columns(t=ns(pl.col("t").str.strip_chars(' "')))


def arguments(event: Event) -> dict[str, Any]:
    text = bytes(event.args)
    try:
        decoded = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        decoded = value_of(text.decode("utf-8", "replace"))
    return decoded if isinstance(decoded, dict) else {}


def _figures(event: Event) -> dict[str, float]:
    """Return the numbers among the arguments."""
    return {k: as_float(v) for k, v in arguments(event).items() if type(v) in (int, float)}


def _base(event: Event, kind: str) -> dict[str, Any]:
    return {"kind": kind, "name": event.title, "t": bytes(event.ts).decode("ascii", "replace")}


def _counters(event: Event) -> Iterator[dict[str, Any]]:
    series = _figures(event)
    for key, value in series.items():
        name = event.title if len(series) == 1 else f"{event.title}.{key}"
        yield _base(event, "counter") | {"name": name, "value": value, "unit": None}


def _memory(event: Event) -> Iterator[dict[str, Any]]:
    """Yield the totals of an allocator's books after a change: sizes. The change itself is none, and stands
    only where no total is written.
    """
    figures = _figures(event)
    device = figures.get("Device Id", -1.0)
    of_gpu = 0 <= device < _DEVICES
    here = _base(event, "memory") | {"track": f"gpu{device:.0f}" if of_gpu else "cpu"}
    totals = {name: figures[key] for key, name in _TOTALS.items() if key in figures}
    for name, size in totals.items() or [("allocation change", figures.get("Bytes", 0))]:
        yield here | {"name": name, "bytes": size}


def _instant(event: Event) -> dict[str, Any]:
    return _base(event, "mark") | {"path": "note"}
