"""Keeps parsed inputs on disk, so that they open faster the next time. Safe to delete at any time."""

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

import capture
from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.importlog import ImportLog, Log
from capture.native.schema import intact, sealed
from capture.places import cache_folder, prune
from capture.run import DTYPES, Run
from capture.source import Source

LIMIT: Final = 2 << 30  # bytes of all entries together
SMALLEST: Final = 5 << 20  # bytes; smaller inputs parse as fast as they would load
OFF: Final = "TRACETUI_NO_CACHE"

_SUFFIX: Final = ".parsed"
_SAMPLES: Final = 64
_SAMPLE: Final = 1 << 14
_BROKEN: Final = (
    OSError,
    ValueError,
    KeyError,
    CaptureError,
    msgspec.MsgspecError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)


_COMING: Final[dict[Path, Future[list[Run] | None]]] = {}  # entries that are being read
_READERS: Final = ThreadPoolExecutor(2, "cache")  # reading is work of polars, which uses every core


class Blob(msgspec.Struct):
    """The size and checksum of a frame behind the header."""

    size: int
    crc: int


class SavedRun(msgspec.Struct):
    """A run without its frames; `tables` are in the order of their blobs, `log` is an index."""

    name: str
    meta: dict[str, Any]
    log: int
    events: Blob
    tables: dict[str, Blob]


class Header(msgspec.Struct):
    """The first line of an entry."""

    logs: list[dict[str, Any]]
    runs: list[SavedRun]


def entry(source: Source, question: str = "") -> Path | None:
    """Return the file of an input's parsed form, or of what it answers to a question, whether that file
    exists or not; None where none is to be kept.
    """
    if os.environ.get(OFF) or source.size < SMALLEST or source.spooled:
        return None
    folder = cache_folder()
    try:
        return folder / (_key(source, question) + _SUFFIX) if folder else None
    except OSError:
        return None


def entry_of(identity: str, question: str, size: int) -> Path | None:
    """Return the same of an input elsewhere of which only the identity is known; empty where it is not."""
    folder = cache_folder()
    if os.environ.get(OFF) or size < SMALLEST or not identity or folder is None:
        return None
    digest = hashlib.blake2b(_code_version(), digest_size=20)
    digest.update(f"{identity} {question}".encode())
    return folder / (digest.hexdigest() + _SUFFIX)


def _key(source: Source, question: str) -> str:
    """Return a digest of the file's identity, samples of its content, the captures that tell of it, and the
    code that would parse it.
    """
    digest = hashlib.blake2b(_code_version() + question.encode(), digest_size=20)
    captures = [(str(path), _identity(path.stat())) for path in source.captures]
    with source.path.open("rb") as file:
        status = os.fstat(file.fileno())
        digest.update(repr((_identity(status), captures)).encode())
        for i in range(_SAMPLES):
            file.seek(max(0, status.st_size - _SAMPLE) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells one state of a file from another."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


@cache
def _code_version() -> bytes:
    """Return what changes when any file of this package or the person's own rules change: old entries are
    void then.
    """
    from capture.classify.names import own_rules  # no screen needs rules of names before it reads

    files = _sources(str(Path(capture.__file__).parent))
    stamps = sorted((file.path, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return repr((pl.__version__, stamps, own_rules().text)).encode()


def _sources(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Yield the files of a folder that hold code or rules; the look into it tells their sizes too."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir():
                yield from _sources(each.path)
            elif each.name.endswith((".py", ".tsv")):
                yield each


def begin(path: Path, source: Source) -> None:
    """Begin to read an entry in a thread: who fetches it next waits only for what is left of that."""
    if path not in _COMING and path.exists():
        _COMING[path] = _READERS.submit(_read, path, source)


def fetch(path: Path, source: Source | str) -> list[Run] | None:
    """Return the runs of an entry; None where there is no entry or it is damaged."""
    coming = _COMING.pop(path, None)
    return coming.result() if coming is not None else _read(path, source)


def _read(path: Path, source: Source | str) -> list[Run] | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
            if not line.endswith(b"\n") or not intact(line):
                return None
            header = msgspec.json.decode(line, type=Header)
            logs = [_read_log(saved, source) for saved in header.logs]
            runs = [_read_run(saved, logs, file) for saved in header.runs]
        os.utime(path)
    except _BROKEN:
        return None
    return runs


def _read_log(saved: dict[str, Any], source: Source | str) -> ImportLog:
    log = Log.of(saved)
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
    return pl.read_ipc(io.BytesIO(raw))


def store(path: Path, runs: Sequence[Run], source: Source | None = None) -> None:
    """Keep runs for the next time, unless the input has changed meanwhile; failing is not an error."""
    with suppress(*_BROKEN, TypeError):
        if source is not None and entry(source) != path:
            return
        with whole_file(path, overwrite=True) as file:
            file.writelines(_encode(runs))
        prune(path.parent.glob(f"*{_SUFFIX}*"), LIMIT)


def _encode(runs: Sequence[Run]) -> Iterator[bytes]:
    """Yield the header, then the frames in its order."""
    logs = list({id(run.log): run.log for run in runs}.values())
    saved, blobs = [], []
    for run in runs:
        packed = [_encode_frame(frame) for frame in (run.events, *run.tables.values())]
        events, *tables = [Blob(len(raw), zlib.crc32(raw)) for raw in packed]
        log_index = next(i for i, log in enumerate(logs) if log is run.log)
        named = dict(zip(run.tables, tables, strict=True))
        saved.append(SavedRun(run.name, dict(run.meta), log_index, events, named))
        blobs += packed
    yield sealed(msgspec.json.encode(Header([log.as_dict() for log in logs], saved)))
    yield from blobs


def _encode_frame(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    return out.getvalue()
