"""metallic, an LLM engine on Metal: its JSON-lines event log, and the report that its analyzer prints.

event_log: loader of the event log; splits appended runs
analyzer_report: loader of the printed report
compiled_scan: read the lines of a log with the C scanner; each distinct text is parsed once
line_reader: read a log line by line; accepts any key order, prefixes and foreign lines
op_names: parse op names: scopes, kernel, phase, layer, role, lens
timed_events: convert events with a duration, and group them into steps
untimed_events: convert events without a duration: memory, backends, caches, launches
"""
