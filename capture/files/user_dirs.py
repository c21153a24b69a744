"""Paths of our cache, state and config files (XDG), private to the user."""

import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.errors import CaptureError, UsageError

BASELINE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
RECORDINGS_WARNING_BYTES: Final = 10 << 30  # above this the user is told how to prune


def find_cache_folder() -> Path | None:
    """Return the private folder for data that can be recomputed, or None."""
    folder = _find_base_folder("XDG_CACHE_HOME", ".cache")
    return make_private(folder) if folder else None


def find_state_folder() -> Path | None:
    """Return the private folder for data to keep, or None."""
    folder = _find_base_folder("XDG_STATE_HOME", ".local/state")
    return make_private(folder) if folder else None


def find_recordings_folder() -> Path | None:
    """Return the folder of recordings, or None without a private folder."""
    state = find_state_folder()
    return make_private(state / "runs") if state else None


def list_recordings() -> list[Path]:
    """Return all recordings, newest first."""
    folder = find_recordings_folder()
    return sort_newest_first(folder.glob("*.jsonl")) if folder else []


def create_recording(title: str) -> Path:
    """Return the path of a new, empty recording."""
    folder = find_recordings_folder()
    if folder is None:
        why = "neither XDG_STATE_HOME nor the home folder is writable"
        raise CaptureError("no private folder for recordings", why=why, todo="choose a file with -o FILE")
    word = re.sub(r"[^A-Za-z0-9.-]+", "-", title).strip("-.")[:60] or "run"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{word}"
    names = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.jsonl" for n in range(1, 1000))
    return next(path for path in names if create_private_file(path))


def create_private_file(path: Path) -> bool:
    """Create an empty file only the user can read; return False if it exists, raise UsageError on failure."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError as e:
        raise UsageError(f"{path} cannot be written", why=os.strerror(e.errno or 0).lower()) from None
    return True


def write_crash_report(report: str) -> Path | None:
    """Write a traceback for a bug report; return the file, or None if it cannot be written."""
    folder = find_state_folder()
    if folder is None:
        return None
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(report)
    except OSError:
        return None
    return path


def find_baselines_folder() -> Path | None:
    """Return the folder of named baselines, or None without a private folder."""
    state = find_state_folder()
    return make_private(state / "baselines") if state else None


def build_baseline_path(name: str) -> Path:
    """Return the path of a named baseline, existing or not; raise UsageError for an invalid name."""
    folder = find_baselines_folder()
    if folder is None:
        raise CaptureError("no private folder for baselines", todo="set XDG_STATE_HOME")
    if not BASELINE_NAME.fullmatch(name):
        raise UsageError(f"invalid baseline name {name!r}", todo="use letters, digits, dot, dash, underscore")
    return folder / f"{name}.jsonl"


def list_baselines() -> list[Path]:
    """Return the files of all named baselines."""
    folder = find_baselines_folder()
    return sorted(folder.glob("*.jsonl")) if folder else []


def find_config_file() -> Path | None:
    """Return the path of the config file, existing or not, or None without a home folder."""
    folder = _find_base_folder("XDG_CONFIG_HOME", ".config")
    return folder / "config" if folder else None


def find_links_file() -> Path | None:
    """Return the file of manually linked rows, or None without a private folder."""
    state = find_state_folder()
    return state / "links.tsv" if state else None


def find_columns_file() -> Path | None:
    """Return the file of columns chosen on the screen, or None without a private folder."""
    state = find_state_folder()
    return state / "columns.tsv" if state else None


def find_remarks_folder() -> Path | None:
    """Return the folder of marks and notes on recordings, or None without a private folder."""
    state = find_state_folder()
    return make_private(state / "remarks") if state else None


def sort_newest_first(paths: Iterable[Path]) -> list[Path]:
    """Return files sorted by modification time, newest first; vanished files are skipped."""
    return [path for _, _, path in _list_by_age(paths)]


def prune(paths: Iterable[Path], limit: int) -> list[Path]:
    """Remove the oldest files until the rest fit into `limit` bytes; return the removed ones."""
    total_bytes, removed = 0, []
    for _, size, path in _list_by_age(paths):
        total_bytes += size
        if total_bytes > limit:
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def format_recordings_warning() -> str:
    """Return a warning with what to do if recordings take much space, else an empty text."""
    total_bytes = sum(size for _, size, _ in _list_by_age(list_recordings()))
    if total_bytes <= RECORDINGS_WARNING_BYTES:
        return ""
    size = f"{total_bytes / (1 << 30):,.1f} GB"
    return f"recordings take {size}: tracetui recordings --prune 5GB removes the oldest"


def _list_by_age(paths: Iterable[Path]) -> list[tuple[int, int, Path]]:
    """Return (modification time, size, path) of each file, newest first."""
    files = []
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            files.append((status.st_mtime_ns, status.st_size, path))
    return sorted(files, reverse=True)


def _find_base_folder(variable: str, fallback: str) -> Path | None:
    """Return our folder below an XDG base folder; relative settings are ignored, as XDG requires."""
    setting = os.environ.get(variable, "")
    if setting.startswith("/"):
        return Path(setting) / "tracetui"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises without a home
    return Path(home) / fallback / "tracetui" if home.startswith("/") else None


def make_private(path: Path) -> Path | None:
    """Return the folder, created if missing, or None unless it belongs to the user alone."""
    try:
        if not path.is_dir():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return None
        if stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(0o700)
        return path if os.access(path, os.W_OK | os.X_OK) else None
    except OSError:
        return None
