"""Perfetto traces as protocol buffers.

pftrace: loader; has the Chrome loader convert the events
packets: read packets, what their sequences share, and their clocks
debug_annotations: decode annotations of events; map categories to those of PyTorch's profiler
tracks: resolve a track to its process, thread or stream
track_events: convert track events to Chrome trace events, begins joined with ends
"""
