"""The project's own format: JSON lines that a recorder appends while it runs.

Read: run, plan, columns, table and end lines and flat events, of any number of runs and writers in one file.
The schema of the lines is `capture.native.schema`.
"""

from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.native.read import Assembler
from capture.native.recognise import FORMAT as FORMAT
from capture.native.recognise import is_native
from capture.run import Run
from capture.source import Head, Source

PRODUCER: Final = "tracetui live, record and export; any program that appends such lines"
HOWTO: Final = "tracetui record --model gemma-3-1b -o prof.jsonl"

_LOOKED_AT: Final = 50


def sniff(head: Head) -> bool:
    """Return whether one of the first lines is a line of this format."""
    return head.start.startswith("{") and any(map(is_native, head.raw.split(b"\n")[:_LOOKED_AT]))


def load(source: Source) -> list[Run]:
    """Return all runs of the file, in the order in which they begin."""
    lines = Assembler(source.log, Path(source.label).stem)
    lines.feed(source.lines())
    runs = lines.runs()
    if not runs:
        raise UnreadableError("holds no whole line", where=source.label)
    return runs
