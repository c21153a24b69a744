"""Parsed inputs on disk, so that a second opening costs next to nothing. Safe to delete at any time."""

import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
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
from capture.text import clean

LIMIT: Final = 2 << 30  # bytes of all entries together
WORTH_IT: Final = 5 << 20  # smaller inputs parse as fast as they would load
OFF: Final = "TRACETUI_NO_CACHE"

_SUFFIX: Final = ".parsed"
_SAMPLES: Final = 64
_SAMPLE: Final = 1 << 14
_BROKEN: Final = (
    OSError, ValueError, KeyError, CaptureError, msgspec.MsgspecError, pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)  # fmt: skip


class Blob(msgspec.Struct):
    """A frame behind the header."""

    size: int
    crc: int


class SavedRun(msgspec.Struct):
    """A run, but for its frames; `tables` stand in the order of their blobs."""

    name: str
    meta: dict[str, Any]
    log: int
    events: Blob
    tables: dict[str, Blob]


class Header(msgspec.Struct):
    """The first line of an entry."""

    logs: list[dict[str, Any]]
    runs: list[SavedRun]


def entry(source: Source) -> Path | None:
    """Where the parsed form of an input lies or would lie; none for what is not worth it."""
    if os.environ.get(OFF) or source.size < WORTH_IT or clean(str(source.path), 4096) != source.label:
        return None
    folder = cache_folder()
    try:
        return folder / (_key(source) + _SUFFIX) if folder else None
    except OSError:
        return None


def _key(source: Source) -> str:
    """Told by the file's identity, samples of its content, and the code that would parse it."""
    digest = hashlib.blake2b(_code(), digest_size=20)
    with source.path.open("rb") as file:
        about = os.fstat(file.fileno())
        identity = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
        digest.update(repr(identity).encode())
        for i in range(_SAMPLES):
            file.seek(max(0, about.st_size - _SAMPLE) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


@cache
def _code() -> bytes:
    """Which version of this room would parse: a change of any of its files makes old entries void."""
    files = sorted(Path(capture.__file__).parent.rglob("*.py"))
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return repr((pl.__version__, stamps)).encode()


def fetch(path: Path, source: Source) -> list[Run] | None:
    """The runs of an entry; none where there is no entry or it is not whole."""
    try:
        with path.open("rb") as file:
            line = file.readline()
            if not line.endswith(b"\n") or not intact(line):
                return None
            header = msgspec.json.decode(line, type=Header)
            logs = [_log(saved, source) for saved in header.logs]
            runs = [_run(saved, logs, file) for saved in header.runs]
        os.utime(path)
    except _BROKEN:
        return None
    return runs


def _log(saved: dict[str, Any], source: Source) -> ImportLog:
    log = Log.of(saved)
    log.source = source.label
    return log.freeze()


def _run(saved: SavedRun, logs: Sequence[ImportLog], file: io.BufferedReader) -> Run:
    events = _frame(saved.events, file)
    if not set(events.columns) <= set(DTYPES):
        raise ValueError("columns of another schema")
    tables = {name: _frame(blob, file) for name, blob in saved.tables.items()}
    return Run(saved.name, saved.meta, events, logs[saved.log], tables)


def _frame(blob: Blob, file: io.BufferedReader) -> pl.DataFrame:
    raw = file.read(blob.size)
    if len(raw) != blob.size or zlib.crc32(raw) != blob.crc:
        raise ValueError("a damaged entry")
    return pl.read_ipc(io.BytesIO(raw))


def store(path: Path, runs: Sequence[Run], source: Source) -> None:
    """Keeps runs for the next time, unless the input changed meanwhile or they cannot be kept."""
    with suppress(*_BROKEN, TypeError):
        if entry(source) != path:
            return
        with whole_file(path, overwrite=True) as file:
            file.writelines(_parts(runs))
        prune(path.parent.glob(f"*{_SUFFIX}*"), LIMIT)


def _parts(runs: Sequence[Run]) -> Iterator[bytes]:
    """The header, then the frames in its order."""
    logs = list({id(run.log): run.log for run in runs}.values())
    saved, blobs = [], []
    for run in runs:
        packed = [_packed(frame) for frame in (run.events, *run.tables.values())]
        events, *tables = [Blob(len(raw), zlib.crc32(raw)) for raw in packed]
        place = next(i for i, log in enumerate(logs) if log is run.log)
        named = dict(zip(run.tables, tables, strict=True))
        saved.append(SavedRun(run.name, dict(run.meta), place, events, named))
        blobs += packed
    yield sealed(msgspec.json.encode(Header([log.as_dict() for log in logs], saved)))
    yield from blobs


def _packed(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    return out.getvalue()
