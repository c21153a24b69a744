"""Files become runs in a thread, and how far it is can be asked."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from capture.activity import current
from capture.addresses import masked
from capture.errors import CaptureError, UnreadableError
from capture.run import Run
from tracetui.ui.messages import LoadFailed, Notice, RunsChanged
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.ask import describe_fault
from tracetui.ui.workers.feed import Post, Progress
from tracetui.views import view


class FileReader:
    """Reads files once, in a thread, and posts what comes of it."""

    live: Final = None  # nobody writes these files

    def __init__(
        self, paths: Sequence[str], view: str, merge: bool = False, ways: Mapping[str, Any] | None = None
    ) -> None:
        """Read files and begin with a view; `ways` are further arguments of `load_all`."""
        self._paths, self._view, self._merge, self._ways = list(paths), view, merge, ways or {}
        self._began = time.monotonic()
        self._size = sum(_size(p) for p in self._paths)

    def start(self, post: Post) -> None:
        threading.Thread(target=self._read, args=(post,), name="reading", daemon=True).start()

    def progress(self) -> Progress:
        """Return the bytes read so far, as far as the kernel tells where the open files stand."""
        read = sum(_position(fd) for fd in _descriptors({os.path.realpath(p) for p in self._paths}))
        seconds = time.monotonic() - self._began
        return Progress(seconds, current() or "reading", tuple(map(masked, self._paths)), read, self._size)

    def _read(self, post: Post) -> None:
        """Read all files and post their runs; only when none can be read, post the first reason instead."""
        from capture.open import groups, load_all  # the loaders load while the screen comes up

        runs: list[Run] = []
        errors: list[CaptureError] = []
        for group in groups(self._paths, merge=self._merge):
            try:
                runs += load_all(group, merge=self._merge, **self._ways)
            except Exception as e:
                errors.append(_as_capture_error(e, str(group[0])))
        if not runs:
            post(LoadFailed(errors[0] if errors else UnreadableError("there is nothing to open")))
            return
        try:
            post(RunsChanged(runs, [describe_run(r) for r in runs], [view(self._view)]))
        except Exception as e:
            post(LoadFailed(_as_capture_error(e, self._paths[0])))
        if errors:
            post(Notice(f"{errors[0]}" + (f" (+{len(errors) - 1})" if len(errors) > 1 else "")))


def _as_capture_error(error: Exception, path: str) -> CaptureError:
    """Return the error as a sentence; one that is no capture error is a fault of ours."""
    if isinstance(error, CaptureError):
        return error
    return UnreadableError(describe_fault("could not be read", error), where=masked(path))


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _descriptors(paths: set[str]) -> list[str]:
    """Return our open descriptors of some files."""
    descriptors = []
    with contextlib.suppress(OSError):
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in paths:
                    descriptors.append(link.name)
    return descriptors


def _position(fd: str) -> int:
    """Return where a descriptor stands in its file; 0 where the kernel does not tell."""
    try:
        first = Path(f"/proc/self/fdinfo/{fd}").read_text().split("\n", 1)[0]
        return int(first.removeprefix("pos:"))
    except (OSError, ValueError):
        return 0
