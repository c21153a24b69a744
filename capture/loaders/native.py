"""The project's own format: JSON lines that a recorder appends while it runs.

Read: run, plan, columns, table and end lines and flat events, of any number of runs and writers in one file.
The schema of the lines is `capture.native.schema`.
"""

from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.native.assembler import Assembler
from capture.native.line_types import FORMAT as FORMAT
from capture.native.line_types import is_native
from capture.run import Run
from capture.source import Head, Source

PRODUCER: Final = "tracetui live, record and export; any program that appends such lines"
HOWTO: Final = "tracetui record --model gemma-3-1b -o prof.jsonl"

_SNIFFED_LINES: Final = 50


def sniff(head: Head) -> bool:
    """Accept an input if one of its first lines is a native line."""
    return head.stripped_text.startswith("{") and any(map(is_native, head.raw.split(b"\n")[:_SNIFFED_LINES]))


def load(source: Source) -> list[Run]:
    """Read all runs of the file, in the order in which they begin."""
    lines = Assembler(source.log, Path(source.label).stem)
    lines.feed(source.iter_lines())
    runs = lines.build_runs()
    if not runs:
        raise UnreadableError("contains no complete line", where=source.label)
    return runs
