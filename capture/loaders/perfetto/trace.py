"""Perfetto traces (`.pftrace`, `.perfetto-trace`): rocprofv3, Proton, flashinfer, Kineto, the Perfetto SDK.

Read: track events with their names, categories and annotations, interned or not; tracks of processes, threads
and devices; clocks; state that a writer clears or loses; packets that are compressed with deflate. Not read:
what is no track event (the kernel's scheduler, memory, samples of stacks), counters attached to slices, and
packets compressed with zstd.
The format: https://perfetto.dev/docs/reference/trace-packet-proto
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Final

from capture.errors import UnreadableError
from capture.loaders._protobuf import BYTES, WireError, fields, records
from capture.loaders.chrome.any_json import trace_of
from capture.loaders.chrome.rows import to_run
from capture.loaders.perfetto.packets import PACKET, Packets
from capture.loaders.perfetto.slices import chrome_events, header
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "perfetto"
PRODUCER: Final = "the Perfetto SDK: rocprofv3, Proton, flashinfer's and mirage's profilers"
HOWTO: Final = "rocprofv3 --sys-trace --output-format pftrace -- python run.py"

# categories that one writer has and no other → the writer
_WRITERS: Final = {
    "kernel_dispatch": "rocprofv3",
    "scope": "Triton Proton",
    "rocm_kernel_dispatch": "rocprof-sys",
}
_KINETO: Final = "Kineto Trace"  # how Kineto names its process

_FIRST: Final = PACKET << 3 | BYTES
_NUMBERS: Final = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))  # fields of a packet that are numbers
_TELLING: Final = frozenset(
    (6, 8, 10, 11, 12, 13, 33, 36, 43, 44, 50, 59, 60, 89)
)  # and those of every trace
_LOOKED_AT: Final = 8  # packets


def sniff(head: Head) -> bool:
    """Return whether the first messages are packets: of the fields that packets have, each of its kind."""
    telling = False
    for known in itertools.islice(_packets(head.raw), _LOOKED_AT):
        if any(plain != (n in _NUMBERS) for n, plain in known):
            return False
        telling = telling or any(n in _TELLING for n, _ in known)
    return telling


def _packets(raw: bytes) -> Iterator[list[tuple[int, bool]]]:
    """Yield the fields of each whole message: number, and whether it holds a number."""
    if raw[:1] != bytes([_FIRST]):
        return
    with contextlib.suppress(WireError):
        for _, packet in records(raw, PACKET):
            yield [(n, isinstance(v, int)) for n, v in fields(packet)]


def load(source: Source) -> list[Run]:
    packets = Packets(source.log)
    packets.read(source.read())
    events, lanes = chrome_events(packets, source.log)
    if packets.nameless:
        message = "events whose name refers to a string that is not in the file"
        source.log.note("lost_names", message, count=packets.nameless, severity="data_loss")
    if packets.clocks.strangers:
        message = "clocks that no reading ties to the trace's own; their times are taken as they stand"
        source.log.note("untied_clocks", message, count=len(packets.clocks.strangers))
    trace = trace_of(events, header(packets), packets.cut, source.log)
    trace.lanes, trace.producer = lanes, _producer(packets)
    if not (trace.complete.rows.height or any(e.ph != "M" for e in trace.others)):
        raise UnreadableError(
            "holds no track event that could be read",
            where=source.label,
            why="it ends within its first packets" if packets.cut else "no packet of it is a track event",
        )
    return [to_run(trace, source)]


def _producer(packets: Packets) -> str:
    """Return who wrote the trace, as its categories and tracks tell."""
    said = {mark.category for marks in packets.marks.values() for mark in marks}
    if any(track.name == _KINETO for track in packets.tracks.known.values()):
        return "PyTorch profiler"
    return next((name for category, name in _WRITERS.items() if category in said), "Perfetto")
