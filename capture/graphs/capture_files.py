"""Find the files that say more of a profile, by names and sizes alone.

They are captures of CUDA graphs, what torch.compile writes of the kernels that it generates, and what JAX and
OpenVINO write of a run next to it. vLLM writes captures into `capture_traces` next to its traces, SGLang
there or into `graph_capture_profile`; others have `capture` in their names.
"""

import os
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import UnreadableError

NO_CAPTURE: Final = "none"  # instead of a path: use no captures
CAPTURE_FOLDERS: Final = ("capture_traces", "graph_capture_profile")
MAX_CAPTURES: Final = 256  # per trace
MAX_ADJACENT_BYTES: Final = 24 << 20  # on disk; larger captures are read only if the user names them

_MAX_FOLDER_ENTRIES: Final = 10_000
_SETTLED_NS: Final = 2_000_000_000  # since a change, after which a further one gets another time stamp
_CAPTURE: Final = re.compile(r"capture", re.IGNORECASE)
_TRACE: Final = re.compile(r"\.json(?:\.gz)?$", re.IGNORECASE)
_BATCH: Final = re.compile(r"(?:^|[_.-])(?:bs|capture)[_-]?(\d{1,6})(?=[_.-])", re.IGNORECASE)
_RANK: Final = re.compile(r"(?:rank|TP)[ _.-]?(\d{1,6})(?!\d)")
_COMPILER_FILE: Final = "inductor_provenance_tracking_node_mappings.json"
_COMPILER_FOLDERS: Final = "torch_compile_debug/run_*/torchinductor/model__*"
_REPORTS: Final = (  # of a file by its name: JAX's Chrome traces, OpenVINO's counters
    (re.compile(r"(.+)\.trace\.json\.gz"), r"\1.xplane.pb"),
    (re.compile(r"benchmark_\w+_counters_report\.(csv|json)"), r"benchmark_report.\1"),
)
_ANNOTATION: Final = re.compile(r'"capture_\d{1,9}_[A-Za-z]+"')


def resolve_captures(path: str) -> tuple[Path, ...]:
    """Resolve a path to captures: a file, those of a folder, none for `none`.

    Raises UnreadableError if there is no such file, or no trace in the folder.
    """
    if path == NO_CAPTURE:
        return ()
    file = Path(path)
    if file.is_file():
        return (file,)
    if not file.is_dir():
        todo = f"name a capture, a folder of captures, or {NO_CAPTURE}"
        raise UnreadableError("no such capture", where=clean(path, 4096), todo=todo)
    files = tuple(_list_captures(file)) or tuple(_sort_by_batch(_list_traces(file, _TRACE)))
    if not files:
        raise UnreadableError("is a folder without traces", where=clean(path, 4096))
    return files


def find_adjacent_captures(trace: Path) -> tuple[Path, ...]:
    """Find the captures in the folder of a trace, those of its rank if they are of several ranks."""
    files = [path for path in _list_captures(trace.parent) if path.name != trace.name]
    return tuple(_select_rank(files, _parse_rank(trace)))


def find_compiler_files(trace: Path) -> tuple[Path, ...]:
    """Find what torch.compile wrote of its kernels in the folder of a trace, or below it for debugging."""
    try:
        folders = [trace.parent, *sorted(trace.parent.glob(_COMPILER_FOLDERS))]
        files = [folder / _COMPILER_FILE for folder in folders[:MAX_CAPTURES]]
        return tuple(path for path in files if path.is_file())
    except OSError:
        return ()


def find_reports(profile: Path) -> tuple[Path, ...]:
    """Find what the writer of a profile says of the same run in a file next to it."""
    names = (pattern.sub(name, profile.name) for pattern, name in _REPORTS if pattern.fullmatch(profile.name))
    return tuple(path for path in map(profile.with_name, names) if path.is_file())


def is_capture(path: Path, text: str) -> bool:
    """Whether a file is a graph capture, by its folder, or its name and how its text begins."""
    if path.parent.name in CAPTURE_FOLDERS:
        return True
    return bool(_CAPTURE.search(path.name)) and bool(_ANNOTATION.search(text))


def parse_batch(path: Path) -> int | None:
    """Parse the batch size in a capture's name, such as 32 in `bs_32_rank0.json.gz`."""
    match = _BATCH.search(path.name)
    return int(match[1]) if match else None


def _list_captures(folder: Path) -> list[Path]:
    """List the captures in a folder, and in the subfolders to which engines write them."""
    captures = _list_traces(folder, _CAPTURE)
    in_subfolders = (path for name in CAPTURE_FOLDERS for path in _list_traces(folder / name, _TRACE))
    return _sort_by_batch([*captures, *in_subfolders])


def _list_traces(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """List the traces in a folder with a pattern in their names; a folder of many ranks is read once."""
    try:
        modified_ns = folder.stat().st_mtime_ns
        is_settled = time.time_ns() - modified_ns > _SETTLED_NS
        scan = _scan_folder if is_settled else _scan_folder.__wrapped__
        return [*scan(folder, pattern, modified_ns)]
    except OSError:
        return []


@lru_cache(maxsize=64)
def _scan_folder(folder: Path, pattern: re.Pattern[str], _modified_ns: int) -> tuple[Path, ...]:
    with os.scandir(folder) as entries:
        fitting = (entry for entry in islice(entries, _MAX_FOLDER_ENTRIES) if pattern.search(entry.name))
        return tuple(Path(entry.path) for entry in fitting if _TRACE.search(entry.name) and entry.is_file())


def _sort_by_batch(files: Sequence[Path]) -> list[Path]:
    """Sort files by batch size, those without one first; at most `MAX_CAPTURES`."""
    return sorted(files, key=lambda path: (parse_batch(path) or 0, path.name))[:MAX_CAPTURES]


def _parse_rank(path: Path) -> int | None:
    match = _RANK.search(path.name)
    return int(match[1]) if match else None


def _select_rank(files: Sequence[Path], rank: int | None) -> list[Path]:
    """Select the files of a rank, else of the lowest rank, and those without a rank."""
    ranks = {file_rank for path in files if (file_rank := _parse_rank(path)) is not None}
    selected = rank if rank in ranks else min(ranks, default=None)
    return [path for path in files if _parse_rank(path) in (None, selected)]
