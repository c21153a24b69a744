"""Tracks of a Perfetto trace: the process, thread or stream that each belongs to."""

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from capture.loaders._protobuf import Value, inner, number, signed, text

_DEEPEST: Final = 32  # parents above a track; a circle of parents ends there too

# how rocprofv3 and Proton name the tracks of a device: device, and stream or queue
_AGENT: Final = re.compile(r"(?:COMPUTE|COPY to) \w+ \[(\d+)\] (STREAM|QUEUE|THREAD) \[(\d+)\]")
_STREAM: Final = re.compile(r"GPU Stream (\d+)$")
_HOST_AGENT: Final = "(CPU)"


class Place(NamedTuple):
    """Where the events of a track belong."""

    process: int | str
    thread: int | str
    process_name: str = ""
    thread_name: str = ""
    lane: str = ""  # the track in our own words, where the name of a device's track tells


@dataclass
class Track:
    """What a descriptor says of one track."""

    name: str = ""
    parent: int = 0
    process: tuple[int, str] | None = None  # pid, name
    thread: tuple[int, int, str] | None = None  # pid, tid, name
    counts_on: bool = False  # its counter states differences
    scale: float = 1.0


@dataclass
class Tracks:
    """All tracks by their numbers."""

    known: dict[int, Track] = field(default_factory=dict)

    def add(self, descriptor: Value) -> None:
        """Remember a track; a later descriptor of the same number replaces the earlier one."""
        one = dict(inner(descriptor))
        track = Track(text(one.get(2, b"")) or text(one.get(10, b"")), number(one.get(5, 0)))
        if 3 in one:
            process = dict(inner(one[3]))
            track.process = (signed(number(process.get(1, 0))), text(process.get(6, b"")))
        if 4 in one:
            thread = dict(inner(one[4]))
            ids = (signed(number(thread.get(1, 0))), signed(number(thread.get(2, 0))))
            track.thread = (*ids, text(thread.get(5, b"")))
        if 8 in one:
            counter = dict(inner(one[8]))
            track.counts_on = bool(counter.get(5))
            track.scale = float(number(counter.get(4, 0)) or 1)
        self.known[number(one.get(1, 0))] = track

    def named(self, uuid: int) -> str:
        """Return the name of a track."""
        track = self.known.get(uuid)
        return (track.name if track else "") or f"track {uuid}"

    def place(self, uuid: int) -> Place:
        """Return the place of the events of a track: its thread, else its own name below its process."""
        own: list[str] = []
        process: tuple[int, str] | None = None
        for track in self._upwards(uuid):
            if track.thread is not None:
                return self._of_thread(track, own)
            if track.process is not None:
                process = (track.process[0], track.process[1] or track.name)
                break
            if track.name and own[-1:] != [track.name]:
                own.append(track.name)
        return _of_custom(process, own[::-1], uuid)

    def _upwards(self, uuid: int) -> list[Track]:
        """Return the track and those above it."""
        found: list[Track] = []
        while uuid in self.known and len(found) < _DEEPEST:
            found.append(self.known[uuid])
            uuid = found[-1].parent
        return found

    def _of_thread(self, track: Track, own: list[str]) -> Place:
        """Return the place of a thread; a track below it that has its name is of the thread itself."""
        pid, tid, name = track.thread or (0, 0, "")
        name = name or track.name
        parents = (self.known[track.parent],) if track.parent in self.known else ()
        process = next((p.process[1] or p.name for p in parents if p.process), "")
        below = [part for part in own[::-1] if part not in (name, track.name)]
        return Place(pid, "/".join([str(tid), *below]) if below else tid, process, name)


def _of_custom(process: tuple[int, str] | None, own: list[str], uuid: int) -> Place:
    """Return the place of a track that is no thread's."""
    pid, title = process or ("", "")
    thread = "/".join(own) or (title or f"track {uuid}")
    lane = _lane(own[-1] if own else "")
    return Place(pid, thread, title, thread, lane)


def _lane(name: str) -> str:
    """Return the track of a device by its name, empty where the name is of none."""
    if match := _AGENT.match(name):
        device = "copy" if _HOST_AGENT in name else f"gpu{match[1]}"
        return f"{device}/{match[2].lower()}{match[3]}"
    match = _STREAM.match(name)
    return f"gpu0/stream{match[1]}" if match else ""
