"""The planes of an XLA profile as complete events of a Chrome trace."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.loaders._protobuf import Value, WireError, double, inner, number, signed, text
from capture.loaders.chrome.tables import PLACE, UNNAMED, Complete, Event
from capture.native.schema import PATH_SEPARATOR

_DEVICE: Final = "/device:"
_CALLS: Final = "/host:CUPTI"
_SILENT: Final = ("/host:metadata", "Task Environment")  # planes without a timeline
_WORK: Final = re.compile(
    r"Stream|XLA Ops$"
)  # lines of a device on which its work stands; the others cover it
_STEPS: Final = "Steps"
_COPY: Final = re.compile(r"(?i)mem(cpy|set)")
_COVER: Final = "gpu_user_annotation"
_ANNOTATION: Final = "user_annotation"
_WORD: Final = re.compile(r"\w+")

# statistics that are read, by their names
_CORRELATION: Final = "correlation_id"
_DETAILS: Final = "kernel_details"
_STEP: Final = "step_num"
_SCOPES: Final = ("tf_op", "name")  # `jit(step)/layer_3/attn/dot_general`
_READ: Final = frozenset((_CORRELATION, _DETAILS, _STEP, *_SCOPES))
_DETAIL: Final = re.compile(r"(\w+):([\d.,]+)")
_FIGURES: Final = {"regs": "registers per thread", "occ_pct": "est. achieved occupancy %"}
_FURTHEST: Final = 1 << 62  # ns


@dataclass
class Events:
    """The events of all planes, column by column."""

    t: list[int] = field(default_factory=list)
    dur: list[int] = field(default_factory=list)
    correlation: list[int | None] = field(default_factory=list)
    args: list[str | None] = field(default_factory=list)
    path: list[str | None] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    known: dict[tuple[str | None, str, str], int] = field(default_factory=dict)  # category, name, place
    names: list[Event] = field(default_factory=list)  # of planes and lines
    planes: list[str] = field(default_factory=list)
    has_steps: bool = False  # the host states them

    def complete(self, base: int) -> Complete:
        """Return the events, their times since `base`; the host's steps go before a device's."""
        keys = [(_COVER if cat == _STEPS and self.has_steps else cat, *more) for cat, *more in self.known]
        labels = pl.DataFrame(
            [(_ANNOTATION if cat == _STEPS else cat, name, place) for cat, name, place in keys],
            schema={"cat": pl.String, "name": pl.String, "place": pl.String},
            orient="row",
        )
        rows = pl.DataFrame(
            {
                "label": pl.Series(self.labels, dtype=pl.UInt32),
                "t": pl.Series(self.t, dtype=pl.Int64) - base,
                "dur": pl.Series(self.dur, dtype=pl.Int64),
                "correlation": pl.Series(self.correlation, dtype=pl.Int64),
                "external": pl.Series([None] * len(self.t), dtype=pl.Int64),
                "args": pl.Series(self.args, dtype=pl.String).cast(pl.Categorical()),
                "stated_path": pl.Series(self.path, dtype=pl.String).cast(pl.Categorical()),
            }
        )
        return Complete(rows, labels)


@dataclass(frozen=True)
class _Plane:
    """What the events of a plane refer to."""

    name: str
    id: int
    titles: Mapping[int, str]  # of events, by their number
    shared: Mapping[int, list[Value]]  # statistics of all events of a number
    statistics: Mapping[int, str]  # names, by their number


def take_plane(raw: Value, number_of_plane: int, events: Events, log: Log) -> None:
    """Add the events of a plane; raise WireError where it is none."""
    parts = inner(raw)
    name = next((text(v) for n, v in parts if n == 2), "")
    events.planes.append(name)
    if name in _SILENT:
        return
    titles, shared = _titles(parts)
    statistics = {key: text(dict(inner(v)).get(2, b"")) for key, v in _entries(parts, 5)}
    plane = _Plane(name, number_of_plane, titles, shared, statistics)
    events.names.append(_named("process_name", plane.id, None, name))
    for n, line in parts:
        if n == 3:
            _take_line(line, plane, events, log)


def _titles(parts: list[tuple[int, Value]]) -> tuple[dict[int, str], dict[int, list[Value]]]:
    """Return the name of each number that an event may have, and the statistics that come with it."""
    titles: dict[int, str] = {}
    shared: dict[int, list[Value]] = {}
    for key, value in _entries(parts, 4):
        stated = inner(value)
        one = dict(stated)
        titles[key] = text(one.get(2, b"")) or text(one.get(4, b"")) or UNNAMED
        shared[key] = [v for n, v in stated if n == 5]
    return titles, shared


def _entries(parts: list[tuple[int, Value]], which: int) -> Iterator[tuple[int, Value]]:
    """Yield the keys and values of a map."""
    for n, entry in parts:
        if n == which:
            pair = dict(inner(entry))
            if 2 in pair:
                yield number(pair.get(1, 0)), pair[2]


def _take_line(raw: Value, plane: _Plane, events: Events, log: Log) -> None:
    stated = inner(raw)
    one = dict(stated)
    name = text(one.get(11, b"")) or text(one.get(2, b"")) or f"line {signed(number(one.get(1, 0)))}"
    start = signed(number(one.get(3, 0)))
    line = name if plane.name.startswith(_DEVICE) else str(signed(number(one.get(1, 0))))
    events.names.append(_named("thread_name", plane.id, line, name))
    place = f"{plane.id}{PLACE}{line}"
    for n, raw_event in stated:
        if n == 4:
            _take_event(raw_event, start, name, place, plane, events, log)


def _take_event(
    raw: Value, start: int, line: str, place: str, plane: _Plane, events: Events, log: Log
) -> None:
    try:
        stated = inner(raw)
        one = dict(stated)
        told = _statistics([v for n, v in stated if n == 4], plane, number(one.get(1, 0)))
    except WireError:
        log.read += 1
        log.drop("bad_event", "events that cannot be read")
        return
    t = start + signed(number(one.get(2, 0))) // 1000
    dur = (signed(number(one.get(3, 0))) + 500) // 1000
    if 5 in one or abs(t) > _FURTHEST:
        log.read += 1
        log.drop("no_time", "events that are sums of others, or whose time is none")
        return
    name = plane.titles.get(number(one.get(1, 0)), UNNAMED)
    cat, name = _kind(plane, line, name, told)
    events.has_steps |= cat == _ANNOTATION
    events.labels.append(events.known.setdefault((cat, name, place), len(events.known)))
    events.t.append(t)
    events.dur.append(dur)
    correlation = told.get(_CORRELATION)
    events.correlation.append(
        correlation if isinstance(correlation, int) and 0 < correlation < 1 << 62 else None
    )
    events.args.append(_resources(told.get(_DETAILS)))
    events.path.append(_scope(told) if cat == "kernel" else None)


def _kind(plane: _Plane, line: str, name: str, told: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the category of an event in words of PyTorch's profiler, and the name it goes by."""
    if plane.name.startswith(_DEVICE):
        if line == _STEPS:
            return _STEPS, f"step {name}" if name.isdecimal() else name
        if not _WORK.match(line):
            return _COVER, name
        match = _COPY.match(name)
        return ("kernel" if match is None else f"gpu_mem{match[1].lower()}"), name
    if isinstance(step := told.get(_STEP), int):
        return _ANNOTATION, f"{name} step {step}" if _WORD.fullmatch(name) else f"step {step}"
    return ("cuda_runtime" if plane.name == _CALLS or _CORRELATION in told else None), name


