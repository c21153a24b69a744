"""Perfetto traces as protocol buffers.

`trace` is the loader. `packets` reads packets and what their sequences share, with `clocks` for their times;
`annotations` reads what is noted at an event and what kind of event that makes it; `tracks` says which
process, thread or stream a track is; `slices` joins begins with ends, for the Chrome loader to map.
"""
