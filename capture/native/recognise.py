"""Recognises native lines without reading the runs that they belong to."""

from typing import Final

from capture.native.lines import BadLineError, RunLine, decode
from capture.native.schema import KINDS

FORMAT: Final = "native"

_OF_EVENTS: Final = frozenset(("run", "plan", "columns", "rows", *KINDS))


def is_native(line: bytes) -> bool:
    """Return whether a line is whole and of a run, its ops or its events."""
    try:
        record, _ = decode(line)
    except BadLineError:
        return False
    return record.kind in _OF_EVENTS


def is_foreign(line: bytes) -> bool:
    """Return whether a line is whole and of another format."""
    try:
        decode(line)
    except BadLineError as e:
        return e.id == "unknown_kind"
    return False


def run_id(line: bytes) -> str | int | None:
    """Return the id of the run that a line starts; None where it starts none, or one without an id."""
    try:
        record, _ = decode(line)
    except BadLineError:
        return None
    return record.id if isinstance(record, RunLine) else None
