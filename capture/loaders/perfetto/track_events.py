"""Convert Perfetto track events to Chrome trace events: slices, counters, instants, names of tracks."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from capture.import_log import Log
from capture.loaders.chrome.trace_model import (
    THREAD_SEPARATOR,
    UNNAMED,
    TraceEvent,
    build_name_event,
    encode_raw,
    encode_us,
)
from capture.loaders.perfetto.debug_annotations import map_arguments, map_category
from capture.loaders.perfetto.packets import BEGIN, COUNTER, END, INSTANT, PacketReader, TrackEvent
from capture.loaders.perfetto.tracks import TrackLocation

Json = Any  # a member of a trace header
Slice = tuple[TrackEvent, TrackEvent | None]  # begin, and end if there is one

_HEADER_INSTANTS: Final = ("trace_metadata", "device_properties")  # written by Kineto without a time
_DEVICES: Final = "deviceProperties"
_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_COVER: Final = "gpu_user_annotation"
_SCOPE: Final = "scope"  # of Proton; with a flow it is a launch
_LAUNCH: Final = "cuda_runtime"
_FLOW_ID_RANGE: Final = 10**18


def convert_track_events(packets: PacketReader, log: Log) -> tuple[list[TraceEvent], dict[str, str]]:
    """Convert all events; also map the places of device events to our names of their tracks."""
    events: list[TraceEvent] = []
    lanes: dict[str, str] = {}
    places: dict[str, TrackLocation] = {}
    by_place: dict[str, list[TraceEvent]] = {}
    for track_id, track_events in packets.events_by_track.items():
        place = packets.tracks.locate(track_id)
        slices = _iter_slices(track_events, place, log)
        converted = [*slices, *_iter_moments(track_events, place, track_id, packets, log)]
        events += converted
        key = f"{place.process}{THREAD_SEPARATOR}{place.thread}"
        places[key] = place
        by_place.setdefault(key, []).extend(converted)
        if place.device_track:
            lanes[key] = place.device_track
    for converted in by_place.values():
        _name_covers(converted)
    names = list(_iter_names(places.values()))
    log.read -= len(names)  # they are generated, not read
    return [*names, *events], lanes


def build_header(packets: PacketReader) -> dict[str, Json]:
    """Build a trace header from instants without a time, and the base of the clock."""
    header: dict[str, Json] = {}
    for event in itertools.chain.from_iterable(packets.events_by_track.values()):
        if event.name in _HEADER_INSTANTS and event.t is None:
            for key, value in event.annotations.items():
                header |= _parse_header_member(_DEVICES if event.name == _HEADER_INSTANTS[1] else key, value)
    if packets.clocks.epoch_offset_ns is not None:
        header["baseTimeNanoseconds"] = packets.clocks.epoch_offset_ns
    return header


def _parse_header_member(key: str, value: Json) -> dict[str, Json]:
    """Parse a member of the header as JSON if possible: Kineto writes all of them as text."""
    texts = (f"[{value}]", str(value)) if key == _DEVICES else (str(value),)
    for text in texts:
        try:
            member = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            continue
        is_wrapped = key == _DEVICES and member[:1] and isinstance(member[0], list)
        return {key: member[0] if is_wrapped else member}
    return {key: value}


def _iter_slices(events: Sequence[TrackEvent], place: TrackLocation, log: Log) -> Iterator[TraceEvent]:
    """Yield each begin with its end.

    They are paired in file order; in time order if that is another and several writers share the track,
    slices are nested, or file order ends a slice before it began.
    """
    spans = [event for event in events if event.type in (BEGIN, END)]
    timed_events = [event for event in spans if event.t is not None]
    slices, unmatched = _pair_begins_and_ends(timed_events)
    if _is_misordered(timed_events, slices):
        slices, unmatched = _pair_begins_and_ends(sorted(timed_events, key=lambda event: event.t or 0))
    for begin, end in slices:
        annotations = begin.annotations | end.annotations if end else begin.annotations
        yield _build_event("X", begin, place, annotations, _compute_dur(begin, end))
    lost_count = unmatched + len(spans) - len(timed_events)
    log.read += lost_count
    log.drop("unbalanced", "ends without a begin, and begins or ends without a time", count=lost_count)
    if unended_count := sum(end is None for _, end in slices):
        message = "events without a duration: they had not ended when the recording did"
        log.note("unended", message, count=unended_count)


def _is_misordered(events: Sequence[TrackEvent], slices: Sequence[Slice]) -> bool:
    """Return True if file order is unreliable: several writers, nested slices, or an end before its begin."""
    if all((before.t or 0) <= (event.t or 0) for before, event in itertools.pairwise(events)):
        return False
    has_several_writers = len({event.sequence for event in events}) > 1
    is_nested = any(before.type == event.type == BEGIN for before, event in itertools.pairwise(events))
    return has_several_writers or is_nested or any((_compute_dur(*pair) or 0) < 0 for pair in slices)


def _pair_begins_and_ends(spans: Sequence[TrackEvent]) -> tuple[list[Slice], int]:
    """Pair begins with ends, None for a missing end; also count the unmatched ends."""
    slices: list[Slice] = []
    open_events: list[TrackEvent] = []
    unmatched = 0
    for event in spans:
        if event.type == BEGIN:
            open_events.append(event)
        elif open_events:
            slices.append((open_events.pop(), event))
        else:
            unmatched += 1
    return [*slices, *((event, None) for event in open_events)], unmatched


def _compute_dur(begin: TrackEvent, end: TrackEvent | None) -> int | None:
    return None if end is None else (end.t or 0) - (begin.t or 0)


def _iter_moments(
    events: Sequence[TrackEvent], place: TrackLocation, track_id: int, packets: PacketReader, log: Log
) -> Iterator[TraceEvent]:
    """Yield instants and the values of counters."""
    track = packets.tracks.tracks.get(track_id)
    total = 0.0
    for event in events:
        if event.type == INSTANT and event.t is not None:
            yield _build_event("i", event, place, event.annotations)
        elif event.type == COUNTER and event.value is not None and event.t is not None:
            total = total + event.value if track and track.is_incremental else event.value
            scaled = total * (track.scale if track else 1)
            counter = event._replace(name=event.name or packets.tracks.find_name(track_id))
            yield _build_event("C", counter, place, {"value": scaled})
        elif event.type not in (BEGIN, END):
            _log_lost_moment(event, log)


def _log_lost_moment(event: TrackEvent, log: Log) -> None:
    """Count an event that is no slice and cannot be shown; Kineto's header has no time."""
    if event.type not in (INSTANT, COUNTER):
        log.read += 1
        log.drop("other_phase", "events of an older kind that gives its phase as a letter")
    elif event.name not in _HEADER_INSTANTS:
        log.read += 1
        log.drop("no_time", "instants and counters without a time, and counters without a number")


