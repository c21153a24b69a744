"""Clocks of a Perfetto trace: their readings at one moment, and times brought to the trace's own clock."""

from dataclasses import dataclass, field
from typing import Final

from capture.loaders._protobuf import Value, inner, number

REALTIME: Final = 1
BOOTTIME: Final = 6

_OF_SEQUENCE: Final = range(64, 128)


@dataclass
class Clock:
    """One clock of one sequence, or of all."""

    reading: int  # ns, at the moment of the last snapshot
    own: int  # ns of the trace's clock at that moment
    unit: int = 1
    incremental: bool = False
    last: int = 0  # ns, of the last packet, where times are stated as what passed since


@dataclass
class Clocks:
    """All clocks; those from 64 to 127 belong to a sequence."""

    known: dict[tuple[int, int], Clock] = field(default_factory=dict)
    primary: int = BOOTTIME
    to_epoch: int | None = None  # what to add to the trace's clock for Unix time
    strangers: set[int] = field(default_factory=set)

    def take_snapshot(self, value: Value, sequence: int) -> None:
        """Remember what each clock read at one moment."""
        parts = inner(value)
        self.primary = next((number(v) for n, v in parts if n == 2), self.primary) or BOOTTIME
        readings = [dict(inner(v)) for n, v in parts if n == 1]
        clocks = {number(r.get(1, 0)): r for r in readings}
        own = _reading(clocks.get(self.primary))
        for id, stated in clocks.items():
            self.known[_owner(id, sequence), id] = _clock(stated, own)
        real = _reading(clocks.get(REALTIME))
        if real and own is not None and self.to_epoch is None:
            self.to_epoch = real - own

    def on_own_clock(self, stamp: int, id: int, sequence: int) -> int:
        """Return the time of a packet on the trace's clock, in ns."""
        clock = self.known.get((_owner(id, sequence), id))
        if clock is None:
            if id != self.primary:
                self.strangers.add(id)
            return stamp
        stamp *= clock.unit
        if clock.incremental:
            clock.last += stamp
            stamp = clock.last
        return stamp - clock.reading + clock.own


def _clock(stated: dict[int, Value], own: int | None) -> Clock:
    """Return a clock as a snapshot states it; without a reading of the trace's own it is taken for that."""
    read = _reading(stated) or 0
    unit = number(stated.get(4, 0)) or 1
    return Clock(read, read if own is None else own, unit, bool(stated.get(3)), read)


def _owner(id: int, sequence: int) -> int:
    """Return the sequence that a clock belongs to, 0 for a clock of all."""
    return sequence if id in _OF_SEQUENCE else 0


def _reading(stated: dict[int, Value] | None) -> int | None:
    """Return what a clock read, in ns; None for a clock that was not read."""
    return None if stated is None else number(stated.get(2, 0)) * (number(stated.get(4, 0)) or 1)
