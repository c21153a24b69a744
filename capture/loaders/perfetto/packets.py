"""Read Perfetto packets: what sequences share, clocks, and each track event with its time and names."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from capture.import_log import Log
from capture.loaders._protobuf import (
    Field,
    Value,
    WireError,
    decode_fields,
    decode_submessage,
    index_fields,
    iter_records,
    select_values,
    to_double,
    to_number,
    to_signed,
    to_text,
)
from capture.loaders.perfetto.debug_annotations import AnnotationCache, decode_annotations
from capture.loaders.perfetto.tracks import TrackTable

REALTIME: Final = 1
BOOTTIME: Final = 6
_SEQUENCE_CLOCKS: Final = range(64, 128)

BEGIN, END, INSTANT, COUNTER = range(1, 5)  # types of events

PACKET: Final = 1  # field number in the trace
# field numbers in a packet
_EVENT: Final = 11
_TRACK: Final = 60
_SNAPSHOT: Final = 6
_STAMP: Final = 8
_SEQUENCE: Final = 10
_INTERNED: Final = 12
_FLAGS: Final = 13
_CLEARED: Final = 41
_DROPPED: Final = 42
COMPRESSED: Final = 50
_ZSTD: Final = 133
_CLOCK: Final = 58
_DEFAULTS: Final = 59

# field numbers in interned data
_STRING_TABLES: Final = (1, 2, 3, 29)
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS = _STRING_TABLES

_FLAG_CLEARS: Final = 1  # bit of the flags
_FLAG_NEEDS: Final = 2
_FLOWS: Final = (47, 36, 48, 42)  # field numbers of flows that begin, pass or end at an event
_MAX_UNPACKED_BYTES: Final = 1 << 26  # writers stay below 2^19


@dataclass
class TraceClock:
    """One clock, of one sequence or of all."""

    reading_ns: int  # ns, at the last snapshot
    reference_ns: int  # ns of the trace's clock at that time
    unit_ns: int = 1
    is_incremental: bool = False
    last_ns: int = 0  # ns, of the last packet, if times are relative to it


@dataclass
class ClockTable:
    """All clocks; those numbered 64 to 127 belong to a sequence."""

    clocks: dict[tuple[int, int], TraceClock] = field(default_factory=dict)
    primary: int = BOOTTIME
    epoch_offset_ns: int | None = None  # Unix time minus the trace's clock
    unknown_ids: set[int] = field(default_factory=set)

    def add_snapshot(self, value: Value, sequence: int) -> None:
        """Store what each clock read at one time."""
        parts = decode_submessage(value)
        self.primary = next(map(to_number, select_values(parts, 2)), self.primary) or BOOTTIME
        readings = [index_fields(reading) for reading in select_values(parts, 1)]
        clocks = {to_number(reading.get(1, 0)): reading for reading in readings}
        reference_ns = _parse_reading(clocks.get(self.primary))
        for id, reading in clocks.items():
            now_ns, unit_ns = _parse_reading(reading) or 0, to_number(reading.get(4, 0)) or 1
            origin_ns = now_ns if reference_ns is None else reference_ns
            clock = TraceClock(now_ns, origin_ns, unit_ns, bool(reading.get(3)), last_ns=now_ns)
            self.clocks[_find_owner(id, sequence), id] = clock
        realtime_ns = _parse_reading(clocks.get(REALTIME))
        if realtime_ns and reference_ns is not None and self.epoch_offset_ns is None:
            self.epoch_offset_ns = realtime_ns - reference_ns

    def convert_time(self, stamp: int, id: int, sequence: int) -> int:
        """Convert the time of a packet to the trace's clock, in ns."""
        clock = self.clocks.get((_find_owner(id, sequence), id))
        if clock is None:
            if id != self.primary:
                self.unknown_ids.add(id)
            return stamp
        stamp *= clock.unit_ns
        if clock.is_incremental:
            clock.last_ns += stamp
            stamp = clock.last_ns
        return stamp - clock.reading_ns + clock.reference_ns


