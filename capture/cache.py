"""Cache of parsed inputs on disk; the folder may be deleted at any time."""

import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl
from polars.exceptions import PanicException, PolarsError

import capture
from capture.errors import CaptureError
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_cache_folder, prune
from capture.import_log import ImportLog, Log
from capture.launch_archive import compress_frame, decompress_frame
from capture.native.schema import is_intact, seal_json
from capture.run import DTYPES, Run
from capture.source import Source

MAX_CACHE_BYTES: Final = 2 << 30  # total size of all entries
MIN_INPUT_BYTES: Final = 5 << 20  # smaller inputs parse as fast as their runs would load
OFF_VARIABLE: Final = "TRACETUI_NO_CACHE"

_SUFFIX: Final = ".parsed"
_SAMPLE_COUNT: Final = 64
_SAMPLE_BYTES: Final = 1 << 14
_ENTRIES_PER_PRUNE: Final = 64  # of answers, which are small and many: listing thousands takes 20 ms
_ENTRY_ERRORS: Final = (
    OSError, ValueError, KeyError, CaptureError, msgspec.MsgspecError, PolarsError, PanicException,
)  # fmt: skip

_PENDING: Final[dict[Path, Future[list[Run] | None]]] = {}  # entries being read in the background
_READER_POOL: Final = ThreadPoolExecutor(2, "cache")  # two are enough: polars reads on all cores


class Blob(msgspec.Struct):
    """Size and checksum of a frame stored after the header."""

    size: int
    crc: int


class SavedRun(msgspec.Struct):
    """A run with its frames replaced by their blobs, whose bytes follow the header in the same order."""

    name: str
    meta: dict[str, Any]
    log: int  # index in EntryHeader.logs
    events: Blob
    tables: dict[str, Blob]


class EntryHeader(msgspec.Struct):
    """The first line of an entry."""

    logs: list[dict[str, Any]]
    runs: list[SavedRun]


def build_entry_path(source: Source, question: str = "") -> Path | None:
    """Return the path of the entry for an input, existing or not, or None if the input is not cached.

    With `question`, the entry is for something computed from the input, not for the runs in it.
    """
    is_small = not question and source.size < MIN_INPUT_BYTES
    if os.environ.get(OFF_VARIABLE) or is_small or source.is_spooled:
        return None
    folder = find_cache_folder()
    try:
        return folder / (_compute_key(source, question) + _SUFFIX) if folder else None
    except OSError:
        return None


def build_entry_path_from_identity(identity: str, question: str) -> Path | None:
    """Return the entry path for a question to a remote input by its identity; None if it is not cached."""
    folder = find_cache_folder()
    if os.environ.get(OFF_VARIABLE) or not identity or folder is None:
        return None
    key = _compute_code_version() + f"{identity} {question}".encode()
    digest = hashlib.blake2b(key, digest_size=20)
    return folder / (digest.hexdigest() + _SUFFIX)


