"""Where files of our own go: recordings, cache, crash notes. All private, all as XDG says."""

import os
import tempfile
import time
from pathlib import Path


def state() -> Path:
    return _home("XDG_STATE_HOME", ".local/state")


def cache() -> Path:
    return _home("XDG_CACHE_HOME", ".cache")


def config() -> Path:
    return _home("XDG_CONFIG_HOME", ".config")


def runs() -> Path:
    """The folder of recordings."""
    return state() / "runs"


def recordings() -> list[Path]:
    """Every recording, newest first."""
    try:
        found = [p for p in runs().iterdir() if p.suffix == ".jsonl"]
        return sorted(found, key=lambda p: p.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []


def private(folder: Path) -> Path:
    """The folder, made for its owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def crash_file(report: str) -> Path | None:
    """A traceback put aside for a bug report; none where nothing can be written."""
    try:
        place = private(state()) / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(report)
    except OSError:
        return None
    return place


def _home(variable: str, fallback: str) -> Path:
    """An XDG folder; a relative value counts as unset, as the standard says."""
    stated = os.environ.get(variable, "")
    base = Path(stated) if stated.startswith("/") else _user() / fallback
    return base / "tracetui"


def _user() -> Path:
    """The home folder; a user id without an entry gets the temporary folder."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())
