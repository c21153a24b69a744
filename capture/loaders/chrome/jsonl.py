"""Load Chrome trace events written as JSON lines: one event per line, no list around them.

Read and not read: as in `chrome.trace`, which links the format; there is no header.
"""

import json
from typing import Final

from capture.errors import UnreadableError
from capture.loaders._json_document import decode_or_none
from capture.loaders.chrome.trace import read_lines
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "chrome-jsonl"
PRODUCER: Final = "streaming writers of Chrome trace events"
HOWTO: Final = "one trace event per line, each a JSON object with ph, name, ts and dur"

_DECODER: Final = json.JSONDecoder(strict=False)
_SNIFFED_LINES: Final = 5  # a damaged first line does not hide the format


def sniff(head: Head) -> bool:
    if not head.stripped_text.startswith("{"):
        return False
    return any(map(_is_event, head.stripped_text.split("\n", _SNIFFED_LINES)[:_SNIFFED_LINES]))


def load(source: Source) -> list[Run]:
    trace = read_lines(source)
    if not trace.complete.rows.height and not trace.others:
        raise UnreadableError("contains no readable trace event", where=source.label)
    return [convert_to_run(trace, source)]


def _is_event(line: str) -> bool:
    event = decode_or_none(_DECODER.decode, line)
    return isinstance(event, dict) and isinstance(event.get("ph"), str)
