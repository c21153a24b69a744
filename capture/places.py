"""Where files of ours lie: the XDG folders, private to the user, or nowhere when that cannot be had."""

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
RECORDINGS_LIMIT: Final = 10 << 30  # bytes of recordings that are kept


def cache_folder() -> Path | None:
    return _private(_home("XDG_CACHE_HOME", ".cache"))


def state_folder() -> Path | None:
    return _private(_home("XDG_STATE_HOME", ".local/state"))


def recordings_folder() -> Path | None:
    state = state_folder()
    return made_private(state / "runs") if state else None


def recordings() -> list[Path]:
    """Everything recorded so far, the newest first."""
    folder = recordings_folder()
    return newest_first(folder.glob("*.jsonl")) if folder else []


def new_recording(title: str) -> Path:
    """A name that is free for a recording; older ones make room for it."""
    folder = recordings_folder()
    if folder is None:
        raise CaptureError(
            "there is no private folder for recordings",
            why="neither XDG_STATE_HOME nor the home folder can be written",
            todo="say where with -o FILE",
        )
    prune(folder.glob("*.jsonl"), RECORDINGS_LIMIT)
    stem = (
        f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9.-]+', '-', title).strip('-.')[:60] or 'run'}"
    )
    names = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.jsonl" for n in range(1, 1000))
    return next(path for path in names if not os.path.lexists(path))


def crash_file(report: str) -> Path | None:
    """A traceback put aside for a bug report; none where nothing can be written."""
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
    """Runs that a person keeps under a name."""
    state = state_folder()
    return made_private(state / "baselines") if state else None


def baseline(name: str) -> Path:
    """Where the run kept under a name lies, or would lie."""
    folder = baselines_folder()
    if folder is None:
        raise CaptureError("there is no private folder for baselines", todo="set XDG_STATE_HOME")
    if not BASELINE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a baseline", todo="use letters, digits, dot, dash, underscore"
        )
    return folder / f"{name}.jsonl"


def baselines() -> list[Path]:
    folder = baselines_folder()
    return sorted(folder.glob("*.jsonl")) if folder else []


def links_file() -> Path | None:
    """Rows that a person linked by hand, beside the baselines that they may be rows of."""
    state = state_folder()
    return state / "links.tsv" if state else None


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Files by their last change; one that vanishes meanwhile is left out."""
    return [path for _, _, path in _by_age(paths)]


def prune(paths: Iterable[Path], limit: int) -> None:
    """Removes the oldest files until the rest are within so many bytes."""
    have = 0
    for _, size, path in _by_age(paths):
        have += size
        if have > limit:
            with suppress(OSError):
                path.unlink()


def _by_age(paths: Iterable[Path]) -> list[tuple[int, int, Path]]:
    found = []
    for path in paths:
        with suppress(OSError):
            about = path.lstat()
            found.append((about.st_mtime_ns, about.st_size, path))
    return sorted(found, reverse=True)


def _home(variable: str, fallback: str) -> Path | None:
    """A base folder by the XDG rules: a relative one counts as not set."""
    stated = os.environ.get(variable, "")
    if stated.startswith("/"):
        return Path(stated) / "tracetui"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody has a home
    return Path(home) / fallback / "tracetui" if home.startswith("/") else None


def _private(path: Path | None) -> Path | None:
    return made_private(path) if path else None


def made_private(path: Path) -> Path | None:
    """The folder, made if need be, if it is ours alone; none where that is not to be had."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        about = path.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return None
        if stat.S_IMODE(about.st_mode) & 0o077:
            path.chmod(0o700)
        return path if os.access(path, os.W_OK | os.X_OK) else None
    except OSError:
        return None
