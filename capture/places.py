"""Where our own files lie: in the XDG folders, private to the user."""

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
RECORDINGS_LIMIT: Final = 10 << 30  # bytes of recordings from which on we say how much they are


def cache_folder() -> Path | None:
    """Return the private folder for what can be made again; None where there is none."""
    return _private(_home("XDG_CACHE_HOME", ".cache"))


def state_folder() -> Path | None:
    """Return the private folder for what must stay; None where there is none."""
    return _private(_home("XDG_STATE_HOME", ".local/state"))


def recordings_folder() -> Path | None:
    """Return the folder of recordings; None where there is none."""
    state = state_folder()
    return make_private(state / "runs") if state else None


def recordings() -> list[Path]:
    """Return every recording, the newest first."""
    folder = recordings_folder()
    return newest_first(folder.glob("*.jsonl")) if folder else []


def new_recording(title: str) -> Path:
    """Return the path of a new, empty recording."""
    folder = recordings_folder()
    if folder is None:
        raise CaptureError(
            "there is no private folder for recordings",
            why="neither XDG_STATE_HOME nor the home folder can be written",
            todo="say where with -o FILE",
        )
    stem = (
        f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9.-]+', '-', title).strip('-.')[:60] or 'run'}"
    )
    names = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.jsonl" for n in range(1, 1000))
    return next(path for path in names if create(path))


def create(path: Path) -> bool:
    """Create an empty file of the user's alone; return whether nothing was there. Raise CaptureError where
    none can be made.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError as e:
        raise UsageError(f"{path} cannot be written", why=os.strerror(e.errno or 0).lower()) from None
    return True


def crash_file(report: str) -> Path | None:
    """Write a traceback to a file for a bug report and return its path; None where it cannot be written."""
    folder = state_folder()
    if folder is None:
        return None
    place = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(report)
    except OSError:
        return None
    return place


def baselines_folder() -> Path | None:
    """Return the folder of runs that are kept under a name; None where there is none."""
    state = state_folder()
    return make_private(state / "baselines") if state else None


def baseline(name: str) -> Path:
    """Return the path of the run kept under a name, whether it exists or not."""
    folder = baselines_folder()
    if folder is None:
        raise CaptureError("there is no private folder for baselines", todo="set XDG_STATE_HOME")
    if not BASELINE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a baseline", todo="use letters, digits, dot, dash, underscore"
        )
    return folder / f"{name}.jsonl"


def baselines() -> list[Path]:
    """Return the runs that are kept under a name."""
    folder = baselines_folder()
    return sorted(folder.glob("*.jsonl")) if folder else []


def config_file() -> Path | None:
    """Return where a person says how the screen shall be, be there a file or not; None without a home."""
    folder = _home("XDG_CONFIG_HOME", ".config")
    return folder / "config" if folder else None


def links_file() -> Path | None:
    """Return the file of rows that a person linked by hand; None where there is no private folder."""
    state = state_folder()
    return state / "links.tsv" if state else None


def columns_file() -> Path | None:
    """Return the file of columns that were chosen on the screen; None where there is no private folder."""
    state = state_folder()
    return state / "columns.tsv" if state else None


def remarks_folder() -> Path | None:
    """Return the folder of what was remarked of recordings; None where there is none."""
    state = state_folder()
    return make_private(state / "remarks") if state else None


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Return files by their last change; one that vanishes meanwhile is left out."""
    return [path for _, _, path in _by_age(paths)]


def prune(paths: Iterable[Path], limit: int) -> list[Path]:
    """Remove the oldest files until the rest hold no more than `limit` bytes; return those that are gone."""
    have, gone = 0, []
    for _, size, path in _by_age(paths):
        have += size
        if have > limit:
            with suppress(OSError):
                path.unlink()
                gone.append(path)
    return gone


def recordings_warning() -> str:
    """Return that recordings take more room than is usual, and what to do; empty where they do not."""
    have = sum(size for _, size, _ in _by_age(recordings()))
    if have <= RECORDINGS_LIMIT:
        return ""
    return f"recordings take {have / (1 << 30):,.1f} GB: tracetui recordings --prune 5GB removes the oldest"


def _by_age(paths: Iterable[Path]) -> list[tuple[int, int, Path]]:
    """Return (time of last change, size, path) of each file, the newest first."""
    files = []
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            files.append((status.st_mtime_ns, status.st_size, path))
    return sorted(files, reverse=True)


def _home(variable: str, fallback: str) -> Path | None:
    """Return our folder in a base folder by the XDG rules, by which a relative one counts as not set."""
    stated = os.environ.get(variable, "")
    if stated.startswith("/"):
        return Path(stated) / "tracetui"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody has a home
    return Path(home) / fallback / "tracetui" if home.startswith("/") else None


def _private(path: Path | None) -> Path | None:
    return make_private(path) if path else None


def make_private(path: Path) -> Path | None:
    """Return the folder, made where it is missing, if no other user can read it; else None."""
    try:
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
