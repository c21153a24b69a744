"""Doppler, a WebGPU engine: the log of its test harness, and its JSON reports.

harness_log: loader of the log; parses its tagged lines and printed profile blocks
json_report: loader of the JSON reports and benchmark results
profile_blocks: convert profile blocks of either source to events
"""
