"""Read the slices of a Perfetto trace with Perfetto's own protos: python read_pftrace.py TRACE.

Print name → [slices, ns] of the slices that have both ends, and how many lack one.
"""

import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

packets = Trace.FromString(Path(sys.argv[1]).read_bytes()).packet
names, defaults, clocks, times = defaultdict(dict), defaultdict(TracePacket), {}, {}
counts, totals, halves = Counter(), Counter(), 0
events = []
for packet in packets:
    sequence = packet.trusted_packet_sequence_id
    if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        names[sequence], times[sequence], defaults[sequence] = {}, 0, TracePacket()
    if packet.HasField("trace_packet_defaults"):
        defaults[sequence] = packet.trace_packet_defaults
    for name in packet.interned_data.event_names:
        names[sequence][name.iid] = name.name
    for snapshot in [packet.clock_snapshot] if packet.HasField("clock_snapshot") else []:
        for clock in snapshot.clocks:
            if clock.is_incremental:  # since the packet before, at the time of the other clock of the machine
                clocks[sequence] = (clock.clock_id, clock.unit_multiplier_ns or 1)
                times[sequence] = snapshot.clocks[0].timestamp
    clock_id = packet.timestamp_clock_id or defaults[sequence].timestamp_clock_id
    time = packet.timestamp
    if packet.HasField("timestamp") and sequence in clocks and clock_id == clocks[sequence][0]:
        times[sequence] += packet.timestamp * clocks[sequence][1]
        time = times[sequence]
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    track = event.track_uuid or defaults[sequence].track_event_defaults.track_uuid
    name = event.name or names[sequence].get(event.name_iid, "")
    events.append((time, track, event.type, name))
by_track = defaultdict(list)
for time, track, kind, name in events:
    if kind in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
        by_track[track].append((time, kind == TrackEvent.TYPE_SLICE_BEGIN, name))
for slices in by_track.values():
    if any(before[1] == after[1] for before, after in pairwise(slices)):
        slices.sort(key=lambda event: event[0])  # else each end was written behind its begin
    begun = []
    for time, is_begin, name in slices:
        if is_begin:
            begun.append((time, name))
        elif begun:
            start, of_begin = begun.pop()
            counts[of_begin] += 1
            totals[of_begin] += time - start
        else:
            halves += 1
    halves += len(begun)
print(json.dumps({"slices": {name: [counts[name], totals[name]] for name in counts}, "halves": halves}))