def _build_event(
    phase: str, event: TrackEvent, place: TrackLocation, annotations: dict[str, Any], dur: int | None = None
) -> TraceEvent:
    args = map_arguments(annotations) if annotations else {}
    category = map_category(event.category, args, event.name)
    if event.flow is not None and "correlation" not in args:
        if category in _DEVICE_WORK or event.category == _SCOPE:
            args["correlation"] = event.flow % _FLOW_ID_RANGE
        if event.category == _SCOPE:
            category = _LAUNCH
    return TraceEvent(
        ph=phase,
        cat=category,
        name=event.name or UNNAMED,
        pid=encode_raw(place.process),
        tid=encode_raw(place.thread),
        ts=encode_us(event.t),
        dur=encode_us(dur),
        args=encode_raw(args) if args else msgspec.Raw(b""),
    )


def _name_covers(events: Sequence[TraceEvent]) -> None:
    """Mark events without a category on a stream of device work: they are annotations around it."""
    if any(event.cat in _DEVICE_WORK for event in events):
        for event in events:
            if event.ph == "X" and event.cat in (None, "cpu_op"):
                event.cat = _COVER


def _iter_names(places: Iterable[TrackLocation]) -> Iterator[TraceEvent]:
    """Yield the events by which a Chrome trace names its processes and threads."""
    for place in places:
        for key, name in (("process_name", place.process_name), ("thread_name", place.thread_name)):
            if name:
                yield build_name_event(key, place.process, place.thread, name)
