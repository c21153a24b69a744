"""Keep remarks beside the recording: in a folder of our own, in a file found by the recording's content.

The recording itself is never written. A file that was moved or copied keeps its remarks; one that was changed
begins without. A native recording may still grow, and is known by how it begins.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from capture import places
from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.run import Run
from capture.text import clean
from tracetui.ui.remarks import Remarks, Row, Where

SAMPLE: Final = 1 << 16  # bytes of either end that tell a file from others
GROWING: Final = b'{"kind":"run"'  # how a native recording begins
BEGIN: Final = 1 << 12  # bytes of it that stay as they are
LONGEST: Final = 500  # characters of a note
LARGEST: Final = 1 << 20  # bytes of a file of remarks that are read


def content_of(path: Path) -> str | None:
    """Return what tells the content of a file from others; None for what is no file, or cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            begin = file.read(SAMPLE)
            size = file.seek(0, 2)
            file.seek(max(0, size - SAMPLE))
            end = file.read(SAMPLE)
    except (OSError, ValueError):
        return None
    told = begin[:BEGIN] if begin.startswith(GROWING) else begin + end + str(size).encode()
    return hashlib.blake2b(told, digest_size=16).hexdigest()


def read(runs: Iterable[Run]) -> Remarks:
    """Return what was remarked of the files of these runs."""
    found = Remarks()
    for source in dict.fromkeys(run.log.source for run in runs):
        place = _place(source)
        for where, row, marked, note in _lines(place, source) if place else ():
            if marked:
                found = found.marked(where, (*found.marks.get(where, ()), row))
            if note:
                found = found.noted(where, row, note)
    return found


def keep(remarks: Remarks, source: str) -> None:
    """Write what is remarked of a file; where nothing is, remove what was kept. Raise CaptureError where the
    source is no file, or there is no private folder.
    """
    place = _place(source)
    if place is None:
        raise CaptureError(
            "this remark holds until the screen closes", why="its source is no file to know again"
        )
    lines = list(_written(remarks, source))
    if not lines:
        with suppress(OSError):
            place.unlink()
        return
    with whole_file(place, overwrite=True) as file:
        file.write("".join([json.dumps({"recording": source}) + "\n", *lines]).encode())


def _place(source: str) -> Path | None:
    content, folder = content_of(Path(source)), places.remarks_folder()
    return folder / f"{content}.jsonl" if content and folder else None


def _written(remarks: Remarks, source: str) -> Iterator[str]:
    """Yield a line for each row of a file about which there is a remark."""
    for where in dict.fromkeys((*remarks.marks, *remarks.notes)):
        marks, notes = remarks.marks.get(where, ()), remarks.notes.get(where, {})
        for row in dict.fromkeys((*marks, *notes)) if where.source == source else ():
            told: dict[str, Any] = {"run": where.run, "view": where.view, "row": list(row)}
            with suppress(TypeError, ValueError):  # a value that no line can hold
                yield json.dumps({**told, "marked": row in marks, "note": notes.get(row, "")}) + "\n"


def _lines(place: Path, source: str) -> Iterator[tuple[Where, Row, bool, str]]:
    """Yield what stands in a file of remarks; lines that are none are passed over."""
    try:
        with place.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            told = json.loads(line)
            if isinstance(told, dict) and isinstance(told.get("row"), list):
                where = Where(source, clean(str(told.get("run"))), clean(str(told.get("view"))))
                row = tuple(clean(v) if isinstance(v, str) else v for v in told["row"])
                if all(isinstance(v, str | int | float | None) for v in row):
                    yield where, row, told.get("marked") is True, clean(str(told.get("note") or ""), LONGEST)
