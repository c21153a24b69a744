"""Resolve Perfetto tracks to the process, thread or stream that each belongs to."""

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from capture.loaders._protobuf import Value, index_fields, to_number, to_signed, to_text

_MAX_ANCESTORS: Final = 32  # also ends a circle of parents

# device tracks of rocprofv3 and Proton: device, and stream or queue
_AGENT: Final = re.compile(r"(?:COMPUTE|COPY to) \w+ \[(\d+)\] (STREAM|QUEUE|THREAD) \[(\d+)\]")
_STREAM: Final = re.compile(r"GPU Stream (\d+)$")
_HOST_AGENT: Final = "(CPU)"


class TrackLocation(NamedTuple):
    """Process and thread of a track's events."""

    process: int | str
    thread: int | str
    process_name: str = ""
    thread_name: str = ""
    device_track: str = ""  # our name of a device track, if its own name can be parsed


@dataclass
class TrackDescriptor:
    """The descriptor of one track."""

    name: str = ""
    parent: int = 0
    process: tuple[int, str] | None = None  # pid, name
    thread: tuple[int, int, str] | None = None  # pid, tid, name
    is_incremental: bool = False  # its counter reports differences
    scale: float = 1.0


@dataclass
class TrackTable:
    """All tracks by number."""

    tracks: dict[int, TrackDescriptor] = field(default_factory=dict)

    def add(self, descriptor: Value) -> None:
        """Store a track; a later descriptor with the same number replaces the earlier one."""
        values = index_fields(descriptor)
        name = to_text(values.get(2, b"")) or to_text(values.get(10, b""))
        track = TrackDescriptor(name, parent=to_number(values.get(5, 0)))
        if 3 in values:
            process = index_fields(values[3])
            track.process = (to_signed(to_number(process.get(1, 0))), to_text(process.get(6, b"")))
        if 4 in values:
            thread = index_fields(values[4])
            ids = (to_signed(to_number(thread.get(1, 0))), to_signed(to_number(thread.get(2, 0))))
            track.thread = (*ids, to_text(thread.get(5, b"")))
        if 8 in values:
            counter = index_fields(values[8])
            track.is_incremental = bool(counter.get(5))
            track.scale = float(to_number(counter.get(4, 0)) or 1)
        self.tracks[to_number(values.get(1, 0))] = track

    def find_name(self, uuid: int) -> str:
        """Return the name of a track."""
        track = self.tracks.get(uuid)
        return (track.name if track else "") or f"track {uuid}"

    def locate(self, uuid: int) -> TrackLocation:
        """Locate the events of a track: its thread, else its own name below its process."""
        names: list[str] = []
        process: tuple[int, str] | None = None
        for track in self._list_ancestors(uuid):
            if track.thread is not None:
                return self._locate_on_thread(track, names)
            if track.process is not None:
                process = (track.process[0], track.process[1] or track.name)
                break
            if track.name and names[-1:] != [track.name]:
                names.append(track.name)
        pid, title = process or ("", "")
        thread = "/".join(names[::-1]) or title or f"track {uuid}"
        return TrackLocation(pid, thread, title, thread, _parse_device_track(names[0] if names else ""))

    def _list_ancestors(self, uuid: int) -> list[TrackDescriptor]:
        """List the track and those above it."""
        tracks: list[TrackDescriptor] = []
        while uuid in self.tracks and len(tracks) < _MAX_ANCESTORS:
            tracks.append(self.tracks[uuid])
            uuid = tracks[-1].parent
        return tracks

    def _locate_on_thread(self, track: TrackDescriptor, names: list[str]) -> TrackLocation:
        """Locate a track of a thread; a track below it with the same name is the thread itself."""
        pid, tid, name = track.thread or (0, 0, "")
        name = name or track.name
        parents = (self.tracks[track.parent],) if track.parent in self.tracks else ()
        process = next((p.process[1] or p.name for p in parents if p.process), "")
        extra_names = [part for part in names[::-1] if part not in (name, track.name)]
        return TrackLocation(pid, "/".join([str(tid), *extra_names]) if extra_names else tid, process, name)


def _parse_device_track(name: str) -> str:
    """Parse the name of a device track into our own form; empty for other tracks."""
    if match := _AGENT.match(name):
        device = "copy" if _HOST_AGENT in name else f"gpu{match[1]}"
        return f"{device}/{match[2].lower()}{match[3]}"
    match = _STREAM.match(name)
    return f"gpu0/stream{match[1]}" if match else ""