class TrackEvent(NamedTuple):
    """One track event."""

    type: int
    t: int | None
    name: str
    category: str | None
    annotations: dict[str, Any]
    value: float | None
    flow: int | None  # links a launch to the work it started
    sequence: int


@dataclass
class PacketSequence:
    """What the packets of one writer share until it clears that state."""

    id: int
    interned: dict[int, dict[int, str]] = field(default_factory=lambda: {n: {} for n in _STRING_TABLES})
    track: int = 0
    clock: int = 0
    has_lost_state: bool = False
    annotation_cache: AnnotationCache = field(default_factory=dict)  # by encoded annotation
    end_cache: dict[Value, tuple[int, TrackEvent]] = field(default_factory=dict)  # by encoded end event

    def intern(self, value: Value) -> None:
        """Store strings that later events refer to by number."""
        self.annotation_cache.clear()
        self.end_cache.clear()
        for number, entry in decode_submessage(value):
            if number in self.interned:
                parts = index_fields(entry)
                self.interned[number][to_number(parts.get(1, 0))] = to_text(parts.get(2, b""))

    def set_defaults(self, value: Value) -> None:
        """Store defaults for events that omit a field."""
        self.end_cache.clear()
        defaults = index_fields(value)
        self.clock = to_number(defaults.get(_CLOCK, 0))
        if _EVENT in defaults:
            self.track = to_number(index_fields(defaults[_EVENT]).get(11, 0))


