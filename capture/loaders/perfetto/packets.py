"""Packets of a Perfetto trace: what the sequences share, and each track event with its time and its names."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from capture.importlog import Log
from capture.loaders._protobuf import (
    Field,
    Value,
    WireError,
    double,
    fields,
    inner,
    number,
    records,
    signed,
    text,
)
from capture.loaders.perfetto.annotations import Known, annotations
from capture.loaders.perfetto.clocks import Clocks
from capture.loaders.perfetto.tracks import Tracks

BEGIN: Final = 1
END: Final = 2
INSTANT: Final = 3
COUNTER: Final = 4

PACKET: Final = 1  # its number in the trace
# of a packet
_EVENT: Final = 11
_TRACK: Final = 60
_SNAPSHOT: Final = 6
_STAMP: Final = 8
_SEQUENCE: Final = 10
_INTERNED: Final = 12
_FLAGS: Final = 13
_CLEARED: Final = 41
_DROPPED: Final = 42
_COMPRESSED: Final = 50
_ZSTD: Final = 133
_CLOCK: Final = 58
_DEFAULTS: Final = 59

_CLEARS: Final = 1  # a bit of the flags
_NEEDS: Final = 2
_FLOWS: Final = (47, 36, 48, 42)  # of an event: numbers of flows that begin, pass or end here
_LARGEST_PACKED: Final = 1 << 26  # bytes that compressed packets may unpack to; writers keep below 2^19


class Mark(NamedTuple):
    """One track event."""

    type: int
    t: int | None
    name: str
    category: str | None
    noted: dict[str, Any]
    value: float | None
    flow: int | None  # what leads from a launch to the work that it started
    sequence: int


@dataclass
class Sequence:
    """What the packets of one writer share until it clears it."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    track: int = 0
    clock: int = 0
    broken: bool = False
    notes: Known = field(default_factory=dict)  # annotations that came already, by their bytes
    ends: dict[Value, tuple[int, Mark]] = field(default_factory=dict)  # likewise events that end a slice

    def intern(self, value: Value) -> None:
        """Remember strings that later events refer to by a number."""
        self.notes.clear()
        self.ends.clear()
        tables = {1: self.categories, 2: self.names, 3: self.keys, 29: self.strings}
        for n, entry in inner(value):
            if n in tables:
                parts = dict(inner(entry))
                tables[n][number(parts.get(1, 0))] = text(parts.get(2, b""))

    def default(self, value: Value) -> None:
        """Remember what holds for events that do not state it."""
        self.ends.clear()
        defaults = dict(inner(value))
        self.clock = number(defaults.get(_CLOCK, 0))
        if _EVENT in defaults:
            self.track = number(dict(inner(defaults[_EVENT])).get(11, 0))