def _statistics(values: list[Value], plane: _Plane, id: int) -> dict[str, Any]:
    """Return the statistics of an event that are read here, those of its number included."""
    told: dict[str, Any] = {}
    for value in (*plane.shared.get(id, ()), *values):
        stated = inner(value)
        name = plane.statistics.get(next((number(v) for n, v in stated if n == 1), 0), "")
        if name in _READ:
            told[name] = next((_statistic(n, v, plane) for n, v in stated if n != 1), None)
    return told


def _statistic(n: int, value: Value, plane: _Plane) -> Any:
    if n == 7:
        return plane.statistics.get(number(value), "")
    if n == 2:
        return double(number(value))
    if n in (3, 4):
        return signed(number(value)) if n == 4 else number(value)
    return text(value)


def _scope(told: Mapping[str, Any]) -> str | None:
    """Return the name scope that a kernel's operation stands in."""
    stated = next((told[key] for key in _SCOPES if isinstance(told.get(key), str) and "/" in told[key]), None)
    if stated is None:
        return None
    parts = [part for part in stated.partition(":")[0].split("/") if part]
    return PATH_SEPARATOR.join(parts[:-1]) or None


def _resources(details: Any) -> str | None:
    """Return how a kernel was launched, as PyTorch's profiler states it."""
    if not isinstance(details, str):
        return None
    stated = dict(_DETAIL.findall(details))
    figures = _figures(stated)
    args: dict[str, Any] = {key: sizes for key in ("grid", "block") if (sizes := _sizes(stated.get(key, "")))}
    shared = [figures[key] for key in ("static_shared", "dynamic_shared") if key in figures]
    if shared:
        args["shared memory"] = sum(shared)
    args |= {ours: figures[key] for key, ours in _FIGURES.items() if key in figures}
    return msgspec.json.encode(args).decode() if args else None


def _figures(stated: Mapping[str, str]) -> dict[str, int]:
    return {key: int(value) for key, value in stated.items() if value.isdecimal() and len(value) < 11}


def _sizes(stated: str) -> list[int]:
    """Return the three sizes in `32,1,1`; nothing where there are none."""
    sizes = stated.split(",")
    fine = len(sizes) == 3 and all(s.isdecimal() and len(s) < 11 for s in sizes)
    return [int(s) for s in sizes] if fine else []


def _named(kind: str, plane: int, line: str | None, name: str) -> Event:
    """Return the event by which a Chrome trace names a process or a thread."""
    tid = msgspec.Raw(msgspec.json.encode(line)) if line is not None else msgspec.Raw(b"")
    args = msgspec.Raw(msgspec.json.encode({"name": name}))
    return Event(ph="M", name=kind, pid=msgspec.Raw(str(plane).encode()), tid=tid, args=args)