@dataclass
class PacketReader:
    """Everything the packets of a trace contain."""

    log: Log
    clocks: ClockTable = field(default_factory=ClockTable)
    tracks: TrackTable = field(default_factory=TrackTable)
    sequences: dict[int, PacketSequence] = field(default_factory=dict)
    events_by_track: dict[int, list[TrackEvent]] = field(default_factory=dict)  # by track number
    is_cut: bool = False
    nameless_count: int = 0  # events whose name refers to a missing string

    def read(self, data: bytes) -> None:
        """Read all packets; unreadable ones are counted, the rest is kept."""
        at = 0
        try:
            for at, raw in iter_records(data, PACKET):
                for packet in self._iter_packets(raw, at):
                    self._read_packet(packet, at)
        except WireError:
            self.is_cut = True
            message = "the file ends within a packet, or is damaged from there on"
            self.log.note("cut_short", message, at=at, severity="data_loss")

    def _iter_packets(self, raw: bytes, at: int) -> Iterator[dict[int, Value]]:
        """Yield the packet, or the packets compressed inside it."""
        packet = self._decode_packet(raw, at)
        if COMPRESSED not in packet:
            yield packet
            return
        inflate = zlib.decompressobj()
        compressed = packet[COMPRESSED]
        try:
            packed = compressed if isinstance(compressed, bytes) else b""
            data = inflate.decompress(packed, _MAX_UNPACKED_BYTES)
            for _, inner_packet in iter_records(data, PACKET):
                yield self._decode_packet(inner_packet, at)
        except (zlib.error, WireError):
            self._drop_packet(at)

    def _decode_packet(self, raw: bytes, at: int) -> dict[int, Value]:
        try:
            return dict(decode_fields(raw))
        except WireError:
            self._drop_packet(at)
            return {}

    def _drop_packet(self, at: int) -> None:
        self.log.read += 1
        self.log.drop("bad_packet", "packets that cannot be read", at=at)

    def _read_packet(self, packet: dict[int, Value], at: int) -> None:
        try:
            sequence = self._update_sequence(packet)
            if _SNAPSHOT in packet:
                self.clocks.add_snapshot(packet[_SNAPSHOT], sequence.id)
            if _TRACK in packet:
                self.tracks.add(packet[_TRACK])
            if _ZSTD in packet:
                self.log.read += 1
                self.log.drop("zstd_packets", "packets compressed with zstd, not supported")
            t = self._read_time(packet, sequence)
            if _EVENT in packet:
                self._read_event(packet, t, sequence)
        except WireError:
            self._drop_packet(at)

    def _update_sequence(self, packet: dict[int, Value]) -> PacketSequence:
        """Apply the packet to its sequence's shared state, and return that state."""
        is_cleared = to_number(packet.get(_FLAGS, 0)) & _FLAG_CLEARS or packet.get(_CLEARED)
        id = to_number(packet.get(_SEQUENCE, 0))
        sequence = self.sequences.get(id)
        if sequence is None or is_cleared:
            sequence = self.sequences[id] = PacketSequence(id)
        sequence.has_lost_state |= bool(packet.get(_DROPPED)) and not is_cleared
        if _DEFAULTS in packet:
            sequence.set_defaults(packet[_DEFAULTS])
        if _INTERNED in packet:
            sequence.intern(packet[_INTERNED])
        return sequence

    def _read_time(self, packet: dict[int, Value], sequence: PacketSequence) -> int | None:
        """Convert the time of any packet: on an incremental clock the next time depends on it."""
        if _STAMP not in packet:
            return None
        clock = to_number(packet.get(_CLOCK, 0)) or sequence.clock or self.clocks.primary
        return self.clocks.convert_time(to_number(packet[_STAMP]), clock, sequence.id)

    def _read_event(self, packet: dict[int, Value], t: int | None, sequence: PacketSequence) -> None:
        if sequence.has_lost_state and to_number(packet.get(_FLAGS, 0)) & _FLAG_NEEDS:
            self.log.read += 1
            message = "events after a loss in the recording, which took their names and tracks"
            self.log.drop("lost_state", message)
            return
        raw = packet[_EVENT]
        if raw in sequence.end_cache:
            track, event = sequence.end_cache[raw]
            event = event._replace(t=t)
        else:
            track, event = self._build_event(decode_submessage(raw), t, sequence)
            if event.type == END and not event.name:
                sequence.end_cache[raw] = track, event
        self.events_by_track.setdefault(track, []).append(event)

    def _build_event(
        self, parts: list[Field], t: int | None, sequence: PacketSequence
    ) -> tuple[int, TrackEvent]:
        """Build a track event; also return the number of its track."""
        values, encoded = dict(parts), select_values(parts, 4)
        names, strings = sequence.interned[_ANNOTATION_NAMES], sequence.interned[_ANNOTATION_STRINGS]
        track = to_number(values[11]) if 11 in values else sequence.track
        event = TrackEvent(
            to_number(values.get(9, 0)),
            t,
            self._resolve_name(values, sequence),
            _find_category(parts, sequence),
            decode_annotations(encoded, names, strings, sequence.annotation_cache) if encoded else {},
            _parse_counter_value(values),
            next((to_number(value) for number, value in parts if number in _FLOWS), None),
            sequence.id,
        )
        return track, event

    def _resolve_name(self, event: dict[int, Value], sequence: PacketSequence) -> str:
        if 23 in event:
            return to_text(event[23])
        if 10 not in event:
            return ""
        name = sequence.interned[_NAMES].get(to_number(event[10]))
        if name is None:
            self.nameless_count += 1
            return f"event {to_number(event[10])}"
        return name


def _find_owner(id: int, sequence: int) -> int:
    """Return the sequence that a clock belongs to; 0 for a global clock."""
    return sequence if id in _SEQUENCE_CLOCKS else 0


def _parse_reading(fields: dict[int, Value] | None) -> int | None:
    """Parse what a clock read, in ns; None if it was not read."""
    return None if fields is None else to_number(fields.get(2, 0)) * (to_number(fields.get(4, 0)) or 1)


def _find_category(event: list[Field], sequence: PacketSequence) -> str | None:
    """Find the first category of an event that the file names; some writers refer to none."""
    candidates = [sequence.interned[_CATEGORIES].get(to_number(value)) for value in select_values(event, 3)]
    return next(filter(None, [*candidates, *map(to_text, select_values(event, 22))]), None)


def _parse_counter_value(event: dict[int, Value]) -> float | None:
    """Parse the value of a counter event; None for other events."""
    if 44 in event:
        return to_double(to_number(event[44]))
    return float(to_signed(to_number(event[30]))) if 30 in event else None