def _compute_key(source: Source, question: str) -> str:
    """Return a digest of the file: identity, content samples, its graph captures and our code."""
    digest = hashlib.blake2b(_compute_code_version() + question.encode(), digest_size=20)
    others = (*source.captures, *source.compiler_files, *source.reports)
    captures = [(str(path), _identify_state(path.stat())) for path in others]
    with source.path.open("rb") as file:
        status = os.fstat(file.fileno())
        digest.update(repr((_identify_state(status), captures)).encode())
        if status.st_size <= _SAMPLE_COUNT * _SAMPLE_BYTES:
            digest.update(file.read(_SAMPLE_COUNT * _SAMPLE_BYTES))
            return digest.hexdigest()
        for i in range(_SAMPLE_COUNT):
            file.seek((status.st_size - _SAMPLE_BYTES) * i // (_SAMPLE_COUNT - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _identify_state(status: os.stat_result) -> tuple[int, ...]:
    """Return fields that change when a file is modified or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


@cache
def _compute_code_version() -> bytes:
    """Return bytes that change with any file of this package or the user's rules: older entries then miss."""
    from capture.classify.name_rules import load_user_rules  # slow to import; not needed until a file is read

    files = _iter_code_files(str(Path(capture.__file__).parent))
    stamps = sorted((file.path, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return repr((pl.__version__, stamps, load_user_rules().text)).encode()


def _iter_code_files(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Yield the files of a folder that contain code or rules; DirEntry saves a stat per file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _iter_code_files(entry.path)
            elif entry.name.endswith((".py", ".tsv")):
                yield entry


def prefetch(path: Path, source: Source) -> None:
    """Start reading an entry in a thread; `fetch` later waits only until that is done."""
    if path not in _PENDING and path.exists():
        _PENDING[path] = _READER_POOL.submit(_read, path, source)


def fetch(path: Path, source: Source | str) -> list[Run] | None:
    """Return the runs of an entry, whose logs name `source`; None if it is missing or damaged."""
    pending = _PENDING.pop(path, None)
    return pending.result() if pending is not None else _read(path, source)


def _read(path: Path, source: Source | str) -> list[Run] | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
            if not line.endswith(b"\n") or not is_intact(line):
                return None
            header = msgspec.json.decode(line, type=EntryHeader)
            logs = [_read_log(saved, source) for saved in header.logs]
            runs = [_read_run(saved, logs, file) for saved in header.runs]
        os.utime(path)
    except _ENTRY_ERRORS:
        return None
    return runs


def _read_log(saved: dict[str, Any], source: Source | str) -> ImportLog:
    log = Log.from_saved(saved)
    log.source = source if isinstance(source, str) else source.label
    return log.freeze()


def _read_run(saved: SavedRun, logs: Sequence[ImportLog], file: io.BufferedReader) -> Run:
    events = _read_frame(saved.events, file)
    if not set(events.columns) <= set(DTYPES):
        raise ValueError("columns of another schema")
    tables = {name: _read_frame(blob, file) for name, blob in saved.tables.items()}
    return Run(saved.name, saved.meta, events, logs[saved.log], tables)


def _read_frame(blob: Blob, file: io.BufferedReader) -> pl.DataFrame:
    raw = file.read(blob.size)
    if len(raw) != blob.size or zlib.crc32(raw) != blob.crc:
        raise ValueError("a damaged entry")
    return decompress_frame(raw)


def store(path: Path, runs: Sequence[Run], source: Source | None = None) -> None:
    """Save runs, or without `source` an answer, unless the input has changed meanwhile; ignore failures."""
    with suppress(*_ENTRY_ERRORS, TypeError):
        if source is not None and build_entry_path(source) != path:
            return
        with write_atomically(path, overwrite=True, sync=False) as file:
            file.writelines(_encode_entry(runs))
        if source is not None or int(path.stem[:4], 16) % _ENTRIES_PER_PRUNE == 0:
            prune(path.parent.glob(f"*{_SUFFIX}*"), MAX_CACHE_BYTES)


def _encode_entry(runs: Sequence[Run]) -> Iterator[bytes]:
    """Yield the header, then the frames in its order."""
    logs = list({id(run.log): run.log for run in runs}.values())
    saved, blobs = [], []
    for run in runs:
        encoded = [compress_frame(frame) for frame in (run.events, *run.tables.values())]
        events, *tables = [Blob(len(raw), zlib.crc32(raw)) for raw in encoded]
        log_index = next(i for i, log in enumerate(logs) if log is run.log)
        blobs_by_table = dict(zip(run.tables, tables, strict=True))
        saved.append(SavedRun(run.name, dict(run.meta), log_index, events, blobs_by_table))
        blobs += encoded
    yield seal_json(msgspec.json.encode(EntryHeader([log.as_dict() for log in logs], saved)))
    yield from blobs
