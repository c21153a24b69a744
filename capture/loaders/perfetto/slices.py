"""Track events as Chrome trace events: begins joined with their ends, counters, instants, names of tracks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from capture.importlog import Log
from capture.loaders.chrome.tables import PLACE, UNNAMED, Event
from capture.loaders.perfetto.annotations import arguments, category
from capture.loaders.perfetto.packets import BEGIN, COUNTER, END, INSTANT, Mark, Packets
from capture.loaders.perfetto.tracks import Place

Json = Any  # what stands in the header of a trace

_HEADER: Final = ("trace_metadata", "device_properties")  # instants without a time that Kineto writes
_DEVICES: Final = "deviceProperties"
_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_COVER: Final = "gpu_user_annotation"
_SCOPE: Final = "scope"  # of Proton; one with a flow is a launch
_LAUNCH: Final = "cuda_runtime"
_LARGEST_LINK: Final = 10**18


def chrome_events(packets: Packets, log: Log) -> tuple[list[Event], dict[str, str]]:
    """Return the events, and the tracks of devices in our own words by the place of their events."""
    events: list[Event] = []
    lanes: dict[str, str] = {}
    named: dict[str, Place] = {}
    by_place: dict[str, list[Event]] = {}
    for uuid, marks in packets.marks.items():
        place = packets.tracks.place(uuid)
        mine = [*_slices(marks, place, log), *_moments(marks, place, uuid, packets, log)]
        events += mine
        key = f"{place.process}{PLACE}{place.thread}"
        named[key] = place
        by_place.setdefault(key, []).extend(mine)
        if place.lane:
            lanes[key] = place.lane
    for mine in by_place.values():
        _name_covers(mine)
    names = list(_names(named.values()))
    log.read -= len(names)  # they are made here, not read
    return [*names, *events], lanes


def header(packets: Packets) -> dict[str, Json]:
    """Return what a trace states about itself in instants without a time, and the base of its clock."""
    stated: dict[str, Json] = {}
    for mark in (m for marks in packets.marks.values() for m in marks if m.name in _HEADER and m.t is None):
        for key, value in mark.noted.items():
            stated |= _stated(_DEVICES if mark.name == _HEADER[1] else key, value)
    if packets.clocks.to_epoch is not None:
        stated["baseTimeNanoseconds"] = packets.clocks.to_epoch
    return stated


def _stated(key: str, value: Json) -> dict[str, Json]:
    """Return a member of the header: as JSON where it is, for Kineto writes all of them as text."""
    texts = (f"[{value}]", str(value)) if key == _DEVICES else (str(value),)
    for text in texts:
        try:
            read = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            continue
        return {key: read[0] if key == _DEVICES and read[:1] and isinstance(read[0], list) else read}
    return {key: value}


def _slices(marks: Sequence[Mark], place: Place, log: Log) -> Iterator[Event]:
    """Yield each begin with its end.

    In the order of the file; in that of time where several writers share the track, or that order ends a
    slice before it began.
    """
    spans = [m for m in marks if m.type in (BEGIN, END)]
    timed = [m for m in spans if m.t is not None]
    joined, alone = _joined(timed)
    if _misordered(timed, joined):
        joined, alone = _joined(sorted(timed, key=lambda m: m.t or 0))
    yield from (_slice(begin, end, place) for begin, end in joined)
    lost = alone + len(spans) - len(timed)
    log.read += lost
    log.drop("unbalanced", "ends without their begin, and begins or ends without a time", count=lost)
    unended = sum(end is None for _, end in joined)
    if unended:
        log.note("unended", "events that had not ended when the recording did: no duration", count=unended)


def _misordered(marks: Sequence[Mark], joined: Sequence[tuple[Mark, Mark | None]]) -> bool:
    """Return whether the order of the file says nothing: several writers, or an end before its begin."""
    several = len({mark.sequence for mark in marks}) > 1
    return several or any((_dur(*pair) or 0) < 0 for pair in joined)


def _joined(spans: Sequence[Mark]) -> tuple[list[tuple[Mark, Mark | None]], int]:
    """Return begins with their ends, None for those that have none, and how many ends are left over."""
    joined: list[tuple[Mark, Mark | None]] = []
    open_: list[Mark] = []
    alone = 0
    for mark in spans:
        if mark.type == BEGIN:
            open_.append(mark)
        elif open_:
            joined.append((open_.pop(), mark))
        else:
            alone += 1
    return [*joined, *((mark, None) for mark in open_)], alone


def _slice(begin: Mark, end: Mark | None, place: Place) -> Event:
    noted = begin.noted | end.noted if end else begin.noted
    return _event("X", begin, place, noted, _dur(begin, end))


def _dur(begin: Mark, end: Mark | None) -> int | None:
    return None if end is None else (end.t or 0) - (begin.t or 0)


def _moments(marks: Sequence[Mark], place: Place, uuid: int, packets: Packets, log: Log) -> Iterator[Event]:
    """Yield instants and the values of counters."""
    track = packets.tracks.known.get(uuid)
    total = 0.0
    for mark in marks:
        if mark.type == INSTANT and mark.t is not None:
            yield _event("i", mark, place, mark.noted)
        elif mark.type == COUNTER and mark.value is not None and mark.t is not None:
            total = total + mark.value if track and track.counts_on else mark.value
            scaled = total * (track.scale if track else 1)
            counter = mark._replace(name=mark.name or packets.tracks.named(uuid))
            yield _event("C", counter, place, {"value": scaled})
        elif mark.type not in (BEGIN, END, INSTANT, COUNTER):
            log.read += 1
            log.drop("other_phase", "events of an older kind that states its phase as a letter")


def _event(phase: str, mark: Mark, place: Place, noted: dict[str, Any], dur: int | None = None) -> Event:
    args = arguments(noted) if noted else {}
    cat = category(mark.category, args, mark.name)
    if mark.flow is not None and "correlation" not in args:
        if cat in _DEVICE_WORK or mark.category == _SCOPE:
            args["correlation"] = mark.flow % _LARGEST_LINK
        if mark.category == _SCOPE:
            cat = _LAUNCH
    return Event(
        ph=phase,
        cat=cat,
        name=mark.name or UNNAMED,
        pid=_raw(place.process),
        tid=_raw(place.thread),
        ts=_micro(mark.t),
        dur=_micro(dur),
        args=_raw(args) if args else msgspec.Raw(b""),
    )


def _name_covers(events: Sequence[Event]) -> None:
    """Name what stands on a stream without a category and is no work: the annotations around it."""
    if any(event.cat in _DEVICE_WORK for event in events):
        for event in events:
            if event.ph == "X" and event.cat in (None, "cpu_op"):
                event.cat = _COVER


def _names(places: Iterable[Place]) -> Iterator[Event]:
    """Yield the events by which a Chrome trace names its processes and threads."""
    for place in places:
        for key, name in (("process_name", place.process_name), ("thread_name", place.thread_name)):
            if name:
                pid, tid = _raw(place.process), _raw(place.thread)
                yield Event(ph="M", name=key, pid=pid, tid=tid, args=_raw({"name": name}))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _micro(ns: int | None) -> msgspec.Raw:
    """Return nanoseconds as decimal microseconds, exact."""
    if ns is None:
        return msgspec.Raw(b"")
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())
