"""Captures of graphs: which files tell what the kernels are that a trace replays.

vLLM writes them into `capture_traces` beside its traces, SGLang there or into `graph_capture_profile`; others
are found by `capture` in their names. Nothing is read here but names and sizes.
"""

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.text import clean

NONE: Final = "none"  # in place of a path: no capture is looked for
FOLDERS: Final = ("capture_traces", "graph_capture_profile")
MOST: Final = 256  # captures that are looked into
LARGEST: Final = 24 << 20  # bytes on disk of one that is read where it is found and not named

_ENTRIES: Final = 10_000  # of a folder that are looked at
_CAPTURE: Final = re.compile(r"capture", re.IGNORECASE)
_TRACE: Final = re.compile(r"\.json(?:\.gz)?$", re.IGNORECASE)
_BATCH: Final = re.compile(r"(?:^|[_.-])(?:bs|capture)[_-]?(\d{1,6})(?=[_.-])", re.IGNORECASE)
_RANK: Final = re.compile(r"(?:rank|TP)[ _.-]?(\d{1,6})(?!\d)")
_ANNOTATION: Final = re.compile(r'"capture_\d{1,9}_[A-Za-z]+"')


def asked(path: str) -> tuple[Path, ...]:
    """Return the captures that a path names: a file, those of a folder, none for `none`.

    Raises UnreadableError where there is no such file, or no trace in the folder.
    """
    if path == NONE:
        return ()
    place = Path(path)
    if place.is_file():
        return (place,)
    if not place.is_dir():
        todo = f"name a capture, a folder of captures, or {NONE}"
        raise UnreadableError("no such capture", where=clean(path, 4096), todo=todo)
    files = tuple(_in_order(_traces(place))) or tuple(_beside(place))
    if not files:
        raise UnreadableError("is a folder without traces", where=clean(path, 4096))
    return files


def found(trace: Path) -> tuple[Path, ...]:
    """Return the captures that lie beside a trace, those of its rank where they are of several ranks."""
    files = [path for path in _beside(trace.parent) if path.name != trace.name]
    return tuple(_of_rank(files, _rank(trace)))


def is_capture(path: Path, text: str) -> bool:
    """Return whether a file is a capture of graphs, by its place, its name and how it begins."""
    if path.parent.name in FOLDERS:
        return True
    return bool(_CAPTURE.search(path.name)) and bool(_ANNOTATION.search(text))


def batch_in_name(path: Path) -> int | None:
    """Return the batch that a capture's name states, as `bs_32_rank0.json.gz` does."""
    match = _BATCH.search(path.name)
    return int(match[1]) if match else None


def _beside(folder: Path) -> list[Path]:
    """Return the captures of a folder and of the folders in it that engines write them to."""
    own = [path for path in _traces(folder) if _CAPTURE.search(path.name)]
    return _in_order([*own, *(path for name in FOLDERS for path in _traces(folder / name))])


def _traces(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            traces = (entry for entry in islice(entries, _ENTRIES) if _TRACE.search(entry.name))
            return [Path(entry.path) for entry in traces if entry.is_file()]
    except OSError:
        return []


def _in_order(files: Sequence[Path]) -> list[Path]:
    """Return files by rising batch, those that state none first."""
    return sorted(files, key=lambda path: (batch_in_name(path) or 0, path.name))[:MOST]


def _rank(path: Path) -> int | None:
    match = _RANK.search(path.name)
    return int(match[1]) if match else None


def _of_rank(files: Sequence[Path], rank: int | None) -> list[Path]:
    """Return the files of one rank, of the lowest where that rank has none, and those that state no rank."""
    ranks = {own for path in files if (own := _rank(path)) is not None}
    mine = rank if rank in ranks else min(ranks, default=None)
    return [path for path in files if _rank(path) in (None, mine)]
