"""Emitter: appends event lines to a file."""
