"""Load the parts of one native recording as one: `prof.1.jsonl`, `prof.2.jsonl` …, last `prof.jsonl`.

A recorder starts a new part at the size that TRACETUI_PART_SIZE, or `record --part-size`, sets.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders import native
from capture.native.assembler import Assembler
from capture.native.line_types import parse_run_id
from capture.native.parts import parse_part_count, read_first_line
from capture.run import Run
from capture.source import Source

FORMAT: Final = native.FORMAT
PRODUCER: Final = native.PRODUCER
HOWTO: Final = native.HOWTO

_NAME: Final = re.compile(r"(?P<stem>.+?)(?:\.(?P<number>\d{1,9}))?\.jsonl")
_LAST_PART: Final = 1 << 30  # number of the part without one, which is written last


def find(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Group the parts of each recording that has several, in order."""
    recordings: dict[tuple[Path, str], dict[int, Path]] = defaultdict(dict)
    for file in files:
        if match := _NAME.fullmatch(file.name):
            recordings[file.parent, match["stem"]][int(match["number"] or _LAST_PART)] = file
    groups = [tuple(parts[number] for number in sorted(parts)) for parts in recordings.values()]
    return [group for group in groups if len(group) > 1 and _is_one_run(group)]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the parts of one recording as one file."""
    last = str(files[-1])
    log = Log(last, FORMAT)
    lines = Assembler(log, files[-1].stem)
    for file in files:
        lines.feed(Source.from_path(file).iter_lines())
    missing = parse_part_count(read_first_line(files[-1])) - len(files) + 1
    if missing > 0:
        log.note("missing_part", "parts of the recording are missing", severity="data_loss", count=missing)
    runs = lines.build_runs()
    if not runs:
        raise UnreadableError("contains no complete line", where=last)
    return runs


def _is_one_run(files: Sequence[Path]) -> bool:
    ids = {parse_run_id(read_first_line(file)) for file in files}
    return len(ids) == 1 and ids != {None}