@dataclass
class Packets:
    """All that the packets of a trace say."""

    log: Log
    clocks: Clocks = field(default_factory=Clocks)
    tracks: Tracks = field(default_factory=Tracks)
    sequences: dict[int, Sequence] = field(default_factory=dict)
    marks: dict[int, list[Mark]] = field(default_factory=dict)  # by the number of their track
    cut: bool = False
    nameless: int = 0  # events whose name refers to nothing

    def read(self, whole: bytes) -> None:
        """Take all packets; what cannot be read is counted, and the rest is kept."""
        at = 0
        try:
            for at, raw in records(whole, PACKET):
                for packet in self._unpacked(raw, at):
                    self._take(packet, at)
        except WireError:
            self.cut = True
            message = "the file ends within a packet, or is damaged from there on"
            self.log.note("cut_short", message, at=at, severity="data_loss")

    def _unpacked(self, raw: bytes, at: int) -> Iterator[dict[int, Value]]:
        """Yield the packet, or those that it holds compressed."""
        packet = self._fields(raw, at)
        if _COMPRESSED not in packet:
            yield packet
            return
        inflate = zlib.decompressobj()
        packed = packet[_COMPRESSED]
        try:
            inside = inflate.decompress(packed if isinstance(packed, bytes) else b"", _LARGEST_PACKED)
            for _, each in records(inside, PACKET):
                yield self._fields(each, at)
        except (zlib.error, WireError):
            self._lose(at)

    def _fields(self, raw: bytes, at: int) -> dict[int, Value]:
        try:
            return dict(fields(raw))
        except WireError:
            self._lose(at)
            return {}

    def _lose(self, at: int) -> None:
        self.log.read += 1
        self.log.drop("bad_packet", "packets that cannot be read", at=at)

    def _take(self, packet: dict[int, Value], at: int) -> None:
        id = number(packet.get(_SEQUENCE, 0))
        try:
            sequence = self._sequence(packet, id)
            if _SNAPSHOT in packet:
                self.clocks.take_snapshot(packet[_SNAPSHOT], id)
            if _TRACK in packet:
                self.tracks.add(packet[_TRACK])
            if _ZSTD in packet:
                self.log.read += 1
                self.log.drop("zstd_packets", "packets that are compressed with zstd, which are not read")
            t = self._time(packet, id, sequence)
            if _EVENT in packet:
                self._event(packet, t, id, sequence)
        except WireError:
            self._lose(at)

    def _sequence(self, packet: dict[int, Value], id: int) -> Sequence:
        """Return what the packet's sequence shares, with what the packet adds to it."""
        cleared = number(packet.get(_FLAGS, 0)) & _CLEARS or packet.get(_CLEARED)
        sequence = self.sequences.get(id)
        if sequence is None or cleared:
            sequence = self.sequences[id] = Sequence()
        if packet.get(_DROPPED) and not cleared:
            sequence.broken = True
        if _DEFAULTS in packet:
            sequence.default(packet[_DEFAULTS])
        if _INTERNED in packet:
            sequence.intern(packet[_INTERNED])
        return sequence

    def _time(self, packet: dict[int, Value], id: int, sequence: Sequence) -> int | None:
        """Return the time of any packet: where a clock counts on, the next one's depends on it."""
        if _STAMP not in packet:
            return None
        clock = number(packet.get(_CLOCK, 0)) or sequence.clock or self.clocks.primary
        return self.clocks.on_own_clock(number(packet[_STAMP]), clock, id)

    def _event(self, packet: dict[int, Value], t: int | None, id: int, sequence: Sequence) -> None:
        if sequence.broken and number(packet.get(_FLAGS, 0)) & _NEEDS:
            self.log.read += 1
            message = "events after a loss in the recording, whose names and tracks were lost with it"
            self.log.drop("lost_state", message)
            return
        raw = packet[_EVENT]
        if raw in sequence.ends:
            track, mark = sequence.ends[raw]
            mark = mark._replace(t=t)
        else:
            track, mark = self._mark(inner(raw), t, id, sequence)
            if mark.type == END and not mark.name:
                sequence.ends[raw] = track, mark
        self.marks.setdefault(track, []).append(mark)

    def _mark(self, event: list[Field], t: int | None, id: int, sequence: Sequence) -> tuple[int, Mark]:
        """Return a track event, and the number of the track that it belongs to."""
        one = dict(event)
        noted = [v for n, v in event if n == 4]
        track = number(one[11]) if 11 in one else sequence.track
        mark = Mark(
            number(one.get(9, 0)),
            t,
            self._name(one, sequence),
            _category(event, sequence),
            annotations(noted, sequence.keys, sequence.strings, sequence.notes) if noted else {},
            _counted(one),
            next((number(v) for n, v in event if n in _FLOWS), None),
            id,
        )
        return track, mark

    def _name(self, event: dict[int, Value], sequence: Sequence) -> str:
        if 23 in event:
            return text(event[23])
        if 10 not in event:
            return ""
        name = sequence.names.get(number(event[10]))
        if name is None:
            self.nameless += 1
            return f"event {number(event[10])}"
        return name


def _category(event: list[Field], sequence: Sequence) -> str | None:
    """Return the first category of an event that is in the file; some writers refer to none."""
    stated = [sequence.categories.get(number(v)) for n, v in event if n == 3]
    stated += [text(v) for n, v in event if n == 22]
    return next((c for c in stated if c), None)


def _counted(event: dict[int, Value]) -> float | None:
    """Return the value of a counter's event."""
    if 44 in event:
        return double(number(event[44]))
    return float(signed(number(event[30]))) if 30 in event else None
