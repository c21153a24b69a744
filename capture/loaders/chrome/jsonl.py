"""Chrome trace events as JSON lines: one event a line, no list around them.

Read and not read: as in `chrome.trace`, which links the format; there is no header.
"""

import json
from typing import Final

from capture.errors import UnreadableError
from capture.loaders.chrome import readers
from capture.loaders.chrome.rows import to_run
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "chrome-jsonl"
PRODUCER: Final = "streaming writers of Chrome trace events"
HOWTO: Final = "one trace event a line, each a JSON object with ph, name, ts and dur"

_TRIED: Final = 5  # a damaged first line does not hide the format


def sniff(head: Head) -> bool:
    if not head.start.startswith("{"):
        return False
    return any(_is_event(line) for line in head.start.split("\n", _TRIED)[:_TRIED])


def load(source: Source) -> list[Run]:
    trace = readers.read(source, readers.OF_LINES)
    if not trace.complete.rows.height and not trace.others:
        raise UnreadableError("holds no trace event that could be read", where=source.label)
    return [to_run(trace, source)]


def _is_event(line: str) -> bool:
    try:
        event = json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and isinstance(event.get("ph"), str)
