"""The project's own format: JSON lines that a recorder appends while it runs.

Read: run, plan, columns, table and end lines and flat events, of any number of runs and writers in one file.
The schema of the lines is `capture.native.schema`.
"""

from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.native.lines import BadLineError, RunLine, decode
from capture.native.read import Assembler
from capture.native.schema import KINDS
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "native"
PRODUCER: Final = "tracetui live, record and export; any program that appends such lines"
HOWTO: Final = "tracetui record --model gemma-3-1b -o prof.jsonl"

_OURS: Final = frozenset(("run", "plan", "columns", "rows", *KINDS))
_LOOKED_AT: Final = 50


def sniff(head: Head) -> bool:
    """Return whether one of the first lines is a line of this format."""
    return head.start.startswith("{") and any(map(_ours, head.raw.split(b"\n")[:_LOOKED_AT]))


def _ours(line: bytes) -> bool:
    try:
        record, _ = decode(line)
    except BadLineError:
        return False
    return record.kind in _OURS


def foreign(line: bytes) -> bool:
    """Return whether a line is whole and none of this format."""
    try:
        decode(line)
    except BadLineError as e:
        return e.id == "unknown_kind"
    return False


def run_id(line: bytes) -> str | int | None:
    """Return the id of the run that a line starts, None if it starts no run."""
    try:
        record, _ = decode(line)
    except BadLineError:
        return None
    return record.id if isinstance(record, RunLine) else None


def load(source: Source) -> list[Run]:
    """Return all runs of the file, in the order in which they begin."""
    lines = Assembler(source.log, Path(source.label).stem)
    lines.feed(source.lines())
    runs = lines.runs()
    if not runs:
        raise UnreadableError("holds no whole line", where=source.label)
    return runs
