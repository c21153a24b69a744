"""Perfetto traces (`.pftrace`, `.perfetto-trace`): rocprofv3, Proton, flashinfer, Kineto, the Perfetto SDK.

Read: track events with names, categories and annotations, interned or not; tracks of processes, threads and
devices; clocks; interned state that a writer clears or loses; packets compressed with deflate. Not read: all
that is not a track event (kernel scheduler, memory, stack samples), counters attached to slices, packets
compressed with zstd.
The format: https://perfetto.dev/docs/reference/trace-packet-proto
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Final

from capture.errors import UnreadableError
from capture.loaders._protobuf import BYTES, WireError, decode_fields, decode_varint, iter_records
from capture.loaders.chrome.lenient_reader import build_trace
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.loaders.perfetto.packets import COMPRESSED, PACKET, PacketReader
from capture.loaders.perfetto.track_events import build_header, convert_track_events
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "perfetto"
PRODUCER: Final = "the Perfetto SDK: rocprofv3, Proton, flashinfer's and mirage's profilers"
HOWTO: Final = "rocprofv3 --sys-trace --output-format pftrace -- python run.py"

# category that only one writer uses → the writer
_WRITER_BY_CATEGORY: Final = {
    "kernel_dispatch": "rocprofv3",
    "scope": "Triton Proton",
    "rocm_kernel_dispatch": "rocprof-sys",
}
_KINETO_PROCESS: Final = "Kineto Trace"  # Kineto's name of its process

_FIRST_TAG: Final = PACKET << 3 | BYTES
# fields of a packet: those that are numbers, and those of which every trace has at least one, beyond the
# first six, which XLA's planes have, too
_NUMERIC_FIELDS: Final = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))
_COMMON_FIELDS: Final = frozenset((8, 10, 11, 12, 13, 33, 36, 43, 44, 50, 59, 60, 89))
_SNIFFED_PACKETS: Final = 8


def sniff(head: Head) -> bool:
    """Accept an input whose first messages are packets: known fields of the right wire type."""
    is_certain = _has_compressed_start(head.raw)
    for field_kinds in itertools.islice(_iter_field_kinds(head.raw), _SNIFFED_PACKETS):
        if any(is_number != (number in _NUMERIC_FIELDS) for number, is_number in field_kinds):
            return False
        is_certain = is_certain or any(number in _COMMON_FIELDS for number, _ in field_kinds)
    return is_certain


def _has_compressed_start(raw: bytes) -> bool:
    """Return True if the first packet contains compressed packets; it need not end within the head."""
    with contextlib.suppress(WireError):
        if raw[:1] == bytes([_FIRST_TAG]):
            tag, _ = decode_varint(raw, decode_varint(raw, 1)[1])
            return tag == COMPRESSED << 3 | BYTES
    return False


def _iter_field_kinds(raw: bytes) -> Iterator[list[tuple[int, bool]]]:
    """Yield for each complete packet its fields: their numbers, and whether their values are numbers."""
    if raw[:1] != bytes([_FIRST_TAG]):
        return
    with contextlib.suppress(WireError):
        for _, packet in iter_records(raw, PACKET):
            yield [(number, isinstance(value, int)) for number, value in decode_fields(packet)]


def load(source: Source) -> list[Run]:
    packets = PacketReader(source.log)
    packets.read(source.read())
    events, lanes = convert_track_events(packets, source.log)
    if packets.nameless_count:
        message = "events whose name is missing from the file"
        source.log.note("lost_names", message, count=packets.nameless_count, severity="data_loss")
    if packets.clocks.unknown_ids:
        message = "clocks without a reading against the trace's clock; their times are used unchanged"
        source.log.note("untied_clocks", message, count=len(packets.clocks.unknown_ids))
    trace = build_trace(events, build_header(packets), packets.is_cut, source.log)
    trace.tracks, trace.producer = lanes, _infer_producer(packets)
    if not (trace.complete.rows.height or any(e.ph != "M" for e in trace.others)):
        cut, foreign = "it ends within its first packets", "none of its packets is a track event"
        why = cut if packets.is_cut else foreign
        raise UnreadableError("contains no readable track event", where=source.label, why=why)
    return [convert_to_run(trace, source)]


def _infer_producer(packets: PacketReader) -> str:
    categories = {event.category for events in packets.events_by_track.values() for event in events}
    if any(track.name == _KINETO_PROCESS for track in packets.tracks.tracks.values()):
        return "PyTorch profiler"
    writers = (writer for category, writer in _WRITER_BY_CATEGORY.items() if category in categories)
    return next(writers, "Perfetto")
