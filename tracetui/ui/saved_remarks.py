"""Save marks and notes of a recording in a folder of ours, in a file named by a hash of its content.

The recording itself is never written. A moved or copied recording keeps its remarks, a changed one loses
them. A native recording may still grow, so only its beginning is hashed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.files import user_dirs
from capture.files.atomic import write_atomically
from capture.run import Run
from tracetui.ui.session import Remarks, RemarkScope, RowKey

SAMPLE_BYTES: Final = 1 << 16  # of each end, hashed
NATIVE_BEGINNING: Final = b'{"kind":"run"'  # of a native recording
STABLE_BYTES: Final = 1 << 12  # of it that do not change while it grows
MOST_NOTE_CHARS: Final = 500
MOST_FILE_BYTES: Final = 1 << 20  # of a file of remarks


def hash_content(path: Path) -> str | None:
    """Return a hash of the content of a file, or None if it is not a readable file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            begin = file.read(SAMPLE_BYTES)
            size = file.seek(0, 2)
            file.seek(max(0, size - SAMPLE_BYTES))
            end = file.read(SAMPLE_BYTES)
    except (OSError, ValueError):
        return None
    sample = begin[:STABLE_BYTES] if begin.startswith(NATIVE_BEGINNING) else begin + end + str(size).encode()
    return hashlib.blake2b(sample, digest_size=16).hexdigest()


def load_remarks(runs: Iterable[Run]) -> Remarks:
    """Return the saved remarks about the files of these runs."""
    remarks = Remarks()
    for source in dict.fromkeys(run.log.source for run in runs):
        path = _find_file(source)
        for scope, row, is_marked, note in _iter_saved_rows(path, source) if path else ():
            if is_marked:
                remarks = remarks.with_marks(scope, (*remarks.marks.get(scope, ()), row))
            if note:
                remarks = remarks.with_note(scope, row, note)
    return remarks


def save_remarks(remarks: Remarks, source: str) -> None:
    """Save the remarks about a file; without any, delete the saved ones.

    Raise CaptureError if the source is not a file or there is no private folder.
    """
    path = _find_file(source)
    if path is None:
        raise CaptureError("this remark is lost when the screen closes", why="its source is not a file")
    lines = list(_iter_lines(remarks, source))
    if not lines:
        with suppress(OSError):
            path.unlink()
        return
    with write_atomically(path, overwrite=True) as file:
        file.write("".join([json.dumps({"recording": source}) + "\n", *lines]).encode())


def _find_file(source: str) -> Path | None:
    content, folder = hash_content(Path(source)), user_dirs.find_remarks_folder()
    return folder / f"{content}.jsonl" if content and folder else None


def _iter_lines(remarks: Remarks, source: str) -> Iterator[str]:
    """Yield a line of JSON for each marked or noted row of a file."""
    for scope in dict.fromkeys((*remarks.marks, *remarks.notes)):
        marks, notes = remarks.marks.get(scope, ()), remarks.notes.get(scope, {})
        for row in dict.fromkeys((*marks, *notes)) if scope.source == source else ():
            entry: dict[str, Any] = {"run": scope.run, "view": scope.view, "row": list(row)}
            with suppress(TypeError, ValueError):  # a value that JSON cannot represent
                yield json.dumps({**entry, "marked": row in marks, "note": notes.get(row, "")}) + "\n"


def _iter_saved_rows(path: Path, source: str) -> Iterator[tuple[RemarkScope, RowKey, bool, str]]:
    """Yield the rows of a file of remarks: scope, key, whether marked, note; skip invalid lines."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("row"), list):
                scope = RemarkScope(source, clean(str(entry.get("run"))), clean(str(entry.get("view"))))
                row = tuple(clean(v) if isinstance(v, str) else v for v in entry["row"])
                note = clean(str(entry.get("note") or ""), MOST_NOTE_CHARS)
                if all(isinstance(v, str | int | float | None) for v in row):
                    yield scope, row, entry.get("marked") is True, note
