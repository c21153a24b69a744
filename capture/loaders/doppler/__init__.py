"""Doppler's harness: its log with profile blocks, and its JSON reports.

`log` and `json_report` are the loaders; `lines` reads single lines, `profile_blocks` turns the printed blocks
into events.
"""
