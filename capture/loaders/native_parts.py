"""The parts of one native recording as one: `prof.1.jsonl`, `prof.2.jsonl` …, and `prof.jsonl`, the last.

A recorder begins another part where TRACETUI_PART_SIZE, or `record --part-size`, says how large one may be.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders import native
from capture.native.parts import first_line, parts_before
from capture.native.read import Assembler
from capture.native.recognise import run_id
from capture.run import Run
from capture.source import Source

FORMAT: Final = native.FORMAT
PRODUCER: Final = native.PRODUCER
HOWTO: Final = native.HOWTO

_NAME: Final = re.compile(r"(?P<stem>.+?)(?:\.(?P<number>\d{1,9}))?\.jsonl")
_LAST: Final = 1 << 30  # the number of the part that has none, since it is written last


def find(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the parts of each recording that has several, in their order."""
    recordings: dict[tuple[Path, str], dict[int, Path]] = defaultdict(dict)
    for file in files:
        if match := _NAME.fullmatch(file.name):
            recordings[file.parent, match["stem"]][int(match["number"] or _LAST)] = file
    several = [own for own in recordings.values() if len(own) > 1]
    return [tuple(own[n] for n in sorted(own)) for own in several if _is_one_run(list(own.values()))]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the parts of one recording as one file."""
    last = str(files[-1])
    log = Log(last, FORMAT)
    lines = Assembler(log, files[-1].stem)
    for file in files:
        lines.feed(Source.of(file).lines())
    missing = parts_before(first_line(files[-1])) - len(files) + 1
    if missing > 0:
        log.note("missing_part", "parts of the recording are not here", severity="data_loss", count=missing)
    runs = lines.runs()
    if not runs:
        raise UnreadableError("holds no whole line", where=last)
    return runs


def _is_one_run(files: Sequence[Path]) -> bool:
    ids = {run_id(first_line(file)) for file in files}
    return len(ids) == 1 and ids != {None}
