"""The native format: one JSON line per record, written while a run is recorded and readable at any time.

write side (schema, emit and parts run in recorded programs: standard library, Python 3.8):
  schema: columns and closed words of events, and the checksum of a line
  emit: append event lines to a file, cheaply enough to stay on
  parts: rotate a recording into parts
  write: write a loaded run as native lines

read side:
  line_types: the types of lines, how one is decoded, and how native lines are detected
  line_rows: rows of native lines: ops of the plan, and column lines in bulk
  saved_tables: tables as typed JSON columns
  compaction: compact old steps of a growing run into blocks
  assembler: assemble runs from lines
  tail: follow a file that grows
"""
